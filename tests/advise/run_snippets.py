"""Runs the code of rules with the real TensorFlow; started by `test_snippets.py` as a script.

Reads a JSON list of jobs, `{"name", "kind", "code"}`, from the file named first and writes the
failures, name to message, to the file named second. TensorFlow is imported once for all of them.

Every piece of code runs in a fresh folder, in a namespace of its own. A rule may count on this:

In the folder (so that the paths a template falls back on exist):

- `data/`: pictures in one folder per class, 3 classes
- `x_train.npy`, `y_train.npy`: 30 pictures of 32×32×3 as uint8, and their classes
- `data.h5`, `data.npz`: the same as `x` and `y`;  `arrays/`: one .npy file for each of 12
- `data.zip`: the folder `data`;  `data.tfrecord`: pictures as PNG, `image`, and their `label`
- `data.csv`, `data.parquet`, `data.arrow`, `table.parquet`: columns a, b and `label`
- `audio/`, `texts/`: .wav and .txt files in one folder per class
- `data.jsonl`: fields `text` and `label`;  `lines.txt`: a text on each line
- `model.keras`: the model below, saved

In the namespace (what a person's own program has at that point):

- `np`, `tf`, `keras`
- `x`, `y`: the arrays, `x` as float32;  `x_val`, `y_val`: a few of them
- `x_path`, `y_path`: their files;  `paths`, `labels`: the pictures and their classes
- `load_image(path)`: an array;  `decode(path, label)`: for `Dataset.map`
- `dataset`, `train_dataset`: 240 samples in batches of 8, the arrays eight times over, so that
  batches of up to 240 can be made of them;  `val_dataset`: 6 samples
- `samples`: the same samples, not batched
- `model`: compiled, functional, takes pictures of any size and ends in three classes, with a
  convolution, BatchNormalization, pooling and Dense. For tables: takes columns a and b; for audio
  one channel of any length, for text strings, and `dataset` gives what it takes
- `frame`: the table;  `to_sample(line)`: a text and a class
- `build_model()`: the same anew, not compiled;  `loss_fn`, `optimizer`: for training loops
- `batch_size` = 8, `epochs` = 1
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import traceback
import wave
from pathlib import Path

CLASSES = 3


def build_model(size=None):
    """Return a model for images of one size, or of any."""
    import keras

    inputs = keras.Input((size, size, 3))
    hidden = keras.layers.Rescaling(1 / 255)(inputs)
    hidden = keras.layers.Conv2D(4, 3, strides=4, padding="same", activation="relu")(hidden)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    outputs = keras.layers.Dense(CLASSES, activation="softmax")(hidden)
    return keras.Model(inputs, outputs)


def build_table_model():
    """Return a model for the columns of the table."""
    import keras

    inputs = {name: keras.Input((1,), name=name) for name in ("a", "b")}
    hidden = keras.layers.Concatenate()(list(inputs.values()))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def build_audio_model():
    """Return a model for sound of any length."""
    import keras

    inputs = keras.Input((None, 1))
    hidden = keras.layers.Conv1D(4, 16, strides=16)(inputs)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def build_text_model():
    """Return a model for strings."""
    import keras

    inputs = keras.Input((), dtype="string")
    words = keras.layers.TextVectorization(vocabulary=["good", "bad"], output_sequence_length=4)
    hidden = keras.layers.Embedding(4, 2)(words(inputs))
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


def namespace_for(kind: str | None) -> dict[str, object]:
    """Return what the code of a rule can count on; the folder is the current one."""
    import keras
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    x, y = np.load("x_train.npy").astype("float32"), np.load("y_train.npy")
    paths = sorted(str(path) for path in Path("data").rglob("*.png"))
    names = sorted({Path(path).parent.name for path in paths})
    builders = {"table": build_table_model, "audio": build_audio_model, "text": build_text_model}
    model = builders.get(kind, build_model)()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

    def load_image(path):
        return keras.utils.img_to_array(keras.utils.load_img(path, target_size=(32, 32)))

    def decode(path, label):
        image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
        return tf.image.resize(image, (32, 32)), label

    def to_sample(line):
        return line, tf.strings.length(line) % CLASSES

    inputs = {"audio": x.reshape(len(x), -1, 1), "text": np.array(["good"] * len(x))}
    samples = tf.data.Dataset.from_tensor_slices((inputs.get(kind, x), y)).repeat(8)
    return {
        "__name__": "snippet",
        "np": np,
        "tf": tf,
        "keras": keras,
        "x": x,
        "y": y,
        "x_val": x[:6],
        "y_val": y[:6],
        "x_path": "x_train.npy",
        "y_path": "y_train.npy",
        "paths": paths,
        "labels": [names.index(Path(path).parent.name) for path in paths],
        "load_image": load_image,
        "decode": decode,
        "to_sample": to_sample,
        "frame": pd.read_csv("data.csv"),
        "samples": samples,
        "dataset": samples.batch(8),
        "train_dataset": samples.batch(8),
        "val_dataset": samples.take(6).batch(8),
        "model": model,
        "build_model": build_model,
        "loss_fn": keras.losses.SparseCategoricalCrossentropy(),
        "optimizer": keras.optimizers.Adam(),
        "batch_size": 8,
        "epochs": 1,
    }


def furnish(folder: Path, datasets: Path) -> None:
    """Put the files that code may read into a folder."""
    import h5py
    import numpy as np

    for name in ("x_train.npy", "y_train.npy"):
        shutil.copy(datasets / "arrays" / name, folder / name)
    for kind in sorted((datasets / "shapes" / "train").iterdir()):
        (folder / "data" / kind.name).mkdir(parents=True)
        for path in sorted(kind.iterdir())[:4]:
            shutil.copy(path, folder / "data" / kind.name / path.name)
    x, y = np.load(folder / "x_train.npy"), np.load(folder / "y_train.npy")
    with h5py.File(folder / "data.h5", "w") as file:
        file["x"], file["y"] = x, y
    np.savez(folder / "data.npz", x=x, y=y)
    (folder / "arrays").mkdir()
    for number in range(12):
        np.save(folder / "arrays" / f"{number}.npy", x[number])
    furnish_tables(folder)
    furnish_others(folder, x, y)
    shutil.make_archive(folder / "data", "zip", folder, "data")
    build_model().save(folder / "model.keras")


def furnish_tables(folder: Path) -> None:
    """Put the same table into the folder in every format."""
    import pandas as pd
    import pyarrow as pa

    rows = [f"{number / 10},{number * 2.0},{number % CLASSES}" for number in range(40)]
    (folder / "data.csv").write_text("a,b,label\n" + "\n".join(rows) + "\n")
    frame = pd.read_csv(folder / "data.csv")
    frame.to_parquet(folder / "data.parquet")
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_file(str(folder / "data.arrow"), table.schema) as writer:
        writer.write(table)


def furnish_others(folder: Path, x, y) -> None:
    """Put records, sound and text into the folder."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(folder / "data.tfrecord")) as writer:
        for image, label in zip(x, y, strict=True):
            png = tf.train.BytesList(value=[tf.io.encode_png(image).numpy()])
            number = tf.train.Int64List(value=[int(label)])
            feature = {
                "image": tf.train.Feature(bytes_list=png),
                "label": tf.train.Feature(int64_list=number),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    lines = [{"text": "good", "label": number % CLASSES} for number in range(30)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (folder / "lines.txt").write_text("good\nbad luck\n" * 15)
    for kind in ("a", "b", "c"):
        for parent in ("audio", "texts"):
            (folder / parent / kind).mkdir(parents=True)
        for number in range(3):
            (folder / "texts" / kind / f"{number}.txt").write_text("good")
            with wave.open(str(folder / "audio" / kind / f"{number}.wav"), "wb") as sound:
                sound.setnchannels(1)
                sound.setsampwidth(2)
                sound.setframerate(16000)
                sound.writeframes(bytes(3200))


def run(code: str, name: str, kind: str | None) -> str | None:
    """Return None, or what went wrong."""
    import keras

    policy = keras.config.dtype_policy()
    try:
        known = namespace_for(kind)
        if "estimate_memory(model" in code:  # a model that takes any size has no one estimate
            known["model"] = build_model(32)
            known["model"].compile("adam", "sparse_categorical_crossentropy")
        exec(compile(code, name, "exec"), known)
    except BaseException:
        return traceback.format_exc()
    finally:
        # What one piece of code sets for the whole process must not reach the next.
        keras.config.set_dtype_policy(policy)
        keras.backend.clear_session()  # collects garbage too
        gc.freeze()  # what TensorFlow keeps for good is not looked at again after each job
    return None


def main() -> None:
    """Run all jobs and write the failures."""
    jobs_path, failures_path, datasets = map(Path, sys.argv[1:4])
    failures = {}
    with tempfile.TemporaryDirectory() as scratch:
        furnished = Path(scratch) / "furnished"
        furnished.mkdir()
        furnish(furnished, datasets)
        gc.freeze()
        for number, job in enumerate(json.loads(jobs_path.read_text())):
            folder = Path(scratch) / str(number)
            shutil.copytree(furnished, folder)
            os.chdir(folder)
            failure = run(job["code"], job["name"], job["kind"])
            if failure is not None:
                failures[job["name"]] = failure
        os.chdir(scratch)
    failures_path.write_text(json.dumps(failures))


if __name__ == "__main__":
    main()
