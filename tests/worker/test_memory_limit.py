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


def test_what_waits_for_memory_does_not_fit_and_the_worker_goes_on(spared):
    assert spared.fit(Fit(16, limit_bytes=LIMIT)).outcome == "fits"
    pid = spared.pid

    trial = spared.fit(Fit(600, limit_bytes=LIMIT))

    assert trial.outcome == "oom"
    assert "waited for memory" in trial.message
    # Where free memory lay in several chunks, more than the reserve was taken: nothing fitted.
    assert spared.fit(Fit(250, limit_bytes=LIMIT)).outcome == "fits"
    assert spared.pid == pid


def test_the_peak_of_a_step_that_waited_is_what_it_takes_with_more_memory(spared):
    refused = spared.fit(Fit(600, limit_bytes=LIMIT))
    allowed = spared.fit(Fit(600, limit_bytes=2 * LIMIT))

    assert (refused.outcome, allowed.outcome) == ("oom", "fits")
    # Which ops overlap in threads is chance.
    assert refused.peak_bytes == pytest.approx(allowed.peak_bytes, rel=0.3)
    assert refused.peak_bytes > LIMIT


def test_a_smaller_limit_holds_after_a_larger_one_was_exceeded(spared):
    pid = spared.pid
    outcomes = [
        spared.fit(Fit(size, limit_bytes=limit)).outcome
        for size, limit in ((600, LIMIT), (32, LIMIT // 2), (300, LIMIT // 2), (32, LIMIT // 2))
    ]

    assert outcomes == ["oom", "fits", "oom", "fits"]
    assert spared.pid == pid


def test_what_is_reserved_is_no_part_of_a_peak(spared, spec_of):
    with Runner(spec_of("tower"), limit_bytes=LIMIT) as plain:
        expected = plain.fit(Fit(64, epochs=3))
    trial = spared.fit(Fit(64, limit_bytes=LIMIT, epochs=3))

    assert trial.peak_bytes == pytest.approx(expected.peak_bytes, rel=0.25)
    # Scalars that TensorFlow keeps from earlier trials are some dozen KiB.
    assert trial.held_bytes == pytest.approx(expected.held_bytes, rel=0.05, abs=200_000)


def test_a_worker_in_which_the_limit_cannot_be_set_is_replaced(spared):
    """Weights of 1 MiB never leave as much free, in a fresh process no more than in a worn one."""
    worn = spared.pid
    trial = spared.fit(Fit(4, limit_bytes=MIB))

    assert (trial.outcome, trial.message) == ("oom", "the model alone does not fit")
    assert spared.pid != worn


@pytest.mark.slow
def test_a_reserve_that_finds_no_place_in_one_piece_is_no_failure_of_the_step(spec_of):
    """TensorFlow logs it as an error, and the step was cut off five seconds later as one."""
    with Runner(spec_of("slow_beside_a_block"), limit_bytes=LIMIT, spare_bytes=LIMIT) as runner:
        assert runner.fit(Fit(4, limit_bytes=LIMIT)).outcome == "fits"


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
(piece,) = limit._pieces
start, size = regions[-1]
assert address_of(piece) == start + limit_bytes - FIRST_REGION_BYTES
assert limit.reserved_bytes == 128 * MIB - limit_bytes
del piece
limit.release()
# Something in the way: then it lies in pieces, and as much is left.
below = tf.raw_ops.Empty(shape=[40, MIB], dtype=tf.uint8)
in_the_way = tf.raw_ops.Empty(shape=[4, MIB], dtype=tf.uint8)
del below
assert limit.set(limit_bytes)
assert len(limit._pieces) > 1
assert 0 <= limit.reserved_bytes - (128 * MIB - limit_bytes) <= MIB
limit.release()
del in_the_way
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
