"""Measure what `fit` keeps in RAM, as multiples of the bytes of the data.

Run `python tests/benchmarks/what_fit_holds.py` (Linux, needs TensorFlow). Every case runs in a
process of its own with a model that keeps next to nothing. A first `fit` on a few samples pays for
tracing and thread pools; then the data is made, then trained on, and the peak of resident memory
(VmHWM) is read. Three figures per case, after taking off what the process held before, as
multiples of the bytes of the data:

- `data`: what making the data cost (an array is 1.00, a memory-map or a generator about 0);
- `peak`: the most that was held during `fit`, the data included;
- `end`: what was still held when `fit` had returned.

The constants in `oomdoctor/footprint/pipeline.py` come from this table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1024**2
BATCH = 32
IMAGE = (128, 128, 3)  # 192 KiB as float32

CASES = {
    "framework": "import TensorFlow, build and fit a tiny model",
    "numpy-float32": "fit(x float32)",
    "numpy-float16": "fit(x float16)",
    "numpy-uint8": "fit(x uint8)",
    "numpy-float64": "fit(x float64)",
    "memmap": "fit(np.load(mmap_mode='r') float32)",
    "tensor": "fit(tf.constant(x)), x deleted",
    "validation-split": "fit(x float32, validation_split=0.2)",
    "frame-float32": "fit(DataFrame float32)",
    "frame-float64": "fit(DataFrame float64)",
    "slices": "from_tensor_slices(x).batch(32)",
    "slices-memmap": "from_tensor_slices(memmap).batch(32)",
    "slices-shuffled": "from_tensor_slices(x).shuffle(all).batch(32)",
    "generator": "from_generator.batch(32)",
    "generator-prefetch": "from_generator.batch(32).prefetch(AUTOTUNE)",
    "generator-prefetch16": "from_generator.batch(32).prefetch(16)",
    "generator-map": "from_generator.map(AUTOTUNE).batch(32).prefetch(AUTOTUNE)",
    "sequence": "fit(keras.utils.PyDataset)",
    "cache-unbatched": "from_generator.cache().batch(32)",
    "cache-batched": "from_generator.batch(32).cache()",
    "cache-file": "from_generator.cache(file).batch(32)",
    "shuffle-192KiB": "from_generator.shuffle(all).batch(32), 192 KiB elements",
    "shuffle-12KiB": "the same, 12 KiB elements",
    "shuffle-784B": "the same, 784 B elements (28x28 uint8)",
    "shuffle-pair-784B": "the same, 784 B and a label of 8 B",
    "shuffle-batched": "from_generator.batch(32).shuffle(all)",
    "shuffle-8-epochs": "range.map.shuffle(all).batch(32), 12 KiB elements, 8 epochs",
    "shuffle-one-arena": "the same with MALLOC_ARENA_MAX=1",
}
SMALL_SHARE = 16  # a generator takes minutes to make 512 MiB of 784 B elements
ENVIRONMENT = {"shuffle-one-arena": {"MALLOC_ARENA_MAX": "1"}}
EPOCHS = {"shuffle-8-epochs": 8, "shuffle-one-arena": 8}


def resident_bytes() -> int:
    """Return what this process holds now."""
    return status("VmRSS")


def status(key: str) -> int:
    """Return one size from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def forget_peak() -> None:
    """Set VmHWM back to what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def tiny_model(shape: tuple[int, ...]):
    """Return a compiled model with one weight per channel at most."""
    import keras

    layers = [keras.layers.Input(shape)]
    if len(shape) > 1:
        layers.append(keras.layers.Reshape((-1, shape[-1])))
        layers.append(keras.layers.GlobalAveragePooling1D())
    layers.append(keras.layers.Dense(1))
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    return model


def made_array(count: int, shape: tuple[int, ...], dtype: str):
    """Return a resident array without any temporary beside it."""
    import numpy as np

    x = np.empty((count, *shape), dtype)
    x[...] = 1
    return x


def generated(count: int, shape: tuple[int, ...], dtype: str, *, pair: bool = False):
    """Return a dataset that makes its elements one by one."""
    import numpy as np
    import tensorflow as tf

    x_spec = tf.TensorSpec(shape, dtype)
    y_spec = tf.TensorSpec((), "int64")

    def elements():
        for _ in range(count):
            x = np.full(shape, 1, dtype)
            yield (x, 0) if pair else x

    dataset = tf.data.Dataset.from_generator(
        elements, output_signature=(x_spec, y_spec) if pair else x_spec
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    if pair:
        return dataset
    return dataset.map(lambda x: (x, 0.0))


def case_data(name: str, total: int, folder: Path):
    """Return the arguments of `fit` and the bytes of the data."""
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    def count_of(shape: tuple[int, ...], dtype: str) -> int:
        return total // (int(np.prod(shape)) * np.dtype(dtype).itemsize)

    if name.startswith("numpy-") or name in ("tensor", "validation-split"):
        dtype = name.partition("-")[2] if name.startswith("numpy-") else "float32"
        x = made_array(count_of(IMAGE, dtype), IMAGE, dtype)
        y = np.zeros(len(x), "float32")
        size = x.nbytes
        if name == "tensor":
            x = tf.constant(x)
        more = {"validation_split": 0.2} if name == "validation-split" else {}
        return {"x": x, "y": y, "batch_size": BATCH, **more}, size
    if name in ("memmap", "slices-memmap"):
        path = folder / "x.npy"
        x = np.lib.format.open_memmap(path, "w+", "float32", (count_of(IMAGE, "float32"), *IMAGE))
        for start in range(0, len(x), 64):
            x[start : start + 64] = 1
        size = x.nbytes
        del x
        x = np.load(path, mmap_mode="r")
        y = np.zeros(len(x), "float32")
        if name == "memmap":
            return {"x": x, "y": y, "batch_size": BATCH}, size
        return {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)}, size
    if name.startswith("frame-"):
        dtype = name.partition("-")[2]
        values = made_array(count_of((256,), dtype), (256,), dtype)
        frame = pd.DataFrame(values, copy=False)
        return {"x": frame, "y": np.zeros(len(frame)), "batch_size": BATCH}, values.nbytes
    if name in ("slices", "slices-shuffled"):
        x = made_array(count_of(IMAGE, "float32"), IMAGE, "float32")
        dataset = tf.data.Dataset.from_tensor_slices((x, np.zeros(len(x), "float32")))
        if name == "slices-shuffled":
            dataset = dataset.shuffle(len(x))
        dataset = dataset.batch(BATCH)
        dataset.array = x  # the script that made the array still holds it
        return {"x": dataset}, x.nbytes
    if name.endswith("784B"):
        total //= SMALL_SHARE
    return generated_case(name, total, folder), total


def generated_case(name: str, total: int, folder: Path):
    """Return the arguments of `fit` for the cases that make data as they go."""
    import keras
    import numpy as np
    import tensorflow as tf

    shape, dtype, pair = IMAGE, "float32", False
    if name in ("shuffle-12KiB", "shuffle-8-epochs", "shuffle-one-arena"):
        shape = (32, 32, 3)
    elif name.endswith("784B"):
        shape, dtype, pair = (28, 28), "uint8", name == "shuffle-pair-784B"
    count = total // (int(np.prod(shape)) * np.dtype(dtype).itemsize)
    auto = tf.data.AUTOTUNE
    if name == "sequence":

        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return count // BATCH

            def __getitem__(self, index):
                return np.ones((BATCH, *shape), dtype), np.zeros(BATCH)

        return {"x": Batches()}
    if name in EPOCHS:
        dataset = tf.data.Dataset.range(count)
        # From the counter, or TensorFlow folds it into one constant that all elements share.
        dataset = dataset.map(lambda i: (tf.fill(shape, tf.cast(i % 7, tf.float32)), 0.0))
    else:
        dataset = generated(count, shape, dtype, pair=pair)
    if name == "generator":
        dataset = dataset.batch(BATCH)
    elif name == "generator-prefetch":
        dataset = dataset.batch(BATCH).prefetch(auto)
    elif name == "generator-prefetch16":
        dataset = dataset.batch(BATCH).prefetch(16)
    elif name == "generator-map":
        dataset = dataset.map(lambda x, y: (x * 2, y), num_parallel_calls=auto)
        dataset = dataset.batch(BATCH).prefetch(auto)
    elif name == "cache-unbatched":
        dataset = dataset.cache().batch(BATCH)
    elif name == "cache-batched":
        dataset = dataset.batch(BATCH).cache()
    elif name == "cache-file":
        dataset = dataset.cache(str(folder / "cache")).batch(BATCH)
    elif name == "shuffle-batched":
        dataset = dataset.batch(BATCH).shuffle(count // BATCH + 1)
    else:
        dataset = dataset.shuffle(count).batch(BATCH)
    return {"x": dataset}


def shape_of(x) -> tuple[int, ...]:
    """Return the shape of one sample."""
    spec = getattr(x, "element_spec", None)
    if spec is not None:
        return tuple(spec[0].shape[1:])
    if hasattr(x, "shape"):
        return tuple(x.shape[1:])
    return IMAGE


def run_case(name: str, total: int, epochs: int) -> dict[str, float]:
    """Return the figures of one case, measured in this process."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    bare = resident_bytes()
    import numpy as np
    import tensorflow as tf

    imported = resident_bytes()
    warm = tiny_model(IMAGE)
    warm.fit(np.ones((64, *IMAGE), "float32"), np.zeros(64), batch_size=BATCH, verbose=0)
    warm.fit(generated(64, IMAGE, "float32").shuffle(2).batch(BATCH).prefetch(1), verbose=0)
    if name == "framework":
        return {"import": imported - bare, "after_fit": resident_bytes() - bare, "bare": bare}
    start = resident_bytes()
    with tempfile.TemporaryDirectory() as folder:
        arguments, size = case_data(name, total, Path(folder))
        made = resident_bytes()
        model = tiny_model(shape_of(arguments["x"]))
        forget_peak()
        model.fit(**arguments, epochs=epochs, verbose=0)
        peak = status("VmHWM")
        end = resident_bytes()
    figures = {"size": size, "data": made - start, "peak": peak - start, "end": end - start}
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC"):
        figures["bfc_peak"] = tf.config.experimental.get_memory_info("CPU:0")["peak"]
    return figures


