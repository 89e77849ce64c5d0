"""Programs that run out of memory under a limit, and the same after treatment: CASE:KIND...

The limit is TensorFlow's own, from the environment, taken in one piece as on a GPU. Prints a line
of JSON for each program: `naive` or `treated`, `oom` or `finished`, and the MiB that were in use
before it, left over from the programs before.
"""

import gc
import json
import os
import sys
import tempfile

import numpy as np

ROWS = 960


def array():
    """Return the path of 60 MiB of samples."""
    if not os.path.exists("x.npy"):
        np.save("x.npy", np.random.default_rng(0).random((ROWS, 128, 128, 1), np.float32))
        np.save("y.npy", np.arange(ROWS) % 2)
    return "x.npy"


def small_model():
    import keras

    model = keras.Sequential(
        [
            keras.Input((128, 128, 1)),
            keras.layers.AveragePooling2D(16),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    return model


def fit_whole():
    array()
    small_model().fit(np.load("x.npy"), np.load("y.npy"), batch_size=32, verbose=0)


def fit_mapped():
    array()
    x = np.load("x.npy", mmap_mode="r")
    small_model().fit(x, np.load("y.npy"), batch_size=32, verbose=0)


def subset():
    array()
    small_model().fit(np.load("x.npy")[::8], np.load("y.npy")[::8], batch_size=32, verbose=0)


def streamed():
    import oomdoctor

    dataset = oomdoctor.stream_dataset(array(), batch_size=32, shuffle_buffer="8MiB")
    small_model().fit(dataset, verbose=0)


def streamed_map():
    import oomdoctor

    array()
    x = np.load("x.npy", mmap_mode="r")
    small_model().fit(oomdoctor.stream_dataset(x, labels="y.npy", batch_size=32), verbose=0)


def chunked():
    import oomdoctor

    oomdoctor.fit_in_chunks(small_model(), array(), chunk="8MiB", verbose=0)


def convolutions(frozen=False):
    import keras

    layers = [keras.layers.Conv2D(16, 3, padding="same", activation="relu") for _ in range(2)]
    backbone = keras.Sequential(
        [keras.Input((64, 64, 3)), *layers, keras.layers.GlobalAveragePooling2D()]
    )
    backbone.trainable = not frozen
    model = keras.Sequential([keras.Input((64, 64, 3)), backbone, keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model, backbone


def images(count):
    rng = np.random.default_rng(0)
    return rng.random((count, 64, 64, 3), np.float32), np.zeros((count, 1), "float32")


def large_batch():
    x, y = images(384)
    convolutions()[0].fit(x, y, batch_size=192, verbose=0)


def accumulated():
    from oomdoctor.treat.accumulation import accumulate_gradients, split_batch

    x, y = images(384)
    batch_size, times = split_batch(192, largest=20)
    model = accumulate_gradients(convolutions()[0], times)
    model.fit(x, y, batch_size=batch_size, verbose=0)


def through_backbone():
    x, y = images(512)
    convolutions(frozen=True)[0].fit(x, y, batch_size=512, verbose=0)


def features():
    import keras
    import tensorflow as tf

    import oomdoctor

    x, y = images(512)
    _, backbone = convolutions(frozen=True)
    folder = tempfile.mkdtemp(dir=".")
    dataset = tf.data.Dataset.from_generator(
        lambda: ((x[i : i + 16], y[i : i + 16]) for i in range(0, 512, 16)),
        output_signature=(tf.TensorSpec((None, 64, 64, 3)), tf.TensorSpec((None, 1))),
    )
    oomdoctor.store_features(backbone, dataset, folder, verbose=0)
    head = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
    head.compile("adam", "mse")
    head.fit(oomdoctor.stream_dataset(folder, batch_size=512), verbose=0)


def deep():
    import keras

    layers = [keras.layers.Dense(128, "tanh") for _ in range(24)]
    return keras.Sequential([keras.Input((64, 128)), *layers, keras.layers.Dense(1)])


def train_deep(change=lambda model: model):
    model = deep()
    model.compile("sgd", "mse")
    model = change(model)
    x = np.zeros((480, 64, 128), "float32")
    y = np.zeros((480, 64, 1), "float32")
    model.fit(x, y, batch_size=240, verbose=0)


def recomputed():
    from oomdoctor.treat.recompute import recompute

    train_deep(recompute)


def mixed():
    from oomdoctor.treat.precision import mixed_precision

    train_deep(mixed_precision)


def wide(change=lambda model: model):
    import keras

    model = keras.Sequential(
        [keras.Input((2000,)), keras.layers.Dense(3600), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse")
    model = change(model)
    model.fit(np.zeros((8, 2000), "float32"), np.zeros((8, 1)), batch_size=4, verbose=0)


def lighter():
    from oomdoctor.treat.optimizers import lighter_optimizer

    wide(lambda model: lighter_optimizer(model, "sgd"))


def replicas():
    """Each of two replicas trains on half of every batch."""
    from oomdoctor.treat.replicas import divisible_batch, replicated

    x, y = images(384)
    model = replicated(lambda: convolutions()[0], ["CPU:0", "CPU:1"])
    model.fit(x, y, batch_size=divisible_batch(193, 2), verbose=0)


CASES = {
    "subset": (fit_whole, subset),
    "stream_dataset": (fit_whole, streamed),
    "mmap": (fit_mapped, streamed_map),
    "chunked_training": (fit_whole, chunked),
    "gradient_accumulation": (large_batch, accumulated),
    "store_intermediates": (through_backbone, features),
    "rematerialize": (train_deep, recomputed),
    "mixed_precision": (train_deep, mixed),
    "lighter_optimizer": (wide, lighter),
    "cpu_fallback": (fit_whole, fit_whole),
    "multi_gpu": (large_batch, replicas),
}


def in_use():
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("CPU:0")["current"] / 2**20


def main():
    import keras
    import tensorflow as tf

    from oomdoctor.worker.devices import take_one_region

    if "multi_gpu:treated" in sys.argv:
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    limit = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB")
    if limit is not None:
        take_one_region(int(limit) * 2**20)
    for word in sys.argv[1:]:
        name, _, kind = word.partition(":")
        program = CASES[name][kind == "treated"]
        keras.utils.clear_session()
        gc.collect()
        before = in_use() if limit is not None else 0
        outcome = "finished"
        try:
            program()
        except tf.errors.ResourceExhaustedError:
            outcome = "oom"
        print(json.dumps({"program": word, "outcome": outcome, "before": before}), flush=True)


if __name__ == "__main__":
    main()
