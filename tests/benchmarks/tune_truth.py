"""Does a batch size train in a fresh process under the limit? Kept in a CSV file.

A process trains one size with `model.fit`, as a user would: TensorFlow's default threads, batches
streamed from host memory, up to six epochs of eight whole batches and a smaller last one, for at
least ten steps and then until ten seconds are over. (With two short epochs a dense network trained
2,538 samples that fail a few steps later: updates move variables, and with threads memory falls to
pieces.) The limit is TensorFlow's own, taken in one region as on a GPU. A size *trains* if all of
four processes end.

Run `python tests/benchmarks/tune_truth.py MODEL SIZE [SIZE ...]`; what the file has is not run
again.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.units import MIB

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import tune_models  # noqa: E402

KEPT = HERE / "tune_truths.csv"
COLUMNS = ("model", "limit_mib", "batch_size", "process", "trains")
PROCESSES = 4
AT_A_TIME = 2
STEPS, EPOCHS = 8, 6
LEAST_STEPS, SECONDS = 10, 10


def trains(name: str, size: int, *, processes: int = PROCESSES, stop: bool = True) -> list[bool]:
    """Return whether each of four fresh processes trains a size; a failure stops, if asked to."""
    limit = tune_models.LIMITS_MIB[name]
    found = known(name, size)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        while len(found) < processes and (all(found) or not stop):
            count = min(AT_A_TIME, processes - len(found))
            more = list(pool.map(lambda _: _trains_once(name, limit, size), range(count)))
            with KEPT.open("a", newline="") as file:
                for one in more:
                    csv.writer(file, lineterminator="\n").writerow(
                        [name, limit, size, len(found), int(one)]
                    )
                    found.append(one)
    return found[:processes]


def known(name: str, size: int) -> list[bool]:
    """Return what is known of a size."""
    limit = tune_models.LIMITS_MIB[name]
    return [row["trains"] == "1" for row in read() if _is_of(row, name, limit, size)]


def read() -> list[dict[str, str]]:
    """Return what is known."""
    if not KEPT.exists():
        KEPT.write_text(",".join(COLUMNS) + "\n")
    with KEPT.open(newline="") as file:
        return list(csv.DictReader(file))


def largest(name: str, start: int, *, part: float = 0.03) -> int:
    """Return the largest size that trains in all processes, to within a part of it.

    Args:
        name: The model.
        start: Where to look first.
        part: How narrow the bracket becomes.
    """
    low, high, size = 0, 0, start
    while not high or not low or high - low > max(1, part * high):
        if all(trains(name, size)):
            low = size
        else:
            high = size
        if not high:
            size = -(-low * 6 // 5)
        elif not low:
            size = max(1, high * 5 // 6)
        else:
            size = (low + high) // 2
    return low


def _is_of(row: dict[str, str], name: str, limit: int, size: int) -> bool:
    return (row["model"], row["limit_mib"], row["batch_size"]) == (name, str(limit), str(size))


def _trains_once(name: str, limit: int, size: int) -> bool:
    environ = {**os.environ, **settings_for_the_cpu(limit * MIB), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, "--fit", name, str(limit), str(size)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return True
    if "ResourceExhaustedError" in done.stderr or "OOM when" in done.stderr:
        return False
    raise RuntimeError(done.stderr[-2000:])


def fit(name: str, limit_mib: int, size: int) -> None:
    """Train a size; an error ends the process."""
    import keras
    import numpy as np
    import tensorflow as tf

    _take_one_region(limit_mib)
    model = getattr(tune_models, name)()
    batch = batch_of(model, np.random.default_rng(0), size)

    def batches() -> Any:
        for count in [*[size] * STEPS, max(1, size // 3)]:
            yield tuple(array[:count] for array in batch)

    signature = tuple(tf.TensorSpec([None, *a.shape[1:]], a.dtype) for a in batch)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    ends: list[float] = []

    def stop(batch: int, logs: Any) -> None:
        ends.append(time.monotonic())
        if len(ends) >= LEAST_STEPS and ends[-1] - ends[0] > SECONDS:
            model.stop_training = True

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=[callback])
    print(json.dumps(history.history["loss"]))


def batch_of(model: Any, rng: Any, size: int) -> tuple[Any, ...]:
    """Return random samples, and targets where the model takes any."""
    import tensorflow as tf

    inputs = getattr(model, "inputs", None)
    if not inputs:  # the autoencoder
        return (_values(rng, tf.TensorSpec([None, 32, 32, 3]), size),)
    targets = (size, *model.output_shape[1:-1])
    return _values(rng, inputs[0], size), rng.integers(0, 10, targets)


def _values(rng: Any, tensor: Any, size: int) -> Any:
    shape = (size, *tensor.shape[1:])
    if "int" in str(tensor.dtype):
        return rng.integers(0, 3000, shape).astype("int32")
    return rng.random(shape, "float32")


def _take_one_region(limit_mib: int) -> None:
    """Let the allocator take all its memory at once: two MiB go to the first small tensor."""
    import tensorflow as tf

    tf.constant([0], tf.uint8)
    tf.raw_ops.Empty(shape=[limit_mib - 2, MIB], dtype=tf.uint8, init=False)


if __name__ == "__main__":
    if sys.argv[1] == "--fit":
        fit(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        for given in sys.argv[2:]:
            print(sys.argv[1], given, trains(sys.argv[1], int(given)))
