"""A limit inside a larger pool is the limit, and what does not fit is known without waiting."""

import os
import subprocess
import sys

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.runner.runner import Runner
from oomdoctor.units import MIB
from oomdoctor.worker.messages import Fit

pytestmark = pytest.mark.tensorflow

LIMIT = 64 * MIB


@pytest.fixture(scope="module")
def spared(spec_of):
    with Runner(spec_of("tower"), limit_bytes=LIMIT, spare_bytes=LIMIT) as runner:
        yield runner


def test_what_waits_for_memory_does_not_fit_and_the_next_worker_is_a_fresh_one(spared):
    assert spared.fit(Fit(16, limit_bytes=LIMIT)).outcome == "fits"
    pid = spared._worker.process.pid
    assert spared.fit(Fit(32, limit_bytes=LIMIT)).outcome == "fits"
    assert spared._worker.process.pid == pid

    trial = spared.fit(Fit(600, limit_bytes=LIMIT))

    assert trial.outcome == "oom"
    assert "waited for memory" in trial.message
    assert not spared.is_started
    assert spared.fit(Fit(250, limit_bytes=LIMIT)).outcome == "fits"
    assert spared._worker.process.pid != pid


def test_the_peak_of_a_step_that_waited_is_what_it_takes_with_more_memory(spared):
    refused = spared.fit(Fit(600, limit_bytes=LIMIT))
    allowed = spared.fit(Fit(600, limit_bytes=2 * LIMIT))

    assert (refused.outcome, allowed.outcome) == ("oom", "fits")
    # Which ops overlap in threads is chance.
    assert refused.peak_bytes == pytest.approx(allowed.peak_bytes, rel=0.3)
    assert refused.peak_bytes > LIMIT


def test_a_smaller_limit_holds_after_a_larger_one_was_exceeded(spared):
    outcomes = [
        spared.fit(Fit(size, limit_bytes=limit)).outcome
        for size, limit in ((600, LIMIT), (32, LIMIT // 2), (300, LIMIT // 2), (32, LIMIT // 2))
    ]

    assert outcomes == ["oom", "fits", "oom", "fits"]


def test_what_is_reserved_is_no_part_of_a_peak(spared, spec_of):
    with Runner(spec_of("tower"), limit_bytes=LIMIT) as plain:
        expected = plain.fit(Fit(64, epochs=3))
    trial = spared.fit(Fit(64, limit_bytes=LIMIT, epochs=3))

    assert trial.peak_bytes == pytest.approx(expected.peak_bytes, rel=0.25)
    # Scalars that TensorFlow keeps from earlier trials are some dozen KiB.
    assert trial.held_bytes == pytest.approx(expected.held_bytes, rel=0.05, abs=200_000)


def test_a_model_that_alone_takes_more_than_the_limit_is_hopeless(spared):
    trial = spared.fit(Fit(4, limit_bytes=MIB))

    assert (trial.outcome, trial.message) == ("oom", "the model alone does not fit")
    assert trial.is_hopeless


def test_a_limit_below_the_pool_holds_where_nothing_can_be_reserved(spec_of):
    """As on a GPU, whose pool is the budget and not the budget less the margin."""
    with Runner(spec_of("tower"), limit_bytes=LIMIT) as runner:
        whole = runner.fit(Fit(200, limit_bytes=LIMIT))
        half = runner.fit(Fit(200, limit_bytes=whole.peak_bytes // 2))

    assert (whole.outcome, half.outcome) == ("fits", "oom")
    assert half.message == "The step took more than the limit."


def test_validation_in_a_way_of_its_own_must_fit_too(spec_of):
    with Runner(spec_of("validates_lavishly"), limit_bytes=LIMIT, spare_bytes=LIMIT) as runner:
        outcomes = [runner.fit(Fit(n, limit_bytes=LIMIT)).outcome for n in (16, 64)]

    assert outcomes == ["fits", "oom"]


GEOMETRY = """
from oomdoctor.worker.devices import FIRST_REGION_BYTES, address_of, take_one_region
MIB = 2**20
regions = take_one_region(128 * MIB)
import tensorflow as tf
from oomdoctor.worker.memory_limit import MemoryLimit
limit = MemoryLimit(regions)
lower = tf.zeros([3 * MIB])
limit_bytes = 50 * MIB + 256
assert limit.set(limit_bytes)
start, size = regions[-1]
assert address_of(limit._reserve) == start + limit_bytes - FIRST_REGION_BYTES
assert limit.reserved_bytes == 128 * MIB - limit_bytes
assert limit.set(limit_bytes) and limit.reserved_bytes == 128 * MIB - limit_bytes
limit.release()
# A reserve that is small against the rest is put at the end as well.
assert limit.set(120 * MIB)
assert address_of(limit._reserve) == start + 120 * MIB - FIRST_REGION_BYTES
limit.release()
assert not limit.set(8 * MIB)
print("as in a pool of that size")

# When an epoch begins every thread may sleep: that is no alarm. In a step it is.
import time
from oomdoctor.worker.fit import NoRoom, _watch
from oomdoctor.worker.messages import Fit
assert limit.set(50 * MIB)
held = tf.raw_ops.Empty(shape=[20, MIB], dtype=tf.uint8)
watch = _watch(limit, Fit(1), time.perf_counter())
watch.on_epoch_begin(0)
time.sleep(2)
assert not limit.was_exceeded
watch.on_train_batch_begin(0)
watch.on_train_batch_end(0)
time.sleep(2)
watch.on_epoch_end(0)
assert not limit.was_exceeded
watch.on_epoch_begin(1)
watch.on_train_batch_begin(0)
time.sleep(2)
try:
    watch.on_train_batch_end(0)
except NoRoom:
    print("only a step waits for memory")
assert limit.was_exceeded and limit.reserved_bytes == 0
"""


def test_the_reserve_lies_where_a_smaller_pool_would_end_and_only_steps_are_watched():
    out = subprocess.run(
        [sys.executable, "-c", GEOMETRY],
        env={**os.environ, **settings_for_the_cpu(2 * LIMIT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "as in a pool of that size" in out.stdout, out.stderr[-2000:]
    assert "only a step waits for memory" in out.stdout, out.stderr[-2000:]
