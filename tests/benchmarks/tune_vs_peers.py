"""How many trials, errors and seconds does finding a batch size take, and does the answer train?

Run `python tests/benchmarks/tune_vs_peers.py [MODEL ...]` (Linux, needs TensorFlow; minutes a
model). All search the same model under the same real limit of TensorFlow's allocator, taken in one
piece as on a GPU. A peer's trial is three calls of `train_on_batch` on random data, in one process
that lives as long as the search; that is what its users run. Every such process first trains on 1
and on 2 samples, so that Keras traces the step for any batch size, as `fit` does. Each peer is its
published algorithm, written again over that trial:

- power: double from 2 until it fails, return the last that ran (Lightning);
- binsearch: the same, then halve the bracket until it is closed (Lightning);
- x0.9: from 128 down by a tenth until it runs (accelerate);
- halving: from 1024 down by half until it runs (Composer and others);
- five points: run 1, 2, 4, 8, 16, fit a line, return where it meets 60 % of the limit
  (Ultralytics); the answer itself is never run.

An answer is verified with `fit` in four fresh processes (`tune_truth.py`), and `fails` marks one
that any of them cannot train. The true maximum is the largest size that all of them train.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.units import MIB

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import tune_models  # noqa: E402
import tune_truth  # noqa: E402

FIRST_SIZES = (1, 2)
STEPS = 3


class Trials:
    """Runs sizes in one process and counts."""

    def __init__(self, name: str, limit_mib: int) -> None:
        self.name, self.limit_mib = name, limit_mib
        self.sizes: list[int] = []
        self.ooms = 0
        self.peaks: dict[int, int] = {}
        environ = {
            **os.environ,
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **settings_for_the_cpu(limit_mib * MIB),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, str(limit_mib)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in FIRST_SIZES:
            self._answer()

    def __call__(self, size: int) -> bool:
        assert self._process.stdin is not None
        self.sizes.append(size)
        self._process.stdin.write(f"{size}\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.ooms += not answer["fits"]
        if answer["fits"]:
            self.peaks[size] = answer["peak"]
        return bool(answer["fits"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError("the trial's process died")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(name: str, limit_mib: int) -> None:
    """Answer sizes on stdin with whether three steps of that size ran."""
    import numpy as np
    import tensorflow as tf

    from oomdoctor.worker.devices import take_one_region

    take_one_region(limit_mib * MIB)
    model = getattr(tune_models, name)()
    rng = np.random.default_rng(0)
    for line in [*map(str, FIRST_SIZES), *iter(sys.stdin.readline, "")]:
        batch = tune_truth.batch_of(model, rng, int(line))
        tf.config.experimental.reset_memory_stats("CPU:0")
        try:
            for _ in range(STEPS):
                model.train_on_batch(*batch)
        except tf.errors.ResourceExhaustedError:
            answer: dict[str, Any] = {"fits": False}
        else:
            peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
            answer = {"fits": True, "peak": peak}
        print(json.dumps(answer), flush=True)


def power(fits: Trials) -> int | None:
    size, low = 2, None
    while fits(size):
        low, size = size, size * 2
    return low


def binsearch(fits: Trials) -> int | None:
    low = power(fits)
    if low is None:
        return None
    high = low * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def times_nine_tenths(fits: Trials) -> int | None:
    size = 128
    while size > 0 and not fits(size):
        size = int(size * 0.9)
    return size or None


def halving(fits: Trials) -> int | None:
    size = 1024
    while size > 0 and not fits(size):
        size //= 2
    return size or None


def five_points(fits: Trials) -> int | None:
    import numpy as np

    sizes = [1, 2, 4, 8, 16]
    ran = [size for size in sizes if fits(size)]
    if len(ran) < 2:
        return 16
    each, fixed = np.polyfit(ran, [fits.peaks[size] for size in ran], 1)
    size = int((0.6 * fits.limit_mib * MIB - fixed) / each)
    if len(ran) < len(sizes) and size >= sizes[len(ran)]:
        size = ran[-1]
    return size if 1 <= size <= 1024 else 16


PEERS: dict[str, Callable[[Trials], int | None]] = {
    "power": power,
    "binsearch": binsearch,
    "x0.9": times_nine_tenths,
    "halving": halving,
    "five points": five_points,
}


def run_peer(name: str, limit_mib: int, search: Callable[[Trials], int | None]) -> dict[str, Any]:
    """Return what a peer found and what it cost."""
    began = time.monotonic()
    trials = Trials(name, limit_mib)
    try:
        found = search(trials)
    finally:
        trials.close()
    seconds = time.monotonic() - began
    return {"answer": found, "trials": len(trials.sizes), "ooms": trials.ooms, "seconds": seconds}


def run_ours(name: str, limit_mib: int, margin: float | None) -> dict[str, Any]:
    """Return what oomdoctor found and what it cost."""
    from oomdoctor import suggest_batch_size

    os.chdir(HERE)
    began = time.monotonic()
    size = suggest_batch_size(
        f"tune_models:{name}",
        memory=f"{limit_mib}MiB",
        margin=margin,
        max_seconds=None,
        cache=False,
    )
    trials = size.tuning.trials
    return {
        "answer": int(size),
        "trials": len(trials),
        "ooms": sum(trial.outcome == "oom" for trial in trials),
        "seconds": time.monotonic() - began,
    }


def report(name: str, peers: list[str]) -> None:
    """Print the table of one model."""
    limit = tune_models.LIMITS_MIB[name]
    rows = {
        "oomdoctor": run_ours(name, limit, None),
        "oomdoctor margin=0": run_ours(name, limit, 0),
        **{peer: run_peer(name, limit, PEERS[peer]) for peer in peers},
    }
    truth = tune_truth.largest(name, rows["oomdoctor"]["answer"])
    print(f"\n{name} under {limit} MiB: the true maximum is {truth}")
    print(f"{'':<20} {'answer':>6} {'of true':>8} {'trials':>6} {'OOMs':>5} {'s':>6}")
    for label, row in rows.items():
        answer = row["answer"]
        trains = answer is not None and all(tune_truth.trains(name, answer))
        print(
            f"{label:<20} {answer or '-':>6} {(answer or 0) / truth:>8.0%} {row['trials']:>6} "
            f"{row['ooms']:>5} {row['seconds']:>6.0f}{'' if trains else '  fails'}",
            flush=True,
        )


def main() -> None:
    """Run the models given, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="of tune_models.py; all by default")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "MIB"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve[0], int(arguments.serve[1]))
        return
    for name in arguments.models or tune_models.LIMITS_MIB:
        report(name, arguments.peers)


if __name__ == "__main__":
    main()
