"""What is each part of the search for a batch size worth?

Run `python tests/benchmarks/tune_ablation.py [VARIANT ...] [--models NAME ...]` (Linux, needs
TensorFlow; about a minute for a model and a variant on an idle machine). Each variant leaves out or
changes one part. TensorFlow's default threads, and its real allocator limit in one region.

- answer ÷ largest: against the largest size that trains in four fresh processes (`tune_truth.py`);
- fails: in how many of four fresh processes the answer ran out of memory;
- trials, OOMs and seconds of the search.

What was found is kept in `tune_answers.csv`; delete a row to run it again.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import tune_models  # noqa: E402
import tune_truth  # noqa: E402

from oomdoctor.model.spec import ModelSpec  # noqa: E402
from oomdoctor.tune.trials import Trials  # noqa: E402
from oomdoctor.tune.tuner import Wanted, tune  # noqa: E402
from oomdoctor.units import MIB  # noqa: E402
from oomdoctor.worker.messages import Guessed, Trial  # noqa: E402

KEPT = HERE / "tune_answers.csv"
COLUMNS = ("variant", "model", "answer", "trials", "ooms", "seconds")


class WithoutEstimate(Trials):
    """Looks first at a fixed size."""

    def guess(self, limit_bytes: int) -> Guessed:
        return Guessed()


class OneProcess(Trials):
    """Runs sizes in one process until one does not fit."""

    def run(self, batch_size: int, **how: Any) -> Trial:
        return super().run(batch_size, **{**how, "alone": False})


class WithoutReordering(Trials):
    """Trains in the order of ops that each process happens to have."""

    reorders = False


class HighestPeak(Trials):
    """Is led by the highest peak of all steps."""

    def run(self, batch_size: int, **how: Any) -> Trial:
        return replace(super().run(batch_size, **how), step_peaks=())


VARIANTS: dict[str, tuple[Callable[..., Trials], dict[str, Any]]] = {
    "as it is": (Trials, {}),
    "no estimate": (WithoutEstimate, {}),
    "one process": (OneProcess, {}),
    "no reordering": (WithoutReordering, {}),
    "the highest peak leads": (HighestPeak, {}),
    "margin 0.01": (Trials, {"margin": 0.01}),
    "margin 0.08": (Trials, {"margin": 0.08}),
    "margin 0.10": (Trials, {"margin": 0.10}),
}
BEFORE = "one process, the winner once more alone"
"""The search as it was before each size had a process of its own; its rows are kept."""


def search(variant: str, name: str) -> dict[str, Any]:
    """Return what a variant finds for a model, and what that took."""
    trials_class, options = VARIANTS[variant]
    spec = ModelSpec(f"tune_models:{name}", sys_path=(str(HERE),))
    budget = tune_models.LIMITS_MIB[name] * MIB
    began = time.monotonic()
    with trials_class(spec, budget_bytes=budget) as trials:
        found: Any = tune(trials, Wanted(budget_bytes=budget, **options))
    return {
        "variant": variant,
        "model": name,
        "answer": getattr(found, "batch_size", 0),
        "trials": len(found.trials),
        "ooms": sum(trial.outcome != "fits" for trial in found.trials),
        "seconds": round(time.monotonic() - began, 1),
    }


def read() -> list[dict[str, str]]:
    """Return what was found before."""
    if not KEPT.exists():
        KEPT.write_text(",".join(COLUMNS) + "\n")
    with KEPT.open(newline="") as file:
        return list(csv.DictReader(file))


def answer_of(variant: str, name: str) -> dict[str, Any]:
    """Return what a variant finds, from the file or by running it."""
    for row in read():
        if (row["variant"], row["model"]) == (variant, name):
            return row
    found = search(variant, name)
    with KEPT.open("a", newline="") as file:
        csv.DictWriter(file, COLUMNS, lineterminator="\n").writerow(found)
    return found


def largest_known(name: str) -> int:
    """Return the largest size that trained in all processes, of those that were tried."""
    by_size: dict[int, list[bool]] = {}
    for row in tune_truth.read():
        if row["model"] == name:
            by_size.setdefault(int(row["batch_size"]), []).append(row["trains"] == "1")
    trained = [s for s, ran in by_size.items() if all(ran) and len(ran) >= tune_truth.PROCESSES]
    failed = [size for size, ran in by_size.items() if not all(ran)]
    # A size above one that fails trained by chance.
    return max((size for size in trained if size < min(failed, default=1 << 30)), default=0)


def main() -> None:
    """Print a row for each variant and model, and one for each variant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("variants", nargs="*")
    parser.add_argument("--models", nargs="*", default=list(tune_models.LIMITS_MIB))
    parser.add_argument("--known", action="store_true", help="run nothing: print what is known")
    given = parser.parse_args()
    variants = given.variants or list(VARIANTS)
    known = {(row["variant"], row["model"]): row for row in read()}
    asked = [(v, name) for v in variants for name in given.models]
    if given.known:
        asked = [key for key in asked if key in known]
    rows = {key: known.get(key) or answer_of(*key) for key in asked}
    fails = {
        key: [not ran for ran in trains_of(key[1], int(row["answer"]), known=given.known)]
        for key, row in rows.items()
    }
    print("| variant | model | answer | ÷ largest | fails | trials | OOMs | s |")
    print("|---|---|---|---|---|---|---|---|")
    for (variant, name), row in rows.items():
        part = int(row["answer"]) / (largest_known(name) or 1)
        failed = f"{sum(fails[variant, name])} of {len(fails[variant, name])}"
        print(
            f"| {variant} | {name} | {row['answer']} | {part:.2f} | {failed} | {row['trials']} "
            f"| {row['ooms']} | {float(row['seconds']):.0f} |"
        )
    print("\n| variant | models | ÷ largest (least) | fails | trials (most) | OOMs | seconds |")
    print("|---|---|---|---|---|---|---|")
    for variant in variants:
        of = [(name, row) for (v, name), row in rows.items() if v == variant]
        if not of:
            continue
        parts = [int(row["answer"]) / (largest_known(name) or 1) for name, row in of]
        ran = [one for name, _ in of for one in fails[variant, name]]
        numbers = {c: [float(row[c]) for _, row in of] for c in ("trials", "ooms", "seconds")}
        print(
            f"| {variant} | {len(of)} | {statistics.median(parts):.2f} ({min(parts):.2f}) "
            f"| {sum(ran)} of {len(ran)} "
            f"| {statistics.median(numbers['trials']):.1f} ({max(numbers['trials']):.0f}) "
            f"| {statistics.median(numbers['ooms']):.1f} "
            f"| {statistics.median(numbers['seconds']):.0f} |"
        )


def trains_of(name: str, size: int, *, known: bool) -> list[bool]:
    """Return whether processes train a size; only those that did before, if so asked."""
    if known:
        return tune_truth.known(name, size)
    return tune_truth.trains(name, size, stop=False)


if __name__ == "__main__":
    main()