def main() -> None:
    """Print the table, or the figures of one case as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, help="run one case here and print JSON")
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--mib", type=int, default=512, help="size of the data")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(options.case, options.mib * MIB, options.epochs)))
        return
    print(f"{'case':<22}{'data':>7}{'peak':>7}{'end':>7}  of {options.mib} MiB")
    for name in options.only:
        began = time.monotonic()
        command = [sys.executable, __file__, "--case", name, "--mib", str(options.mib)]
        run = subprocess.run(
            [*command, "--epochs", str(EPOCHS.get(name, options.epochs))],
            env={**os.environ, **ENVIRONMENT.get(name, {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            print(f"{name:<22}failed: {run.stderr.strip().splitlines()[-1][:200]}")
            continue
        figures = json.loads(run.stdout.splitlines()[-1])
        took = f"{time.monotonic() - began:.0f} s"
        if name == "framework":
            words = ", ".join(f"{key} {value / MIB:.0f} MiB" for key, value in figures.items())
            print(f"{name:<22}{words}  ({took})")
            continue
        size = figures["size"]
        cells = "".join(f"{figures[key] / size:>7.2f}" for key in ("data", "peak", "end"))
        more = f"  bfc {figures['bfc_peak'] / size:.2f}" if "bfc_peak" in figures else ""
        print(f"{name:<22}{cells}  {CASES[name]}{more}  ({took})", flush=True)


if __name__ == "__main__":
    main()
