"""The search over simulated machines: what it runs, when it ends, and what it finds."""

import math
import random
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.tune.search import Goal, Run, largest, next_size

MAXIMUM = 8192
MOST_RUNS = 40


def search(peak, goal, *, guess=64, held=0, fits=None, known_up_to=2.0):
    """Return the runs of a search on a machine whose memory is a function of the batch.

    Args:
        peak: Batch size → bytes.
        goal: What is looked for.
        guess: Where to look first.
        held: Bytes that are held without a batch.
        fits: Batch size → whether it runs; by default whether its peak is within the target.
        known_up_to: How much more than the target a step may take for its peak to be known.
    """
    runs = []
    while (size := next_size(runs, goal, guess=guess, held_bytes=held)) is not None:
        taken = int(peak(size))
        is_known = taken <= known_up_to * goal.target_bytes
        ran = taken <= goal.target_bytes if fits is None else fits(size)
        runs.append(Run(batch_size=size, fits=ran, peak_bytes=taken if is_known else None))
        assert len(runs) <= MOST_RUNS, [run.batch_size for run in runs]
    return runs


def sizes(runs):
    return [run.batch_size for run in runs]


def failures(runs):
    return sum(not run.fits for run in runs)


def line(fixed, each):
    return lambda size: fixed + each * size


def test_a_line_takes_three_runs_and_one_failure_to_be_exact():
    runs = search(line(100, 10), Goal(target_bytes=1000, maximum=4096), guess=80, held=100)

    assert sizes(runs) == [64, 90, 91]
    assert largest(runs) == 90


def test_with_a_tolerance_it_ends_without_a_failure_when_little_is_left():
    goal = Goal(target_bytes=1000, maximum=4096, tolerance=0.1)
    runs = search(line(100, 10), goal, guess=80, held=100)

    assert sizes(runs) == [64, 85]
    assert failures(runs) == 0


def test_weights_do_not_count_as_memory_that_is_used_by_batches():
    """A model of 950 of 1000 bytes was content with any batch: 90 % were taken."""
    goal = Goal(target_bytes=1000, maximum=4096, tolerance=0.1)
    runs = search(line(950, 1), goal, guess=5, held=950)

    assert sizes(runs) == [4, 47]


def test_a_guess_that_is_far_too_high_leads_down_by_the_measured_peak():
    goal = Goal(target_bytes=1000, maximum=4096, tolerance=0.1)
    runs = search(line(100, 10), goal, guess=200, held=100)

    assert sizes(runs) == [160, 85]


def test_a_guess_that_is_far_too_high_leads_down_where_no_peak_is_known():
    goal = Goal(target_bytes=1000, maximum=MAXIMUM)
    runs = search(line(100, 10), goal, guess=3000, held=100, known_up_to=1)

    assert largest(runs) == 90
    assert len(runs) <= 16


def test_nothing_fits():
    runs = search(line(2000, 10), Goal(target_bytes=1000, maximum=MAXIMUM), guess=MAXIMUM)

    assert largest(runs) is None
    assert sizes(runs)[-1] == 1


def test_nothing_is_run_in_a_range_without_a_multiple():
    goal = Goal(target_bytes=100, minimum=9, maximum=15, multiple_of=8)

    assert search(line(0, 1), goal) == []


