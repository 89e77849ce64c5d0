import pickle

import pytest

import oomdoctor.api  # noqa: F401 - it says how values show themselves
from oomdoctor.facts import Tuning
from oomdoctor.measure.spec import Trial
from oomdoctor.tune.batch_size import BatchSize
from oomdoctor.tune.tuner import Failed, Wanted, tune

MIB = 2**20


class Line:
    """A device whose memory is a line and whose forecast may err."""

    def __init__(
        self,
        *,
        fixed,
        each,
        forecasts=True,
        error=1.0,
        device="CPU:0",
        prior=None,
        seconds=None,
        sample=0,
        dies_above=10**9,
    ):
        self.fixed, self.each = fixed * MIB, each * MIB
        self.forecasts, self.error, self.device = forecasts, error, device
        self.seconds = seconds or (lambda size: 0.1)
        self._prior = prior
        self.lasts, self.ahead = [], []
        self.sample, self.dies_above = sample * MIB, dies_above

    def prior(self, limit_bytes):
        return self._prior

    def record(self, batch_size, *, once=False):
        return self._trial(batch_size, 10**12)

    def foresee(self, *, limit_bytes, lowest, highest, batches_ahead):
        if not self.forecasts:
            return None
        size = int((limit_bytes - self.fixed) / self.each * self.error)
        return None if size < lowest else min(size, highest)

    def run(self, batch_size, *, limit_bytes, batches_ahead=0, last=0):
        self.lasts.append(last)
        self.ahead.append(batches_ahead)
        if batch_size > self.dies_above:
            return Trial(batch_size=batch_size, outcome="died", message="killed (SIGKILL)")
        return self._trial(batch_size, limit_bytes)

    def measure(self, batch_size):
        return self._trial(batch_size, 10**12)

    def _trial(self, batch_size, limit):
        peak = int(self.fixed + self.each * batch_size)
        if peak > limit:
            return Trial(batch_size=batch_size, outcome="oom", seconds=1.0, device=self.device)
        return Trial(
            batch_size=batch_size,
            outcome="fits",
            peak_bytes=peak,
            current_bytes=self.fixed + self.sample * batch_size,
            batch_bytes=self.sample * batch_size,
            step_seconds=self.seconds(batch_size),
            device=self.device,
        )


def sizes(found):
    return [trial.batch_size for trial in found.trials]


def outcomes(found):
    return [trial.outcome for trial in found.trials]


def test_two_probes_and_one_run_under_the_limit_are_enough():
    found = tune(Line(fixed=100, each=10), Wanted(budget_bytes=1000 * MIB))
    assert sizes(found) == [64, 4, 86]
    assert [trial.is_probe for trial in found.trials] == [True, True, False]
    # Of the 900 MiB that batches can take, a quarter of 5 % stays free.
    assert found.target_bytes == pytest.approx((1000 - 11.25) * MIB)
    assert set(outcomes(found)) == {"fits"}


def test_the_step_itself_says_where_to_look_first():
    prior = {"fixed_bytes": 0, "sample_bytes": 5 * MIB}
    found = tune(Line(fixed=100, each=10, prior=prior), Wanted(budget_bytes=1000 * MIB))
    assert sizes(found) == [192, 12, 86]


def test_a_probe_does_not_fill_the_memory_that_everything_shares():
    prior = {"fixed_bytes": 100 * MIB, "sample_bytes": 10 * MIB}
    wanted = Wanted(budget_bytes=1000 * MIB, shares_memory=True)
    assert sizes(tune(Line(fixed=100, each=10, prior=prior), wanted))[0] == 43
    tiny = {"fixed_bytes": 0, "sample_bytes": 1}
    found = tune(Line(fixed=0, each=1e-4, prior=tiny), Wanted(budget_bytes=1000 * MIB))
    assert sizes(found)[0] == 2**20


def test_without_a_margin_the_maximum_is_exact_and_proved():
    found = tune(Line(fixed=100, each=10), Wanted(budget_bytes=1000 * MIB, margin=0))
    assert (found.batch_size, found.is_proved) == (90, True)
    assert sizes(found) == [64, 4, 90, 91]
    assert outcomes(found).count("oom") == 1
    assert "a larger batch does not fit" in repr(found)


@pytest.mark.parametrize("error", [0.97, 0.99, 1.01, 1.03])
def test_a_forecast_that_errs_is_put_right(error):
    exact = tune(Line(fixed=100, each=10, error=error), Wanted(budget_bytes=1000 * MIB, margin=0))
    near = tune(Line(fixed=100, each=10, error=error), Wanted(budget_bytes=1000 * MIB))
    assert (exact.batch_size, exact.is_proved) == (90, True)
    assert 82 <= near.batch_size <= 88
    assert len(near.trials) <= 5


