"""What one of several replicas takes, predicted and measured, with real strategies on this machine.

    python tests/benchmarks/replicas.py

Two logical devices under `MirroredStrategy`, two processes on loopback under
`MultiWorkerMirroredStrategy`, and two logical devices with a layout of Keras's `ModelParallel` that
splits every kernel. The devices are CPUs under TensorFlow's allocator; two replicas of one process
share it, so half of its peak is compared. NCCL needs GPUs: gradients are packed as it does. Where
Keras cannot train, there is no figure and the reason is on standard error.
"""

import json
import math
import os
import socket
import subprocess
import sys

from tabulate import tabulate

MODELS = {
    "wide": ((1024,), "Dense(2048, 'relu'), L.Dense(2048, 'relu'), L.Dense(1)"),
    "convolutions": (
        (64, 64, 3),
        "Conv2D(32, 3, activation='relu'), L.Conv2D(64, 3, strides=2, activation='relu'), "
        "L.GlobalAveragePooling2D(), L.Dense(1)",
    ),
    "deep": ((256,), "Dense(1024, 'relu'), " + "L.Dense(1024, 'relu'), " * 5 + "L.Dense(1)"),
}
BATCH = 64

BUILD = """
import os, sys, json
from oomdoctor.allocator import settings_for_the_cpu
os.environ.update(settings_for_the_cpu(), TF_CPP_MIN_LOG_LEVEL="3", TF_NUM_INTEROP_THREADS="1")
import tensorflow as tf
import keras
from keras import layers as L

def build():
    model = keras.Sequential([keras.Input(SHAPE), L.LAYERS])
    model.compile("adam", "mse")
    return model

class AfterTheFirst(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            tf.config.experimental.reset_memory_stats("CPU:0")

def train(model, batch):
    # Made as they are needed: whole arrays would be in the memory that is measured.
    data = tf.data.Dataset.range(3).map(
        lambda _: (tf.zeros((batch, *SHAPE)), tf.zeros((batch, 1)))
    )
    model.fit(data, verbose=0, callbacks=[AfterTheFirst()])
    return tf.config.experimental.get_memory_info("CPU:0")["peak"]

def two_devices():
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""

RUNS = {
    "alone": "print(train(build(), BATCH))",
    "mirrored": """
two_devices()
exchange = tf.distribute.HierarchicalCopyAllReduce(num_packs=1)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=exchange)
with strategy.scope():
    model = build()
print(train(model, BATCH) / 2)
""",
    "workers": """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = build()
print(train(model, BATCH))
""",
    "layout": """
two_devices()
devices = keras.distribution.list_devices("cpu")
mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices=devices)
layouts = keras.distribution.LayoutMap(mesh)
layouts[".*kernel"] = (None, "model")
keras.distribution.set_distribution(
    keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
)
print(train(build(), BATCH))
""",
}
PREDICT = """
import oomdoctor
for replicas in (1, 2):
    print(oomdoctor.estimate_memory(build(), batch_size=BATCH, replicas=replicas).peak_bytes)
"""


def start(code, name, **environ):
    shape, layers = MODELS[name]
    text = (BUILD + code).replace("SHAPE", repr(shape)).replace("LAYERS", layers)
    command = [sys.executable, "-c", text.replace("BATCH", str(BATCH))]
    environ = {**os.environ, **environ}
    return subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(process):
    output, errors = process.communicate(timeout=600)
    if process.returncode:
        print(errors.strip().splitlines()[-1][:200], file=sys.stderr)
        return [math.nan]
    return [float(line) for line in output.split()]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_workers(name):
    """Return the peak of the first of two workers on loopback."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    cluster = {"worker": addresses}
    started = [
        start(
            RUNS["workers"],
            name,
            TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
        )
        for index in range(2)
    ]
    peaks = [result(process)[0] for process in started]
    return peaks[0]


def main():
    rows = []
    for name in MODELS:
        alone, shared = result(start(PREDICT, name))
        single = result(start(RUNS["alone"], name))[0]
        mirrored = result(start(RUNS["mirrored"], name))[0]
        workers = two_workers(name)
        layout = result(start(RUNS["layout"], name))[0]
        sizes = (alone, single, shared, mirrored, workers, layout)
        rows.append((name, *(f"{size / 2**20:.1f}" for size in sizes)))
    headers = (
        *("model", "alone, predicted", "measured", "1 of 2, predicted"),
        *("Mirrored", "MultiWorker", "ModelParallel"),
    )
    print(f"MiB at the peak of a step, batch {BATCH} in all")
    print(tabulate(rows, headers=headers))


if __name__ == "__main__":
    main()
