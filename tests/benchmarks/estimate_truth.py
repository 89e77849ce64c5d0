"""Measured peaks for the estimate's benchmark, kept in a CSV file so that a run can be resumed.

One worker process per model, optimizer and precision, as `oomdoctor.measure` runs it: TensorFlow's
BFC allocator in one region, synthetic batches, the peak of each step from the second on.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from statistics import median

COLUMNS = ("model", "optimizer", "precision", "batch", "threads", "peak", "lowest", "highest")
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
            found[key] = {name: int(row[name]) for name in ("peak", "lowest", "highest")}
    return found


def measure(
    names: Iterable[tuple[str, str, str, tuple[int, ...]]], path: Path, *, threads: int, steps: int
) -> list[str]:
    """Measure what the file does not hold yet, and return what could not be measured."""
    from oomdoctor.errors import OomDoctorError
    from oomdoctor.measure.runner import Runner
    from oomdoctor.measure.spec import ModelSpec

    failed: list[str] = []
    known = read_truths(path)
    for name, optimizer, precision, batches in names:
        missing = [b for b in batches if (name, optimizer, precision, b, threads) not in known]
        if not missing:
            continue
        source = f"estimate_models:{name}__{optimizer}__{precision}"
        spec = ModelSpec(source, sys_path=(str(Path(__file__).parent),))
        with Runner(spec, threads=threads, seconds_per_trial=240) as runner:
            for batch in missing:
                try:
                    trial = runner.run(batch, steps=steps)
                except OomDoctorError as error:
                    failed.append(f"{source} {batch}: {error}")
                    continue
                if trial.outcome != "fits":
                    failed.append(f"{source} {batch}: {trial.outcome} {trial.message}")
                    continue
                _append(path, (name, optimizer, precision, batch, threads,
                               int(median(trial.step_peaks)), min(trial.step_peaks),
                               max(trial.step_peaks)))  # fmt: skip
    return failed


def _append(path: Path, row: tuple[object, ...]) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow(row)
