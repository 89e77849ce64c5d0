import pickle

import pytest

from oomdoctor.facts import Tuning
from oomdoctor.measure.spec import Trial
from oomdoctor.tune.batch_size import BatchSize
from oomdoctor.tune.tuner import tune

MIB = 2**20


def machine(*, fixed, each, limit, seconds=lambda size: 0.1):
    """A device with a line of memory that fails above its limit."""

    def run(batch_size):
        peak = fixed + each * batch_size
        if peak > limit:
            return Trial(batch_size=batch_size, outcome="oom", seconds=10.0)
        return Trial(
            batch_size=batch_size,
            outcome="fits",
            peak_bytes=peak,
            seconds=1.0,
            step_seconds=seconds(batch_size),
        )

    return run


def test_the_margin_stays_free_and_nothing_fails_on_the_way():
    found = tune(machine(fixed=100 * MIB, each=10 * MIB, limit=1000 * MIB), budget_bytes=1000 * MIB)
    assert [trial.batch_size for trial in found.trials] == [8, 32, 85]
    assert found.batch_size == 85
    assert found.peak_bytes <= found.target_bytes == 950 * MIB
    assert all(trial.outcome == "fits" for trial in found.trials)


def test_without_a_margin_the_maximum_is_exact_and_proved():
    found = tune(
        machine(fixed=100 * MIB, each=10 * MIB, limit=1000 * MIB),
        budget_bytes=1000 * MIB,
        margin=0,
    )
    assert (found.batch_size, found.is_proved) == (90, True)
    assert [trial.outcome for trial in found.trials].count("oom") == 1


def test_nothing_fits_returns_what_was_tried():
    trials = tune(machine(fixed=100, each=10, limit=50), budget_bytes=50)
    assert not isinstance(trials, Tuning)
    assert trials[-1].batch_size == 1


def test_a_maximum_is_named_as_what_limits():
    run = machine(fixed=0, each=MIB, limit=1000 * MIB)
    found = tune(run, budget_bytes=1000 * MIB, maximum=100)
    assert (found.batch_size, found.limited_by) == (100, "max_batch_size")


def test_the_fastest_is_the_smallest_that_is_as_fast():
    # From 32 on, a step takes time in proportion to its batch: nothing is gained.
    run = machine(fixed=0, each=MIB, limit=1000 * MIB, seconds=lambda size: max(32, size) / 1000)
    found = tune(run, budget_bytes=1000 * MIB, objective="fastest")
    assert (found.batch_size, found.limited_by) == (32, "speed")


def test_each_trial_is_told_as_it_ends():
    told = []
    tune(machine(fixed=0, each=MIB, limit=99 * MIB), budget_bytes=99 * MIB, watch=told.append)
    assert [trial.batch_size for trial in told][:2] == [8, 32]


@pytest.fixture
def size():
    found = tune(machine(fixed=100 * MIB, each=10 * MIB, limit=1000 * MIB), budget_bytes=1000 * MIB)
    return BatchSize(found)


def test_the_answer_is_an_int_in_every_way(size):
    assert size == 85
    assert isinstance(size, int)
    assert f"{size}" == str(size) == "85"
    assert size // 2 == 42
    assert list(range(100))[size] == 85
    assert {85: "found"}[size] == "found"


def test_the_answer_explains_itself(size):
    assert size.peak_bytes == 950 * MIB
    assert size.limited_by == "memory"
    assert size.accumulation_steps(256) == 4
    assert pickle.loads(pickle.dumps(size)) == size
