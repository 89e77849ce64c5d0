"""Models that are named are estimated in a process of their own."""

import sys
from pathlib import Path

import psutil
import pytest

from oomdoctor.errors import InputError
from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.estimator import Estimator
from oomdoctor.units import GIB

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
from hostile_archives import write_bomb, write_huge_layer

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def estimator():
    with Estimator(ram_bytes=4 * GIB) as found:
        yield found


def test_one_process_estimates_any_model_at_any_batch_size(estimator, spec_of, monkeypatch):
    monkeypatch.delitem(sys.modules, "measured_models", raising=False)  # of other tests
    small, workload = estimator.estimate(spec_of("conv"), 32)
    large, _ = estimator.estimate(spec_of("conv"), 64)
    alone, _ = estimator.estimate(spec_of("conv"), 64, kind="predict")
    other, about_other = estimator.estimate(spec_of("dense"), 32)
    worker = psutil.Process(estimator._worker.process.pid)

    assert other.peak_bytes < small.peak_bytes < large.peak_bytes
    assert alone.peak_bytes < large.peak_bytes
    assert (small.batch_size, large.batch_size) == (32, 64)
    assert workload != about_other
    assert "measured_models" not in sys.modules
    assert worker.is_running()


def test_what_is_wrong_with_a_model_is_one_sentence_and_the_process_goes_on(estimator, spec_of):
    estimator.estimate(spec_of("dense"), 1)
    worker = estimator._worker.process.pid
    for name, says in (("no_model", "not a Keras model"), ("broken", "the user's own mistake")):
        with pytest.raises(InputError, match=says):
            estimator.estimate(spec_of(name), 1)
    estimator.estimate(spec_of("dense"), 2)

    assert estimator._worker.process.pid == worker


def test_a_model_that_no_machine_can_hold_is_one_sentence(estimator, tmp_path):
    path = tmp_path / "huge.keras"
    write_huge_layer(path)

    with pytest.raises(InputError, match=r"^A variable of 364 TiB is more than this machine can"):
        estimator.estimate(ModelSpec(str(path)), 1)


def test_what_building_a_model_takes_beside_its_weights_is_capped(estimator, tmp_path):
    (tmp_path / "greedy_model.py").write_text(
        "import tensorflow as tf\ndef build():\n    return tf.ones((2**31,))\n"
    )
    spec = ModelSpec("greedy_model:build", sys_path=(str(tmp_path),))

    with pytest.raises(InputError, match=r"takes more RAM than 4\.00 GiB: estimate it on"):
        estimator.estimate(spec, 1)


def test_a_zip_bomb_is_one_sentence(estimator, tmp_path):
    path = tmp_path / "bomb.keras"
    write_bomb(path)

    with pytest.raises(InputError, match="not a model that Keras saved"):
        estimator.estimate(ModelSpec(str(path)), 1)


def test_a_process_that_dies_is_one_sentence_and_the_next_estimate_has_a_fresh_one(
    estimator, spec_of, tmp_path
):
    (tmp_path / "deadly_model.py").write_text("import os\ndef build():\n    os.abort()\n")
    spec = ModelSpec("deadly_model:build", sys_path=(str(tmp_path),))

    with pytest.raises(InputError, match=r"The process that traced deadly_model:build ended"):
        estimator.estimate(spec, 1)
    assert estimator.estimate(spec_of("dense"), 1)[0].peak_bytes > 0


def test_nothing_is_left_of_a_process_that_is_closed(spec_of, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Estimator() as found:
        found.estimate(spec_of("dense"), 1)
        worker = found._worker.process.pid

    assert not psutil.pid_exists(worker)
    assert list(tmp_path.iterdir()) == []