def test_a_flat_stretch_is_not_walked_one_by_one():
    goal = Goal(target_bytes=6000 + 64, maximum=MAXIMUM)
    runs = search(lambda size: size + 1000 * math.ceil(size / 640), goal, guess=3000)

    assert largest(runs) == max(n for n in range(1, MAXIMUM) if n + 1000 * -(-n // 640) <= 6064)
    assert len(runs) <= 20


def test_a_size_that_failed_in_a_fresh_process_is_no_longer_the_largest():
    runs = [
        Run(batch_size=64, fits=True, peak_bytes=640),
        Run(batch_size=95, fits=True, peak_bytes=950),
        Run(batch_size=95, fits=False, peak_bytes=1010),
    ]
    goal = Goal(target_bytes=1000, maximum=4096, tolerance=0.1)

    assert largest(runs) == 64
    assert 64 < next_size(runs, goal) < 95


@settings(max_examples=150)
@given(
    increments=st.lists(st.integers(0, 500), min_size=1, max_size=300),
    start=st.integers(0, 1000),
    target=st.integers(0, 20_000),
    guess=st.integers(1, 2000),
    known_up_to=st.sampled_from([1.0, 2.0]),
    minimum=st.integers(1, 9),
    maximum=st.integers(1, 400),
    multiple=st.integers(1, 9),
)
def test_without_a_tolerance_the_answer_is_exact_on_any_monotone_machine(
    increments, start, target, guess, known_up_to, minimum, maximum, multiple
):
    peaks = list(accumulate(increments, initial=start))

    def peak(size):
        return peaks[min(size, len(peaks)) - 1] + max(0, size - len(peaks)) * 100

    goal = Goal(target_bytes=target, minimum=minimum, maximum=maximum, multiple_of=multiple)
    runs = search(peak, goal, guess=guess, known_up_to=known_up_to)

    allowed = [n for n in range(minimum, maximum + 1) if n % multiple == 0]
    assert largest(runs) == max((n for n in allowed if peak(n) <= target), default=None)
    assert len(set(sizes(runs))) == len(runs)
    assert set(sizes(runs)) <= set(allowed)


@given(
    held=st.integers(0, 10**9),
    each=st.integers(10**3, 10**7),
    answer=st.integers(8, 4096),
    error=st.floats(0.5, 2.0),
    tolerance=st.sampled_from([0.0, 0.1]),
)
def test_a_line_needs_few_runs_and_at_most_two_failures(held, each, answer, error, tolerance):
    target = held + each * answer
    goal = Goal(target_bytes=target, maximum=MAXIMUM, tolerance=tolerance)
    runs = search(line(held, each), goal, guess=round(answer * error), held=held)

    assert (1 - tolerance) * answer - 1 <= largest(runs) <= answer
    assert len(runs) <= 5
    assert failures(runs) <= 2


@given(
    scratch=st.integers(0, 10**6),
    step=st.integers(1, 64),
    power=st.sampled_from([0.8, 1.0, 1.3, 2.0]),
    answer=st.integers(1, 4096),
    error=st.floats(0.3, 3.0),
    known_up_to=st.sampled_from([1.0, 2.0]),
)
def test_a_tolerance_bounds_what_stays_unused_on_curves_of_many_kinds(
    scratch, step, power, answer, error, known_up_to
):
    def peak(size):
        grown = step * math.ceil(size / step)
        return 1000 + max(scratch, 100 * grown) + 100 * grown**power

    target = int(peak(answer))
    goal = Goal(target_bytes=target, maximum=MAXIMUM, tolerance=0.1)
    guess = max(1, round(answer * error))
    runs = search(peak, goal, guess=guess, held=1000, known_up_to=known_up_to)
    found, tried = largest(runs), sizes(runs)

    is_enough = peak(found) >= target - 0.1 * (target - 1000) - 1
    next_one_fails = any(found < n <= 1.18 * found + 1 for n in tried)
    assert is_enough or next_one_fails
    assert len(runs) <= 20


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), answer=st.integers(8, 2000), noise=st.sampled_from([0.02, 0.1]))
def test_noise_costs_little_and_never_an_answer_that_was_not_run(seed, answer, noise):
    chance = random.Random(seed)
    goal = Goal(target_bytes=1000 + 100 * answer, maximum=MAXIMUM, tolerance=0.1)

    def peak(size):
        return 1000 + 100 * size * (1 + chance.uniform(-noise, noise))

    runs = search(peak, goal, guess=answer, held=1000)
    found = largest(runs)

    assert found is None or all(run.fits for run in runs if run.batch_size == found)
    assert found >= (0.9 - 2 * noise) * answer - 2
    assert len(runs) <= 16


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), answer=st.integers(8, 2000), lost=st.sampled_from([0.03, 0.15]))
def test_fragmentation_that_no_peak_shows_is_searched_around(seed, answer, lost):
    """A size can fail although its peak is below the limit: free memory lies in pieces."""
    goal = Goal(target_bytes=1000 + 100 * answer, maximum=MAXIMUM, tolerance=0.1)
    peak = line(1000, 100)

    def fits(size):
        holes = random.Random(seed * 10_007 + size).uniform(0, lost)
        return peak(size) * (1 + holes) <= goal.target_bytes

    runs = search(peak, goal, guess=answer, held=1000, fits=fits)
    found = largest(runs)

    assert all(run.fits == (run.batch_size <= found) for run in runs)
    assert found >= (0.9 - lost) * answer - 2
    assert len(runs) <= 16


@pytest.mark.parametrize("multiple", [1, 8])
def test_the_maximum_ends_the_search(multiple):
    goal = Goal(target_bytes=10**9, minimum=3, maximum=100, multiple_of=multiple)
    runs = search(line(0, 1), goal, guess=10**8)

    assert sizes(runs) == [100 // multiple * multiple]
