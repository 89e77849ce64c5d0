"""Measured peaks for the estimate's benchmark, kept in a CSV file so that a run can be resumed.

One process per model, optimizer and precision: TensorFlow's BFC allocator in one region, synthetic
batches, the peak of each step from the second on.

In which order the executor runs operations that are ready together is drawn anew whenever a graph
is built (it follows the addresses of the graph's edges), and the peak with it: up to 40 % in some
models. So the graph is built several times, and the truth is the median over all steps.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from oomdoctor.allocator import settings_for_the_cpu

sys.path.insert(0, str(Path(__file__).parents[1]))
from steps import Step

COLUMNS = ("model", "optimizer", "precision", "batch", "threads", "peak", "lowest", "highest",
           "graphs")  # fmt: skip
GRAPHS, STEPS = 4, 3
AT_LEAST, SECONDS = 2, 90
"""A model whose graph takes long (in processor time) to build is built fewer times."""
Key = tuple[str, str, str, int, int]


def read_truths(path: Path) -> dict[Key, dict[str, int]]:
    """Return the measured peaks by model, optimizer, precision, batch and threads."""
    if not path.exists():
        return {}
    found: dict[Key, dict[str, int]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["model"], row["optimizer"], row["precision"], int(row["batch"]),
                   int(row["threads"]))  # fmt: skip
            found[key] = {name: int(row[name]) for name in ("peak", "lowest", "highest", "graphs")}
    return found


def measure(
    names: Iterable[tuple[str, str, str, tuple[int, ...]]], path: Path, *, threads: int
) -> Iterator[str]:
    """Measure what the file does not hold yet, and yield what could not be measured."""
    for name, optimizer, precision, batches in names:
        known = read_truths(path)
        missing = [b for b in batches if (name, optimizer, precision, b, threads) not in known]
        if not missing:
            continue
        model = f"{name}__{optimizer}__{precision}"
        command = [sys.executable, __file__, model, str(threads), *map(str, missing)]
        environ = {**os.environ, **settings_for_the_cpu(), "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            yield f"{model}: {done.stderr.strip()[-300:]}"
            continue
        for batch, peaks in json.loads(done.stdout.splitlines()[-1]).items():
            steps = [peak for graph in peaks for peak in graph]
            _append(path, (name, optimizer, precision, batch, threads, int(median(steps)),
                           min(steps), max(steps), len(peaks)))  # fmt: skip


def peaks_of(model: str, threads: int, batches: list[int]) -> dict[int, list[list[int]]]:
    """Return for each batch size and graph the peaks of its steps. Runs in a child process."""
    import tensorflow as tf

    from oomdoctor.model.spec import ModelSpec
    from oomdoctor.worker.devices import prepare_devices

    spec = ModelSpec(f"estimate_models:{model}", sys_path=(str(Path(__file__).parent),))
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    prepare_devices(None)
    step = Step(spec)
    found: dict[int, list[list[int]]] = {batch: [] for batch in batches}
    began = time.process_time()
    for graph in range(GRAPHS):
        if graph >= AT_LEAST and time.process_time() - began > SECONDS:
            break
        # Another value of an option that has no effect makes TensorFlow prepare its graph again.
        tf.config.optimizer.set_experimental_options({"min_graph_nodes": 5 + graph})
        for batch in batches:
            data = step.batch(batch)
            peaks = [step.peak(data) for _ in range(STEPS)]
            found[batch].append(peaks[1:])
            del data
    return found


def _append(path: Path, row: tuple[object, ...]) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow(row)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    print(json.dumps(peaks_of(sys.argv[1], int(sys.argv[2]), [int(b) for b in sys.argv[3:]])))
