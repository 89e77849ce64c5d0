"""How many steps, errors and seconds does finding the largest batch size take, and is it right?

Run `python tests/benchmarks/tune_vs_peers.py [MODEL ...]` (Linux, needs TensorFlow; minutes a
model). All search the same model under the same real limit of TensorFlow's allocator, taken in one
piece as on a GPU. Ops run one after the other (`TF_NUM_INTEROP_THREADS=1`): with more threads no
two steps are alike, and there is no true maximum; `--threads 0` shows that. A peer's trial is three
calls of `train_on_batch` on random data, in one process that lives as long as the search; that is
what its users run. Every such process first trains on 1 and on 2 samples, so that Keras traces the
step for any batch size, as `fit` does. Each peer is its published algorithm, written anew over that
trial:

- power: double from 2 until it fails, return the last that ran (Lightning);
- binsearch: the same, then halve the bracket until it is closed (Lightning);
- x0.9: from 128 down by a tenth until it runs (accelerate);
- halving: from 1024 down by half until it runs (Composer and others);
- five points: run 1, 2, 4, 8, 16, fit a line, return where it meets 60 % of the limit
  (Ultralytics); the answer itself is never run.

Even so some models order their ops by chance. So an answer is judged by six steps in each of eight
fresh processes, and `fails` marks one that any of them cannot train. The true maximum is judged in
the same way: the largest size that passes, where no smaller one that was tried fails. With three
processes it was not to be found: a size passed all of them that six of the next eight failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.units import MIB

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
LIMITS_MIB = {"mlp": 300, "cnn": 300, "lstm": 200, "transformer": 600, "mobilenet": 600}
FRESH_PROCESSES = 8
AT_A_TIME = 2
"""Fresh processes run in pairs, and where one fails the others are not needed."""
FIRST_SIZES = (1, 2)
STEPS = 3
FINE = 50
"""The true maximum is looked for in strides of this part of a size, then between two of them."""


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

    def __call__(self, size: int) -> bool:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.sizes.append(size)
        self._process.stdin.write(f"{size}\n")
        self._process.stdin.flush()
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError("the trial's process died")
            if line.startswith("{"):
                break
        answer = json.loads(line)
        self.ooms += not answer["fits"]
        if answer["fits"]:
            self.peaks[size] = answer["peak"]
        return bool(answer["fits"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def serve(name: str, limit_mib: int) -> None:
    """Answer sizes on stdin with whether three steps of that size ran."""
    import numpy as np
    import tensorflow as tf
    from oom_threshold import BATCHES

    from oomdoctor.measure.devices import take_one_region

    take_one_region(limit_mib * MIB)
    import oom_threshold

    assert name in BATCHES
    model = getattr(oom_threshold, name)()
    rng = np.random.default_rng(0)

    def batch(size: int) -> tuple[Any, Any]:
        shape = (size, *model.input_shape[1:])
        is_index = "int" in str(model.inputs[0].dtype)
        x = rng.integers(0, 5000, shape) if is_index else rng.random(shape, np.float32)
        return x, rng.integers(0, 10, (size,))

    for size in FIRST_SIZES:
        model.train_on_batch(*batch(size))
    for line in sys.stdin:
        size = int(line)
        x, y = batch(size)
        tf.config.experimental.reset_memory_stats("CPU:0")
        try:
            for _ in range(STEPS):
                model.train_on_batch(x, y)
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


def run_ours(name: str, limit_mib: int, margin: float) -> dict[str, Any]:
    """Return what oomdoctor found and what it cost."""
    from oomdoctor.api.tune import tune_report

    began = time.monotonic()
    os.chdir(HERE)
    report = tune_report(
        f"oom_threshold:{name}",
        memory=f"{limit_mib}MiB",
        machine=None,
        margin=margin,
        min_batch_size=1,
        max_batch_size=None,
        multiple_of=None,
        replicas=1,
        objective="largest",
        cache=False,
    )
    tuning = report.facts.tuning
    assert tuning is not None
    return {
        "answer": tuning.batch_size,
        "trials": len(tuning.trials),
        "ooms": sum(trial.outcome == "oom" for trial in tuning.trials),
        "seconds": time.monotonic() - began,
    }


class Fresh:
    """What fresh processes say of sizes."""

    def __init__(self, name: str, limit_mib: int) -> None:
        self.name, self.limit_mib = name, limit_mib
        self.passed: dict[int, int] = {}
        """How many processes have trained a size; 0 where one could not."""

    def passes(self, size: int, processes: int = FRESH_PROCESSES) -> bool:
        """Return whether so many fresh processes train with that size."""
        while self.passed.get(size) != 0 and self.passed.get(size, 0) < processes:
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                results = list(pool.map(self._passes_once, [size] * AT_A_TIME))
            self.passed[size] = self.passed.get(size, 0) + AT_A_TIME if all(results) else 0
        return self.passed[size] > 0

    def _passes_once(self, size: int) -> bool:
        trials = Trials(self.name, self.limit_mib)
        try:
            return trials(size) and trials(size)
        finally:
            trials.close()

    def maximum(self) -> int:
        """Return the largest size that passes, where no smaller one that was tried fails."""
        while True:
            fails = min((size for size, passed in self.passed.items() if not passed), default=None)
            best = max(
                (s for s, passed in self.passed.items() if passed and s < (fails or s + 1)),
                default=0,
            )
            if fails is None:
                self.passes(best + max(1, best // FINE), AT_A_TIME)
            elif not best:
                self.passes(fails - max(1, fails // FINE), AT_A_TIME)
            elif fails - best > 1:
                self.passes((best + fails) // 2, AT_A_TIME)
            elif self.passes(best):  # a pair can be lucky
                return best


def report(name: str, peers: list[str]) -> None:
    """Print the table of one model."""
    limit = LIMITS_MIB[name]
    rows = {
        "oomdoctor": run_ours(name, limit, 0.05),
        "oomdoctor margin=0": run_ours(name, limit, 0),
    }
    for peer in peers:
        rows[peer] = run_peer(name, limit, PEERS[peer])
    fresh = Fresh(name, limit)
    for row in rows.values():
        if row["answer"]:
            fresh.passes(row["answer"])
    truth = fresh.maximum()
    binsearch_seconds = rows["binsearch"]["seconds"]
    print(f"\n{name} under {limit} MiB: the true maximum is {truth}")
    print(
        f"{'':<20} {'answer':>6} {'of true':>8} {'trials':>6} {'OOMs':>5} {'s':>6} {'speed-up':>9}"
    )
    for label, row in rows.items():
        answer = row["answer"]
        ok = answer is not None and fresh.passes(answer)
        print(
            f"{label:<20} {answer or '-':>6} {(answer or 0) / truth:>8.0%} {row['trials']:>6} "
            f"{row['ooms']:>5} {row['seconds']:>6.0f} {binsearch_seconds / row['seconds']:>8.1f}x"
            f"{'' if ok else '  fails'}",
            flush=True,
        )


def main() -> None:
    """Run the models given, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join(LIMITS_MIB)}; all by default")
    parser.add_argument(
        "--threads", default="1", help="ops that run at once; 0: as TensorFlow likes"
    )
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "MIB"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve[0], int(arguments.serve[1]))
        return
    os.environ["TF_NUM_INTEROP_THREADS"] = arguments.threads
    for name in arguments.models or LIMITS_MIB:
        report(name, list(dict.fromkeys([*arguments.peers, "binsearch"])))


if __name__ == "__main__":
    main()
