"""The tuner on machines that are simulated: which sizes it runs and what it concludes."""

import pickle
import time
from dataclasses import replace

import pytest

import oomdoctor.api  # noqa: F401 - it says how values show themselves
from oomdoctor.facts import Tuning
from oomdoctor.tune.batch_size import BatchSize
from oomdoctor.tune.tuner import MAX_TRIALS, Failed, Wanted, tune
from oomdoctor.worker.messages import Guessed, Trial

MIB = 2**20
BUDGET = 1000 * MIB


class Line:
    """A machine whose memory is a line."""

    def __init__(
        self,
        *,
        fixed=100,
        each=10,
        guess=None,
        sample=0,
        seconds=lambda size: 0.1,
        killed_above=10**9,
        hangs_at=None,
    ):
        self.fixed, self.each, self.sample = fixed * MIB, each * MIB, sample * MIB
        self.guessed = Guessed(*guess) if guess else Guessed()
        self.seconds = seconds
        self.killed_above, self.hangs_at = killed_above, hangs_at
        self.limits, self.lasts, self.shared = [], [], []

    def guess(self, limit_bytes):
        return self.guessed

    def run(self, size, *, limit_bytes, last=0, alone=True):
        self.limits.append(limit_bytes)
        self.lasts.append(last)
        if not alone:
            self.shared.append(size)
        if size == self.hangs_at:
            return Trial(size, "died", timed_out=True)
        if size > self.killed_above:
            return Trial(size, "died", was_killed=True)
        peak = int(self.fixed + self.each * size)
        return Trial(
            size,
            "fits" if peak <= limit_bytes else "oom",
            peak_bytes=peak,
            held_bytes=self.fixed,
            batch_bytes=self.sample * size,
            step_seconds=self.seconds(size),
            device="CPU:0",
            notes=("What was assumed.",),
        )


def sizes(found):
    return [trial.batch_size for trial in found.trials]


def outcomes(found):
    return [trial.outcome for trial in found.trials]


def test_two_runs_are_enough():
    machine = Line(guess=(100 * MIB, 10 * MIB))
    found = tune(machine, Wanted(budget_bytes=BUDGET))

    # 5 % of the 900 MiB that batches can take stay free, which leaves room for 85; a fifth less is
    # run first.
    assert sizes(found) == [68, 82]
    assert outcomes(found) == ["fits"] * 2
    assert machine.limits == [955 * MIB] * 2
    assert machine.shared == []
    assert found.target_bytes == 955 * MIB
    assert found.peak_bytes == 920 * MIB
    assert (found.batch_size, found.limited_by) == (82, "memory")
    assert (found.device, found.notes) == ("CPU:0", ("What was assumed.",))


def test_without_a_guess_it_begins_with_a_common_size():
    found = tune(Line(), Wanted(budget_bytes=BUDGET))

    assert sizes(found)[0] == 51
    assert found.batch_size == 81


def test_without_a_margin_the_next_size_was_run_and_fails():
    found = tune(Line(), Wanted(budget_bytes=BUDGET, margin=0))

    assert found.batch_size == 90
    assert found.target_bytes == BUDGET
    ran = dict(zip(sizes(found), outcomes(found), strict=True))
    assert (ran[90], ran[91]) == ("fits", "oom")


def test_a_size_that_fails_leads_to_a_smaller_one():
    found = tune(Line(guess=(100 * MIB, 7 * MIB)), Wanted(budget_bytes=BUDGET))

    assert outcomes(found)[0] == "oom"
    failed = min(trial.batch_size for trial in found.trials if trial.outcome == "oom")
    assert 0.85 * 85 <= found.batch_size < failed


def test_a_machine_on_which_chance_decides_ends_too():
    class Chance(Line):
        def run(self, size, **how):
            trial = super().run(size, **how)
            fits = (size * 2654435761) % 3 != 0
            return Trial(size, "fits" if fits else "oom", peak_bytes=trial.peak_bytes)

    for margin in (0.05, 0.0):
        found = tune(Chance(each=1), Wanted(budget_bytes=BUDGET, margin=margin))
        assert len(found.trials) <= MAX_TRIALS


def test_a_guess_of_nonsense_is_put_right():
    for guess in ((0, 1), (10**12, 10**6), (0, 10**12)):
        found = tune(Line(guess=guess), Wanted(budget_bytes=BUDGET))
        assert 70 <= found.batch_size <= 85
        assert len(found.trials) <= 8


def test_nothing_fits_returns_what_was_tried():
    found = tune(Line(), Wanted(budget_bytes=50 * MIB))

    assert isinstance(found, Failed)
    assert not found.out_of_time
    assert (sizes(found)[-1], outcomes(found)[-1]) == (1, "oom")


def test_the_smallest_size_worth_having_is_not_undercut():
    found = tune(Line(), Wanted(budget_bytes=BUDGET, minimum=200))

    assert isinstance(found, Failed)
    assert sizes(found) == [200]


def test_no_time_at_all_runs_nothing():
    found = tune(Line(), Wanted(budget_bytes=BUDGET), deadline=time.monotonic() - 1)

    assert found == Failed((), out_of_time=True)


def test_when_time_is_up_the_largest_size_that_was_run_is_the_answer():
    class Slow(Line):
        def run(self, size, **how):
            time.sleep(0.2)
            return super().run(size, **how)

    found = tune(Slow(), Wanted(budget_bytes=BUDGET), deadline=time.monotonic() + 0.1)

    assert sizes(found) == [51]
    assert (found.batch_size, found.limited_by) == (51, "time")