def test_a_forecast_far_beyond_what_was_recorded_is_made_again():
    found = tune(Line(fixed=10, each=1), Wanted(budget_bytes=1000 * MIB))
    assert sizes(found)[:3] == [64, 4, 952]
    assert found.batch_size == 952


def test_where_nothing_can_be_foreseen_a_line_through_peaks_is_followed():
    device = Line(fixed=100, each=10, forecasts=False, device="GPU:0")
    found = tune(device, Wanted(budget_bytes=1000 * MIB, margin=0))
    assert (found.batch_size, found.is_proved) == (90, True)


def test_nothing_fits_returns_what_was_tried():
    found = tune(Line(fixed=100, each=10), Wanted(budget_bytes=50 * MIB))
    assert isinstance(found, Failed)
    assert found.trials[-1].batch_size == 1
    assert found.trials[-1].outcome == "oom"


def test_a_maximum_is_named_as_what_limits():
    found = tune(Line(fixed=0, each=1), Wanted(budget_bytes=1000 * MIB, maximum=100))
    assert (found.batch_size, found.limited_by) == (100, "max_batch_size")


def test_host_ram_is_named_as_what_limits():
    # Each sample of 5 MiB lies in RAM four times, beside 600 MiB of TensorFlow.
    device = Line(fixed=0, each=1, sample=5)
    found = tune(device, Wanted(budget_bytes=1000 * MIB, host_bytes=2600 * MIB))
    assert (found.batch_size, found.limited_by) == (100, "host RAM")


def test_a_process_that_the_kernel_ends_ran_out_of_host_ram():
    device = Line(fixed=0, each=1, dies_above=100)
    found = tune(device, Wanted(budget_bytes=1000 * MIB, margin=0))
    assert (found.batch_size, found.limited_by) == (100, "host RAM")


def test_no_batch_is_larger_than_the_data():
    found = tune(Line(fixed=0, each=1), Wanted(budget_bytes=1000 * MIB, samples=77))
    assert (found.batch_size, found.limited_by) == (77, "samples")


def test_multiples_are_kept():
    found = tune(Line(fixed=100, each=10), Wanted(budget_bytes=1000 * MIB, multiple_of=16))
    assert found.batch_size == 80
    assert all(size % 16 == 0 for size in sizes(found))


def test_what_lies_beside_the_step_is_left_free():
    found = tune(
        Line(fixed=100, each=10),
        Wanted(budget_bytes=1000 * MIB, reserved_bytes=300 * MIB, margin=0),
    )
    assert found.batch_size == 60


def test_a_last_batch_of_fewer_samples_is_run_too():
    device = Line(fixed=100, each=10)
    tune(device, Wanted(budget_bytes=1000 * MIB, samples=200))
    assert device.lasts == [200 % 86]


def test_batches_that_wait_count_only_where_they_lie_in_the_same_memory():
    device = Line(fixed=100, each=10)
    tune(device, Wanted(budget_bytes=1000 * MIB))
    tune(device, Wanted(budget_bytes=1000 * MIB, shares_memory=True))
    tune(device, Wanted(budget_bytes=1000 * MIB, shares_memory=True, margin=0))
    assert device.ahead == [0, 3, 0, 0]


def test_the_fastest_is_the_smallest_that_is_as_fast():
    # From 32 on, a step takes time in proportion to its batch: nothing is gained.
    device = Line(fixed=0, each=1, seconds=lambda size: max(32, size) / 1000)
    found = tune(device, Wanted(budget_bytes=1024 * MIB, margin=0, objective="fastest"))
    assert (found.batch_size, found.limited_by) == (32, "speed")
    curve = [t.batch_size for t in found.trials if t.samples_per_second and not t.is_probe]
    assert {1024, 512, 256, 128, 64, 32, 16} <= set(curve)


def test_each_trial_is_told_as_it_ends():
    told = []
    tune(Line(fixed=0, each=1), Wanted(budget_bytes=99 * MIB), told.append)
    assert [trial.batch_size for trial in told][:2] == [64, 4]


@pytest.fixture
def size():
    return BatchSize(tune(Line(fixed=100, each=10), Wanted(budget_bytes=1000 * MIB)))


def test_the_answer_is_an_int_in_every_way(size):
    assert isinstance(size.tuning, Tuning)
    assert size == 86
    assert isinstance(size, int)
    assert f"{size}" == str(size) == "86"
    assert size // 2 == 43
    assert list(range(100))[size] == 86
    assert {86: "found"}[size] == "found"


def test_the_answer_explains_itself(size):
    assert "would not leave the margin free" in repr(size)
    assert size.peak_bytes == 960 * MIB
    assert size.limited_by == "memory"
    assert size.accumulation_steps(256) == 3
    assert pickle.loads(pickle.dumps(size)) == size
