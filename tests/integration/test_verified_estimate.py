"""An estimate that runs a small step first, against the steps themselves."""

import sys
from pathlib import Path

import pytest

import oomdoctor

sys.path.insert(0, str(Path(__file__).parents[1]))
from steps import run_steps

TESTS = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # TensorFlow's own
]
SOURCE = "verified_models:with_an_unknown_size"
BATCH = 256


@pytest.fixture(scope="module")
def measured():
    folders = [str(TESTS / "integration")]
    (step,) = run_steps({"source": SOURCE, "sys_path": folders, "batch_size": BATCH})
    return step["peak_bytes"]


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(TESTS / "integration")
        return [
            oomdoctor.estimate_memory(SOURCE, batch_size=BATCH, verify=v) for v in (False, True)
        ]


def test_what_was_recorded_takes_the_place_of_what_was_simulated(found, measured):
    simulated, verified = found
    assert simulated.recorded_sizes == ()
    assert verified.recorded_sizes == (2, 4)
    assert simulated.peak_bytes < 0.7 * measured
    assert not verified.unknown_ops
    assert verified.peak_bytes == pytest.approx(measured, rel=0.1)
    assert verified.low_bytes <= measured <= verified.high_bytes


def test_the_rows_of_a_recorded_step_add_up_too(found):
    _, verified = found
    rows = {layer.name: layer.bytes_at_peak for layer in verified.layers}
    assert sum(rows.values()) == verified.peak_bytes
    assert sum(size for _, size in verified.parts) == verified.peak_bytes
    assert rows.get("(outside layers)", 0) < 0.05 * verified.peak_bytes
    assert {"first", "last", "(inputs)", "(optimizer)"} <= set(rows)


def test_a_live_model_is_verified_by_a_copy_and_left_as_it_is():
    import keras

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, name="wide")])
    model.compile("adam", "mse")
    before = [value.copy() for value in model.get_weights()]
    verified = oomdoctor.estimate_memory(model, batch_size=64, verify=True)
    assert verified.recorded_sizes == (2, 4)
    assert "wide" in {layer.name for layer in verified.layers}
    assert not model.optimizer.built
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


def test_a_step_that_cannot_be_run_is_said_and_simulated(monkeypatch):
    monkeypatch.chdir(TESTS / "integration")
    found = oomdoctor.estimate_memory("verified_models:broken_at_run_time", verify=True)
    assert found.recorded_sizes == ()
    assert any("not verified" in note for note in found.notes)
    assert found.peak_bytes > 0
