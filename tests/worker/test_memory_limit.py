"""A limit that ballast makes is the limit, and what does not fit is known without waiting."""

import os
import subprocess
import sys

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.measure.runner import Runner
from oomdoctor.units import MIB

pytestmark = pytest.mark.tensorflow

LIMIT = 64 * MIB


@pytest.fixture(scope="module")
def spared(spec_of):
    with Runner(spec_of("conv"), limit_bytes=LIMIT, spare_bytes=LIMIT) as runner:
        yield runner


def test_what_waits_for_memory_does_not_fit_and_the_worker_goes_on(spared):
    assert spared.run(8).outcome == "fits"
    pid = spared.pid

    trial = spared.run(1800)

    assert trial.outcome == "oom"
    assert "waited for memory" in trial.message
    assert spared.run(8).outcome == "fits"
    assert spared.pid == pid


def test_ballast_is_no_part_of_a_peak(spared, spec_of):
    with Runner(spec_of("conv"), limit_bytes=LIMIT) as plain:
        expected = plain.run(16)
    trial = spared.run(16)

    assert trial.peak_bytes == pytest.approx(expected.peak_bytes, rel=0.05)
    # Scalars that TensorFlow keeps from earlier trials are some dozen KiB.
    assert trial.current_bytes == pytest.approx(expected.current_bytes, rel=0.05, abs=100_000)


def test_one_trial_may_have_another_limit(spared):
    assert spared.run(1000, limit_bytes=LIMIT // 2).outcome == "oom"
    assert spared.run(1000, limit_bytes=2 * LIMIT).outcome == "fits"


def test_a_model_larger_than_the_limit_is_out_of_memory(spec_of):
    with Runner(spec_of("wide"), limit_bytes=MIB * 3, spare_bytes=MIB * 3) as runner:
        assert runner.run(4096, limit_bytes=MIB * 3).outcome == "oom"


def test_no_more_is_held_back_where_free_memory_lies_in_several_chunks(
    spec_of, tmp_path, monkeypatch
):
    """A piece of half the free memory was given the larger chunk whole, and nothing fitted."""
    built = tmp_path / "built"
    built.touch()
    monkeypatch.setenv("BUILT_FILE", str(built))
    spec = spec_of("wider_in_the_next_process")
    with Runner(spec, limit_bytes=LIMIT, spare_bytes=LIMIT) as runner:
        assert [runner.run(size).outcome for size in (16, 256, 1024)] == ["fits", "fits", "oom"]


GEOMETRY = """
from oomdoctor.measure.devices import FIRST_REGION_BYTES, take_one_region
from oomdoctor.measure.names import address_of
MIB = 2**20
regions = take_one_region(128 * MIB)
import tensorflow as tf
from oomdoctor.measure.ballast import Ballast
ballast = Ballast(regions)
lower = tf.zeros([3 * MIB])
limit = 50 * MIB + 256
assert ballast.hold(limit)
(piece,) = ballast._pieces
start, size = regions[-1]
assert address_of(piece) == start + limit - FIRST_REGION_BYTES
assert ballast.held_bytes == 128 * MIB - limit
del piece
ballast.let_go()
# Something in the way: then it lies in pieces, and as much is left.
below = tf.raw_ops.Empty(shape=[40, MIB], dtype=tf.uint8)
in_the_way = tf.raw_ops.Empty(shape=[4, MIB], dtype=tf.uint8)
del below
assert ballast.hold(limit)
assert len(ballast._pieces) > 1
assert 0 <= ballast.held_bytes - (128 * MIB - limit) <= MIB
print("as in a pool of that size")
"""


def test_the_ballast_lies_where_a_smaller_pool_would_end():
    out = subprocess.run(
        [sys.executable, "-c", GEOMETRY],
        env={**os.environ, **settings_for_the_cpu(2 * LIMIT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "as in a pool of that size" in out.stdout, out.stderr[-2000:]


def test_a_forecast_agrees_with_what_is_run_under_the_limit(spec_of):
    with Runner(spec_of("conv"), limit_bytes=LIMIT, spare_bytes=LIMIT) as runner:
        prior = runner.start(LIMIT)
        assert runner.foresee(limit_bytes=LIMIT, lowest=1, highest=4096) is None
        for size in (256, 64):
            runner.run(size, record=True, limit_bytes=2 * LIMIT)
        forecast = runner.foresee(limit_bytes=LIMIT, lowest=1, highest=4096)
        ahead = runner.foresee(limit_bytes=LIMIT, lowest=1, highest=4096, batches_ahead=8)
        runner.close()
        below = runner.run(int(0.93 * forecast)).outcome
        above = runner.run(int(1.07 * forecast)).outcome

    assert (below, above) == ("fits", "oom")
    assert ahead < forecast
    guess = (LIMIT - prior["fixed_bytes"]) / prior["sample_bytes"]
    assert 0.7 < guess / forecast < 1.5  # the estimate knows no holes
