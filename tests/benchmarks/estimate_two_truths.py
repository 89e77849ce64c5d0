"""Measured peaks for two devices, kept in a CSV file so that a run can be resumed.

    python tests/benchmarks/estimate_two_truths.py --set second

For a CPU the truth is the allocator's peak. For a card that runs TensorFlow's executor it is the
peak of outputs and persistent buffers: the same step's allocations without those of kind `temp`,
which are scratch memory of the CPU's kernels. Scratch memory that a kernel hands on as its output
counts as output (`scratch_as_temp`).

One process per model: one region, one inter-op thread, no oneDNN, several graphs (see
`estimate_truth.py`), the median over all steps from the second on. Lowest and highest stand beside.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import estimate_models
from estimate_models_last import LAST
from estimate_models_second import SECOND

from oomdoctor.allocator import settings_for_the_cpu

TRUTHS = Path(__file__).with_name("estimate_two_truths.csv")
SETS = {"first": estimate_models.CASES, "second": SECOND, "last": LAST}
CASES = {case.name: case for cases in SETS.values() for case in cases}
COLUMNS = ("model", "batch", "graphs", "cpu", "cpu_lowest", "cpu_highest",
           "card", "card_lowest", "card_highest")  # fmt: skip
GRAPHS, STEPS = 3, 2
Key = tuple[str, int]


def fields_of(case: estimate_models.Case, model: Any) -> Any:
    """Return what the model's step is fed with."""
    import tensorflow as tf

    from oomdoctor.model.batches import possible_batches
    from oomdoctor.model.fields import Field
    from oomdoctor.model.spec import ModelSpec

    if not case.fed:
        return next(iter(possible_batches(model, ModelSpec(source=case.name), "train")))
    fields = tuple(Field(tf.TensorSpec((None, *shape), dtype)) for shape, dtype in case.fed)
    return fields if len(fields) > 1 else fields[0]


def read_truths(path: Path = TRUTHS) -> dict[Key, dict[str, int]]:
    """Return the measured peaks by model and batch size."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (row["model"], int(row["batch"])): {name: int(row[name]) for name in COLUMNS[2:]}
            for row in csv.DictReader(file)
        }


def peaks_of(case: estimate_models.Case, batches: list[int]) -> dict[int, list[list[int]]]:
    """Return for each batch size the peaks of its steps: for a CPU, for a card."""
    import tensorflow as tf

    from oomdoctor.model.fields import make, specs_of
    from oomdoctor.worker.devices import prepare_devices

    tf.config.threading.set_inter_op_parallelism_threads(1)
    prepare_devices(None)
    model = estimate_models.compiled(case, "adam", "float32")
    fields = fields_of(case, model)
    step = tf.function(model.train_step, input_signature=[specs_of(fields, None)], autograph=False)
    step.get_concrete_function()
    found: dict[int, list[list[int]]] = {batch: [[], []] for batch in batches}
    for graph in range(GRAPHS):
        # Another value of an option that has no effect makes TensorFlow prepare its graph again.
        tf.config.optimizer.set_experimental_options({"min_graph_nodes": 5 + graph})
        for batch in batches:
            data = make(fields, batch)
            for number in range(STEPS):
                peak, card = _step(step, data, recorded=number == STEPS - 1)
                if number:
                    found[batch][0].append(peak)
                if card is not None:
                    found[batch][1].append(card)
            del data
    return found


def _step(step: Any, data: Any, *, recorded: bool) -> tuple[int, int | None]:
    import tensorflow as tf

    from oomdoctor.trace.events import record
    from oomdoctor.trace.replay import find_peak, in_order, scratch_as_temp

    def run() -> None:
        for output in tf.nest.flatten(step(data)):
            output.numpy()

    def info(name: str) -> int:
        return int(tf.config.experimental.get_memory_info("CPU:0")[name])

    tf.config.experimental.reset_memory_stats("CPU:0")
    start = info("current")
    if not recorded:
        run()
        return info("peak"), None
    events = record(run, None)
    peak = info("peak")
    ordered = scratch_as_temp(in_order(events))
    scratch = [event for event in ordered if event.kind == "temp" and not event.is_release]
    kept, open_scratch = [], set()
    for event in ordered:
        if event.is_release and event.address in open_scratch:
            open_scratch.discard(event.address)
        elif not event.is_release and event.kind == "temp":
            open_scratch.add(event.address)
        else:
            kept.append(event)
    assert len(kept) >= len(ordered) - 2 * len(scratch)
    return peak, find_peak(kept, start).peak_bytes


def measure(names: list[str], path: Path = TRUTHS) -> None:
    """Measure what the file does not hold yet; say what could not be measured."""
    for name in names:
        missing = [b for b in CASES[name].batches if (name, b) not in read_truths(path)]
        if not missing:
            continue
        command = [sys.executable, __file__, "--one", name, json.dumps(missing)]
        environ = {**os.environ, **settings_for_the_cpu(), "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            print(f"{name}: {done.stderr.strip()[-300:]}", file=sys.stderr, flush=True)
            continue
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(COLUMNS)
            for batch, (cpu, card) in json.loads(done.stdout.splitlines()[-1]).items():
                writer.writerow((name, batch, len(card), int(median(cpu)), min(cpu), max(cpu),
                                 int(median(card)), min(card), max(card)))  # fmt: skip


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, action="append", dest="sets")
    parser.add_argument("--models", nargs="+", default=None)
    parser.add_argument("--truths", type=Path, default=TRUTHS)
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, batches = arguments.one
        print(json.dumps(peaks_of(CASES[name], json.loads(batches))))
        return
    named = arguments.models or [
        case.name for key in arguments.sets or ["second"] for case in SETS[key]
    ]
    measure(named, arguments.truths)


if __name__ == "__main__":
    main()
