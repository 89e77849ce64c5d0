"""Models through the public functions and the real command line, with real TensorFlow."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

import oomdoctor
import oomdoctor.report
from oomdoctor.cli import main
from oomdoctor.errors import DoesNotFitError, UsageError
from oomdoctor.model.live import spec_of_model
from oomdoctor.runner.runner import Runner
from oomdoctor.worker.messages import Fit

pytestmark = pytest.mark.tensorflow

SCHEMA = json.loads((Path(oomdoctor.report.__file__).parent / "schema.json").read_text())

MODULE = """
import keras

def small():
    model = keras.Sequential([
        keras.Input((24, 24, 3)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(10),
    ])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "mymodels.py").write_text(MODULE)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    namespace = {"__name__": "mymodels"}
    exec((folder / "mymodels.py").read_text(), namespace)
    return namespace["small"]()


def run(folder, *args):
    """Run the command in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", "oomdoctor", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture
def run_here(folder, monkeypatch, capsys):
    """A function that runs the command in this process, where TensorFlow is imported already."""

    def run(*args):
        monkeypatch.chdir(folder)
        with pytest.raises(SystemExit) as left:
            main(args)
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return SimpleNamespace(returncode=left.value.code or 0, stdout=told.out, stderr=told.err)

    return run


@pytest.fixture(scope="module")
def estimate(model):
    return oomdoctor.estimate_memory(model, batch_size=64)


def test_an_estimate_adds_up_and_knows_its_interval(estimate):
    assert estimate.low_bytes < estimate.peak_bytes < estimate.high_bytes
    assert sum(size for _, size in estimate.parts) == estimate.peak_bytes
    assert sum(layer.bytes_at_peak for layer in estimate.layers) == estimate.peak_bytes
    assert estimate.unknown_ops == ()
    assert "batch size 64 is about" in " ".join(repr(estimate).split())
    assert list(estimate.to_frame().columns) == ["name", "bytes_at_peak", "backward_bytes"]


def test_the_largest_batch_follows_from_the_line(estimate):
    budget = estimate.high_bytes
    assert estimate.largest_batch(budget) == pytest.approx(64, abs=2)
    assert estimate.largest_batch(4 * budget) > 200


def test_the_command_compares_with_a_card(folder, run_here):
    args = ("estimate", "mymodels:small", "--batch-size", "64", "--format", "json")
    large = run(folder, *args, "--vram", "2GiB")
    report = json.loads(large.stdout)
    jsonschema.validate(report, SCHEMA)
    assert (large.returncode, report["verdict"]) == (0, "fits")
    small = run_here(*args, "--vram", "12MiB")
    report = json.loads(small.stdout)
    assert (small.returncode, report["verdict"]) == (1, "does_not_fit")
    fired = {f["remedy"] for f in report["findings"] if f["outcome"] == "fired"}
    assert "reduce_batch" in fired
    assert not fired & {"stream_dataset", "mmap", "fix_leak", "subset"}


@pytest.fixture(scope="module")
def tuned(model):
    return oomdoctor.suggest_batch_size(model, memory="96MiB")


def test_the_suggested_size_was_run_under_the_limit(tuned):
    assert isinstance(tuned, int)
    assert "fits" in [t.outcome for t in tuned.tuning.trials if t.batch_size == tuned]
    assert tuned.peak_bytes <= tuned.tuning.target_bytes < tuned.budget_bytes == 96 * 2**20
    assert "Trials" in repr(tuned)
    assert tuned.to_dict()["batch_size"] == tuned


def test_a_measured_step_lies_within_the_estimate(model, estimate, monkeypatch):
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "1")
    with Runner(spec_of_model(model)) as runner:
        measured = runner.fit(Fit(64, epochs=2))
    # `fit` holds batches that wait beside the one it trains on.
    peak = measured.peak_bytes
    assert estimate.low_bytes <= peak <= estimate.high_bytes + 3 * measured.batch_bytes
    assert peak == pytest.approx(estimate.peak_bytes, rel=0.15)


def test_the_users_model_is_left_alone(model, tuned):
    assert model.optimizer.iterations.numpy() == 0
    assert len(model.optimizer.variables) <= 2 + 2 * len(model.trainable_variables)


def test_nothing_fits_is_an_error_that_says_what_helps(model):
    with pytest.raises(DoesNotFitError, match="Not even a batch size of 1 fits in"):
        oomdoctor.suggest_batch_size(model, memory="1MiB", max_batch_size=8)


def test_tune_on_the_command_line(folder):
    result = run(
        folder, "tune", "mymodels:small", "--vram", "96MiB", "--max-batch-size", "16",
        "--format", "json",
    )  # fmt: skip
    report = json.loads(result.stdout)
    jsonschema.validate(report, SCHEMA)
    assert result.returncode == 0
    assert report["tuning"]["batch_size"] == 16
    assert report["tuning"]["limited_by"] == "max_batch_size"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("estimate", "nowhere:model"), "no module nowhere"),
        (("estimate", "gone.keras"), "does not exist"),
        (("tune", "mymodels:missing"), "missing"),
        (("estimate", "mymodels"), "module:callable"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_sentence(run_here, args, says):
    result = run_here(*args)
    assert result.returncode == 2
    assert says in result.stderr


def test_arguments_are_checked_before_anything_runs(model):
    with pytest.raises(UsageError, match="is not an objective"):
        oomdoctor.suggest_batch_size(model, objective="biggest")
    with pytest.raises(UsageError, match="margin"):
        oomdoctor.suggest_batch_size(model, margin=1.5)
    with pytest.raises(UsageError, match="batch_size is a whole number"):
        oomdoctor.estimate_memory(model, batch_size=0)