@pytest.mark.parametrize(("hangs_at", "answer"), [(51, None), (81, 51)])
def test_a_trial_that_is_cut_off_says_nothing_about_memory(hangs_at, answer):
    found = tune(Line(hangs_at=hangs_at), Wanted(budget_bytes=BUDGET))

    assert hangs_at not in sizes(found)
    if answer is None:
        assert found == Failed((), out_of_time=True)
    else:
        assert (found.batch_size, found.limited_by) == (answer, "time")


def test_a_maximum_is_named_as_what_limits():
    found = tune(Line(fixed=0, each=1), Wanted(budget_bytes=BUDGET, maximum=100))

    assert (found.batch_size, found.limited_by) == (100, "max_batch_size")


def test_by_default_no_batch_is_larger_than_8192():
    tiny = Line(fixed=0, each=1e-3, guess=(0, 1000))
    found = tune(tiny, Wanted(budget_bytes=BUDGET))
    assert (found.batch_size, found.limited_by) == (8192, "default_cap")
    more = tune(tiny, Wanted(budget_bytes=BUDGET, maximum=20_000))
    assert (more.batch_size, more.limited_by) == (20_000, "max_batch_size")
    enough = tune(tiny, Wanted(budget_bytes=BUDGET, samples=60_000))
    assert (enough.batch_size, enough.limited_by) == (60_000, "samples")
    multiple = tune(tiny, Wanted(budget_bytes=BUDGET, multiple_of=3000))
    assert (multiple.batch_size, multiple.limited_by) == (6000, "default_cap")


def test_no_batch_is_larger_than_the_data():
    found = tune(Line(fixed=0, each=1), Wanted(budget_bytes=BUDGET, samples=77))

    assert (found.batch_size, found.limited_by) == (77, "samples")


def test_a_last_batch_of_fewer_samples_is_part_of_the_last_trial():
    machine = Line()
    found = tune(machine, Wanted(budget_bytes=BUDGET, samples=200))

    assert machine.lasts[-1] == 200 % found.batch_size


def test_host_ram_is_named_as_what_limits():
    # Each sample of 5 MiB lies in RAM four times, beside 600 MiB of TensorFlow.
    machine = Line(fixed=0, each=1, sample=5)
    found = tune(machine, Wanted(budget_bytes=BUDGET, host_bytes=2600 * MIB))

    assert (found.batch_size, found.limited_by) == (100, "host RAM")


def test_a_process_that_the_kernel_ends_ran_out_of_host_ram():
    machine = Line(fixed=0, each=1, killed_above=100)
    found = tune(machine, Wanted(budget_bytes=BUDGET, margin=0))

    assert (found.batch_size, found.limited_by) == (100, "host RAM")


def test_a_single_step_that_took_more_does_not_end_the_search():
    class Busy(Line):
        def run(self, size, **how):
            trial = super().run(size, **how)
            usual = trial.peak_bytes
            high = min(int(1.3 * usual), how["limit_bytes"])
            return replace(trial, peak_bytes=high, step_peaks=(usual, usual, high, usual))

    found = tune(Busy(), Wanted(budget_bytes=BUDGET))

    assert found.batch_size == tune(Line(), Wanted(budget_bytes=BUDGET)).batch_size


def test_multiples_are_kept():
    found = tune(Line(), Wanted(budget_bytes=BUDGET, multiple_of=16))

    assert found.batch_size in (64, 80)
    assert all(size % 16 == 0 for size in sizes(found))


def test_what_lies_beside_the_step_is_left_free():
    wanted = Wanted(budget_bytes=BUDGET, reserved_bytes=300 * MIB, margin=0)

    assert tune(Line(), wanted).batch_size == 60


def test_the_fastest_is_the_smallest_that_is_as_fast():
    # From 32 on, a step takes time in proportion to its batch: nothing is gained.
    machine = Line(fixed=0, each=1, seconds=lambda size: max(32, size) / 1000)
    found = tune(machine, Wanted(budget_bytes=1024 * MIB, margin=0, objective="fastest"))

    assert (found.batch_size, found.limited_by) == (32, "speed")
    curve = [trial.batch_size for trial in found.trials if trial.samples_per_second]
    assert {1024, 512, 256, 128, 64, 32, 16} <= set(curve)
    assert machine.shared == [512, 256, 128, 64, 32, 16]


def test_the_fastest_may_be_the_largest():
    machine = Line(seconds=lambda size: 1.0)
    found = tune(machine, Wanted(budget_bytes=BUDGET, objective="fastest"))

    assert (found.batch_size, found.limited_by) == (81, "memory")


def test_each_trial_is_told_as_it_ends():
    told = []
    found = tune(Line(), Wanted(budget_bytes=BUDGET), watch=told.append)

    assert tuple(told) == found.trials


@pytest.fixture
def size():
    return BatchSize(tune(Line(), Wanted(budget_bytes=BUDGET)))


def test_the_answer_is_an_int_in_every_way(size):
    assert isinstance(size.tuning, Tuning)
    assert size == 81
    assert isinstance(size, int)
    assert f"{size}" == str(size) == "81"
    assert size // 2 == 40
    assert list(range(100))[size] == 81
    assert {81: "found"}[size] == "found"


def test_the_answer_explains_itself(size):
    assert "81" in repr(size)
    assert size.peak_bytes == 910 * MIB
    assert size.limited_by == "memory"
    assert size.accumulation_steps(256) == 4
    assert pickle.loads(pickle.dumps(size)) == size
