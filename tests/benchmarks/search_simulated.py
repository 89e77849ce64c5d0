"""What do the constants of the search for a batch size change? Simulated: nothing is trained.

Run `python tests/benchmarks/search_simulated.py` (seconds). Each of 3,000 machines has another
line from batch size to memory, other noise from step to step, and an estimate that is off by
another factor. Printed are the answer as a part of the size that would fit without noise, trials
and sizes that did not fit.
"""

from __future__ import annotations

import math
import random
import statistics

from oomdoctor.tune import search
from oomdoctor.tune.search import Goal, Run, largest, next_size
from oomdoctor.tune.tuner import DEFAULT_GUESS

MACHINES, TARGET, STEPS = 3000, 10**9, 24


def searched(seed: int, tolerance: float, *, has_estimate: bool) -> tuple[float, int, int]:
    """Return the answer on one machine, as a part of what fits, with trials and failures."""
    chance = random.Random(seed)
    fixed = TARGET * chance.uniform(0.02, 0.6)
    scratch = TARGET * chance.choice([0.0, chance.uniform(0, 0.15)])
    true = int(math.exp(chance.uniform(math.log(8), math.log(4000))))
    each = (TARGET - fixed - scratch) / true
    noise = chance.choice([0.005, 0.02, 0.05])
    guess = max(1, int(true * math.exp(chance.gauss(0, chance.choice([0.05, 0.25, 0.6])))))
    guess = guess if has_estimate else DEFAULT_GUESS
    goal = Goal(target_bytes=TARGET, maximum=8192, tolerance=tolerance)
    runs: list[Run] = []
    while (size := next_size(runs, goal, guess=guess, held_bytes=int(0.9 * fixed))) is not None:
        steps = sorted(1 + abs(chance.gauss(0, noise)) for _ in range(STEPS))
        second, most = ((fixed + scratch + each * size) * step for step in steps[-2:])
        fits = most <= TARGET
        runs.append(Run(batch_size=size, fits=fits, peak_bytes=int(second if fits else most)))
    return (largest(runs) or 0) / true, len(runs), sum(not run.fits for run in runs)


def main() -> None:
    """Print a row for each pair of constants."""
    print(
        "| first part | tolerance | estimate | answer (lowest 5 %) | trials (most) | do not fit |"
    )
    print("|---|---|---|---|---|---|")
    for first_part, tolerance, estimate in (
        (0.7, 0.08, "yes"),
        (0.8, 0.08, "yes"),
        (0.9, 0.08, "yes"),
        (1.0, 0.08, "yes"),
        (0.8, 0.05, "yes"),
        (0.8, 0.08, "no"),
    ):
        search.FIRST_PART = first_part
        how = {"has_estimate": estimate == "yes"}
        found = [searched(seed, tolerance, **how) for seed in range(MACHINES)]
        parts, trials, failures = zip(*found, strict=True)
        low = sorted(parts)[MACHINES // 20]
        print(
            f"| {first_part} | {tolerance} | {estimate} | {statistics.median(parts):.2f} "
            f"({low:.2f}) | {statistics.mean(trials):.2f} ({max(trials)}) "
            f"| {statistics.mean(failures):.2f} |"
        )


if __name__ == "__main__":
    main()
