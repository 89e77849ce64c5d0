import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomdoctor.tune.search import find_largest, find_near


class Machine:
    """A machine whose memory is a function of the batch; it remembers what was tried."""

    def __init__(self, peak, limit=math.inf):
        self.peak = peak
        self.limit = limit
        self.tried = []

    def __call__(self, size):
        self.tried.append(size)
        peak = self.peak(size)
        return None if peak > self.limit else peak

    @property
    def ooms(self):
        return sum(self.peak(size) > self.limit for size in self.tried)


def line(fixed, each):
    return lambda size: fixed + each * size


def largest(peak, target, *, first=1, last=5000):
    fitting = [size for size in range(first, last + 1) if peak(size) <= target]
    return max(fitting, default=None)


def test_a_line_takes_four_runs_and_is_proved():
    machine = Machine(line(100, 10))
    found = find_largest(machine, target_bytes=1000, expected=80)
    assert machine.tried == [10, 40, 90, 91]
    assert (found.batch_size, found.is_proved) == (90, True)


def test_without_an_estimate_it_starts_at_the_minimum():
    machine = Machine(line(100, 10))
    assert find_largest(machine, target_bytes=1000).batch_size == 90
    assert machine.tried == [1, 4, 64, 90, 91]


def test_with_a_tolerance_it_stops_when_little_is_left():
    machine = Machine(line(100, 10))
    found = find_largest(machine, target_bytes=1000, expected=80, tolerance=0.03)
    assert machine.tried == [10, 40, 90]
    assert (found.batch_size, found.is_proved) == (90, False)


def test_an_estimate_that_is_far_too_high_costs_one_failure_and_is_forgotten():
    machine = Machine(line(100, 10), limit=1000)
    found = find_largest(machine, target_bytes=1000, expected=3000)
    assert found.batch_size == 90
    assert machine.tried == [375, 46, 69, 90, 91]


def test_nothing_fits():
    machine = Machine(line(2000, 10))
    found = find_largest(machine, target_bytes=1000, expected=64)
    assert found.batch_size is None
    assert found.is_proved
    assert machine.tried[-1] == 1


def test_the_minimum_is_never_undercut_and_the_maximum_never_passed():
    machine = Machine(line(0, 1))
    found = find_largest(machine, target_bytes=10**9, minimum=3, maximum=100, expected=10**8)
    assert found.batch_size == 100
    assert found.is_proved
    assert min(machine.tried) >= 3
    assert max(machine.tried) <= 100


def test_multiples_are_kept():
    machine = Machine(line(100, 10))
    found = find_largest(machine, target_bytes=1000, multiple_of=8, expected=80)
    assert found.batch_size == 88
    assert all(size % 8 == 0 for size in machine.tried)


def test_a_range_without_a_multiple_is_empty():
    machine = Machine(line(0, 1))
    found = find_largest(machine, target_bytes=100, minimum=9, maximum=15, multiple_of=8)
    assert found.batch_size is None
    assert machine.tried == []


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    increments=st.lists(st.integers(0, 500), min_size=1, max_size=300),
    start=st.integers(0, 1000),
    target=st.integers(0, 20_000),
    limit_share=st.sampled_from([1.0, 1.2, math.inf]),
    expected=st.one_of(st.none(), st.integers(1, 2000)),
)
def test_the_answer_is_the_largest_that_fits_for_any_monotone_machine(
    increments, start, target, limit_share, expected
):
    peaks = [start]
    for increment in increments:
        peaks.append(peaks[-1] + increment)

    def peak(size):
        return peaks[min(size, len(peaks)) - 1] + max(0, size - len(peaks)) * 100

    machine = Machine(peak, limit=target * limit_share)
    found = find_largest(machine, target_bytes=target, maximum=400, expected=expected)

    assert found.batch_size == largest(peak, target, last=400)
    assert found.is_proved
    assert len(machine.tried) == len(set(machine.tried))
    assert found.batch_size is None or found.batch_size in machine.tried


@given(
    fixed=st.integers(0, 10**9),
    each=st.integers(1, 10**8),
    answer=st.integers(1, 4096),
    error=st.floats(0.5, 2.0),
)
def test_a_line_needs_at_most_five_runs_and_a_failure(fixed, each, answer, error):
    target = fixed + each * answer
    machine = Machine(line(fixed, each), limit=target)
    found = find_largest(machine, target_bytes=target, expected=max(1, round(answer * error)))
    assert found.batch_size == answer
    assert len(machine.tried) <= 5
    assert machine.ooms <= 1


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), answer=st.integers(4, 2000), noise=st.sampled_from([0.01, 0.02]))
def test_noise_costs_little_and_never_an_answer_that_was_not_run(seed, answer, noise):
    chance = random.Random(seed)
    target = 1000 + 10 * answer

    def peak(size):
        return (1000 + 10 * size) * (1 + chance.uniform(-noise, noise))

    tried = {}

    def run(size):
        tried[size] = int(peak(size))
        return tried[size]

    found = find_largest(run, target_bytes=target, expected=answer)
    assert tried[found.batch_size] <= target
    assert found.batch_size >= 0.9 * answer - 2
    assert len(tried) <= 24


@pytest.mark.parametrize("steps", [7, 64])
def test_steps_are_found_too(steps):
    def peak(size):
        return 1000 * math.ceil(size / steps)

    machine = Machine(peak)
    found = find_largest(machine, target_bytes=5500, expected=30)
    assert found.batch_size == 5 * steps
    assert len(machine.tried) <= 16


def survivor(answer):
    """A machine that survives up to one size; it remembers what was tried."""
    return Machine(line(0, 10), limit=10 * answer)


@pytest.mark.parametrize(
    ("start", "tried"),
    [(90, [90, 91]), (89, [89, 90, 92, 91]), (91, [91, 90]), (93, [93, 92, 90, 91])],
)
def test_a_good_forecast_costs_one_run_and_its_proof(start, tried):
    machine = survivor(90)
    found = find_near(machine, start=start, target_bytes=900)
    assert (found.batch_size, found.is_proved) == (90, True)
    assert machine.tried == tried


def test_a_forecast_that_holds_is_enough_where_little_may_stay_unused():
    machine = survivor(90)
    found = find_near(machine, start=88, target_bytes=900, tolerance=0.025)
    assert machine.tried == [88]
    assert (found.batch_size, found.is_proved) == (88, False)


def test_a_forecast_that_was_far_too_careful_is_not_taken():
    machine = survivor(90)
    found = find_near(machine, start=20, target_bytes=900, tolerance=0.025)
    assert 72 <= found.batch_size <= 90


@given(
    answer=st.integers(0, 500),
    start=st.integers(1, 900),
    minimum=st.integers(1, 20),
    maximum=st.one_of(st.none(), st.integers(1, 600)),
    multiple=st.integers(1, 9),
)
def test_whatever_the_forecast_the_answer_is_the_largest_that_survives(
    answer, start, minimum, maximum, multiple
):
    machine = survivor(answer)
    found = find_near(
        machine,
        start=start,
        target_bytes=10 * answer,
        minimum=minimum,
        maximum=maximum,
        multiple_of=multiple,
    )
    allowed = range(minimum, min(answer, maximum or answer) + 1)
    assert found.batch_size == max((n for n in allowed if n % multiple == 0), default=None)
    assert found.is_proved
    assert len(machine.tried) == len(set(machine.tried))
    assert all(n % multiple == 0 and n >= minimum for n in machine.tried)
    assert all(maximum is None or n <= maximum for n in machine.tried)
