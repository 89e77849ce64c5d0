"""The tuner on machines that are simulated: which sizes it runs and what it concludes."""

import pickle
import time
from dataclasses import replace

import pytest

import oomdoctor.api  # noqa: F401 - it says how values show themselves
from oomdoctor.facts import Tuning
from oomdoctor.tune import tuner
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

    def run(self, size, *, limit_bytes, last=0, alone=True, brief=False, seconds=None):
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


@pytest.mark.parametrize(("hangs_at", "answer"), [(51, 1), (81, 51)])
def test_a_trial_that_is_cut_off_says_nothing_about_memory(hangs_at, answer):
    found = tune(Line(hangs_at=hangs_at), Wanted(budget_bytes=BUDGET))

    assert hangs_at not in sizes(found)
    assert (found.batch_size, found.limited_by) == (answer, "time")


class Clock:
    """Time that passes only when a machine says so."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Timed(Line):
    """A machine that needs a while to start a process, and for each sample of a step."""

    def __init__(self, clock, *, start, sample_seconds, deadline, **line):
        super().__init__(guess=(100 * MIB, 10 * MIB), **line)
        self.clock, self.start, self.sample_seconds = clock, start, sample_seconds
        self.deadline = deadline
        self.is_running = False

    def begin(self):
        self.clock.now += 0 if self.is_running else self.start
        self.is_running = True

    def guess(self, limit_bytes):
        self.begin()
        return super().guess(limit_bytes)

    def run(self, size, *, alone=True, brief=False, seconds=None, **how):
        self.is_running = self.is_running and not (alone and self.limits)
        self.begin()
        step = size * self.sample_seconds
        left = min(seconds, self.deadline - self.clock.now)
        if 2 * step > left:
            self.clock.now += max(0, left)
            self.is_running = False
            self.limits.append(None)
            return Trial(size, "died", timed_out=True)
        self.clock.now += max(2 * step, min(left, (3 if brief else 24) * step))
        return replace(super().run(size, alone=alone, **how), step_seconds=step)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(tuner, "time", clock)
    return clock


def within_time(machine):
    found = tune(machine, Wanted(budget_bytes=BUDGET), deadline=machine.deadline)
    # To start a process takes as long as it takes; a real one is ended at the deadline.
    assert machine.clock.now <= machine.deadline + machine.start
    return found


def test_a_machine_with_time_runs_no_small_sizes(clock):
    machine = Timed(clock, start=6, sample_seconds=0.01, deadline=60)

    assert sizes(within_time(machine)) == [68, 82]


def test_a_machine_that_starts_slowly_runs_small_sizes_first(clock):
    machine = Timed(clock, start=10, sample_seconds=0.001, deadline=20)
    found = within_time(machine)

    assert sizes(found) == [2, 34, 68]
    assert machine.shared == [2, 34, 68]  # no second process, which would take half of the time
    assert (found.batch_size, found.limited_by) == (68, "time")


def test_a_size_whose_steps_would_not_end_in_time_is_not_begun(clock):
    machine = Timed(clock, start=16, sample_seconds=0.03, deadline=20)
    found = within_time(machine)

    # A step of 2 samples takes 0.06 s. There is time for six steps of 21, and for nothing larger.
    assert sizes(found) == [2, 21]
    assert (found.batch_size, found.limited_by) == (21, "time")


def test_a_first_size_that_takes_too_long_leaves_time_for_a_smaller_one(clock):
    machine = Timed(clock, start=6, sample_seconds=0.5, deadline=60)
    found = within_time(machine)

    # 68 samples take 34 s for a step: they are given up after 27 s.
    assert 4 <= found.batch_size < 34
    assert found.limited_by == "time"
    assert set(outcomes(found)) == {"fits"}


def test_no_answer_if_not_even_a_small_size_ends_in_time(clock):
    machine = Timed(clock, start=19, sample_seconds=1, deadline=20)

    assert within_time(machine) == Failed((), out_of_time=True)


def test_a_small_size_that_does_not_fit_leads_on_down(clock):
    machine = Timed(clock, start=10, sample_seconds=0.001, each=500, deadline=30)
    found = within_time(machine)

    assert sizes(found) == [2, 1]
    assert found.batch_size == 1


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
