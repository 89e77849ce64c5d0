"""Estimates for a card: XLA's program with the real compiler, and what stands in for it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

import oomdoctor
import oomdoctor.report
from oomdoctor.cli import main
from oomdoctor.errors import DoesNotFitError

pytestmark = pytest.mark.tensorflow

SCHEMA = json.loads((Path(oomdoctor.report.__file__).parent / "schema.json").read_text())
HIDDEN = ("oomdoctor.xla.plugin.MODULE", "jax_plugins.no_such_plugin")

MODULE = """
import keras
import tensorflow as tf

def _compiled(*layers, **options):
    model = keras.Sequential([*layers, keras.layers.Dense(10, name="logits")])
    model.compile("adam", "mse", **options)
    return model

def small(**options):
    conv = keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="conv")
    pool = keras.layers.GlobalAveragePooling2D()
    return _compiled(keras.Input((24, 24, 3)), conv, pool, **options)

def without_xla():
    return small(jit_compile=False)

def recurrent():
    return _compiled(keras.Input((12, 8)), keras.layers.LSTM(16, name="memory"))

class FromPython(keras.layers.Layer):
    def call(self, x):
        found = tf.py_function(lambda y: y, [x], tf.float32)
        found.set_shape(x.shape)
        return found

    def compute_output_shape(self, shape):
        return shape

def in_python():
    return _compiled(keras.Input((8,)), FromPython())

def of_words(**options):
    words = keras.Input((4,), dtype="string")
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], name="lookup")
    x = keras.layers.Embedding(4, 8)(lookup(words))
    model = keras.Model(words, keras.layers.Dense(1)(x))
    model.compile("adam", "mse", **options)
    return model

def of_words_forced():
    return of_words(jit_compile=True)
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Compilations of these tests alone, compiled once each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "cardmodels.py").write_text(MODULE)
    return folder


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """A function that runs the command; the model is built and compiled in other processes."""

    def run(*args):
        monkeypatch.chdir(folder)
        with pytest.raises(SystemExit) as left:
            main(args)
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return SimpleNamespace(code=left.value.code or 0, out=told.out, err=told.err)

    return run


@pytest.fixture
def estimated(run):
    """A function that returns the estimate of a model as JSON."""

    def estimated(model, *args):
        told = run("estimate", f"cardmodels:{model}", "--format", "json", *args)
        report = json.loads(told.out)
        jsonschema.validate(report, SCHEMA)
        return report["estimate"]

    return estimated


def test_on_a_card_it_is_the_program_that_xla_compiles_for_it(run, estimated):
    found = estimated("small", "--machine", "colab-t4")

    assert (found["program"], found["device"], found["origin"]) == ("xla", "Tesla T4", "compiled")
    assert "jit_compile" in found["reason"]
    assert sum(found["parts"].values()) == found["peak_bytes"]
    assert sum(layer["bytes_at_peak"] for layer in found["layers"]) == found["peak_bytes"]
    assert "conv" in {layer["name"] for layer in found["layers"]}
    allowed = found["allowances"]
    assert allowed.keys() == {"cuDNN's scratch", "the next batch"}
    assert allowed["the next batch"] == 32 * (24 * 24 * 3 + 10) * 4
    assert found["low_bytes"] == found["peak_bytes"]
    assert found["high_bytes"] > found["peak_bytes"] + sum(allowed.values())
    assert found["other_program"]["program"] == "executor"
    told = " ".join(run("estimate", "cardmodels:small", "--machine", "colab-t4").out.split())
    assert "XLA, compiled for the Tesla T4. On a GPU Keras compiles the step with XLA" in told
    assert "+ cuDNN's scratch, at most" in told


def test_xla_can_be_turned_off_by_the_user_or_the_model(estimated):
    off = estimated("small", "--machine", "colab-t4", "--jit", "off")
    assert (off["program"], off["device"], off["origin"]) == ("executor", None, "estimated")
    assert off["reason"] == "XLA was turned off with --jit off."
    own = estimated("without_xla", "--machine", "colab-t4")
    assert own["reason"] == "The model was compiled with jit_compile=False."
    assert own["peak_bytes"] == off["peak_bytes"]


def test_without_a_card_nothing_is_compiled(estimated):
    found = estimated("small", "--machine", "colab-cpu")

    assert (found["program"], found["reason"]) == ("executor", None)


def test_a_size_alone_takes_the_nearest_card_and_says_so(estimated):
    found = estimated("small", "--vram", "6GiB")

    assert found["device"] == "NVIDIA GeForce RTX 3060 Laptop GPU"
    assert "the nearest class to 6.00 GiB" in found["notes"][0]


def test_a_layer_that_runs_on_cudnn_is_the_reason_for_the_executor(estimated):
    found = estimated("recurrent", "--machine", "colab-t4")

    assert found["program"] == "executor"
    assert "memory runs on cuDNN" in found["reason"]
    assert found["notes"] == []


def test_a_missing_compiler_is_one_note_and_the_estimate_without_it(run, estimated, monkeypatch):
    monkeypatch.setattr(*HIDDEN)
    found = estimated("small", "--machine", "colab-t4")

    assert (found["program"], found["origin"]) == ("executor", "estimated")
    assert "pip install 'oomdoctor[xla]'" in found["notes"][0]
    assert "without XLA" in found["notes"][1]
    told = run("estimate", "cardmodels:small", "--machine", "colab-t4")
    assert "TensorFlow's executor instead of XLA." in told.out


def test_what_xla_cannot_compile_is_one_note_and_the_estimate_without_it(estimated):
    found = estimated("in_python", "--machine", "colab-t4")

    assert found["program"] == "executor"
    assert "XLA cannot compile this step" in found["notes"][0]
    assert "EagerPyFunc" in found["notes"][0]


@pytest.mark.parametrize("model", ["of_words", "of_words_forced"])
def test_a_lookup_of_strings_is_one_sentence_and_the_estimate_without_xla(estimated, model):
    found = estimated(model, "--machine", "colab-t4")

    assert (found["program"], found["device"]) == ("executor", None)
    why = " ".join([found["reason"], *found["notes"]])
    assert "lookup (StringLookup) does not support XLA" in why


def test_a_peak_is_compared_with_that_of_the_same_program_and_card(run, folder, tmp_path):
    file = str(tmp_path / "base.json")
    estimate = ("estimate", "cardmodels:small", "--baseline", file)
    run(*estimate, "--machine", "colab-t4", "--update-baseline")
    (peak,) = json.loads(Path(file).read_text())["peaks"]
    assert (peak["program"], peak["device"]) == ("xla", "Tesla T4")

    same = json.loads(run(*estimate, "--machine", "colab-t4", "--format", "json").out)
    assert same["growth"]["growth_bytes"] == 0
    other = json.loads(run(*estimate, "--vram", "6GiB", "--format", "json").out)
    assert other["growth"] is None
    assert "batch 32 for Tesla T4, not for NVIDIA GeForce RTX 3060 Laptop" in other["notes"][0]
    run(*estimate, "--vram", "6GiB", "--update-baseline")
    assert len(json.loads(Path(file).read_text())["peaks"]) == 2


def test_the_gate_compiles_for_each_card(run, folder):
    (folder / "oomdoctor.toml").write_text(
        'machine = ["colab-t4", "rtx3060-laptop"]\n[[models]]\nmodel = "cardmodels:small"\n'
    )
    try:
        told = json.loads(run("check", "--format", "json").out)
    finally:
        (folder / "oomdoctor.toml").unlink()

    jsonschema.validate(told, SCHEMA)
    devices = [part["estimate"]["device"] for part in told["reports"]]
    assert devices == ["Tesla T4", "NVIDIA GeForce RTX 3060 Laptop GPU"]


def test_the_gate_says_once_that_the_compiler_is_missing(run, folder, monkeypatch):
    monkeypatch.setattr(*HIDDEN)
    (folder / "oomdoctor.toml").write_text(
        'machine = ["t4", "colab-t4"]\n[[models]]\nmodel = "cardmodels:small"\n'
    )
    try:
        told = " ".join(run("check").out.split())
    finally:
        (folder / "oomdoctor.toml").unlink()

    assert told.count("pip install 'oomdoctor[xla]'") == 1


def test_a_live_model_is_compiled_for_a_card_and_left_alone(folder):
    namespace = {"__name__": "cardmodels"}
    exec((folder / "cardmodels.py").read_text(), namespace)
    model = namespace["small"]()
    found = oomdoctor.estimate_memory(model, machine="colab-t4")

    assert (found.program, found.device) == ("xla", "Tesla T4")
    assert found.largest_batch(2**30) is None
    assert "is about" in repr(found)
    assert not model.optimizer.built
    assert oomdoctor.estimate_memory(model, machine="colab-t4", jit=False).program == "executor"
    with pytest.raises(oomdoctor.errors.UsageError, match="'yes' is not one of auto, on, off"):
        oomdoctor.estimate_memory(model, jit="yes")


def test_tune_compiles_sizes_for_a_card_that_is_named(run):
    tune = ("tune", "cardmodels:small", "--machine", "colab-t4", "--max-batch-size", "64")
    report = json.loads(run(*tune, "--format", "json").out)
    jsonschema.validate(report, SCHEMA)
    tuning = report["tuning"]
    assert (tuning["batch_size"], tuning["limited_by"]) == (64, "max_batch_size")
    assert (tuning["device"], tuning["compiled_by"][:4]) == ("Tesla T4", "XLA ")
    assert [trial["batch_size"] for trial in tuning["trials"]] == [64]
    told = " ".join(run(*tune).out.split())
    assert "Verified compiled for the Tesla T4 by XLA 0." in told
    assert "Compilations" in told


def test_tune_proves_that_the_next_size_does_not_fit(run, folder):
    """A model whose sizes are limited by a small card, so that few compilations suffice."""
    tune = ("tune", "cardmodels:small", "--vram", "256MiB", "--jit", "on", "--no-cache")
    report = json.loads(run(*tune, "--format", "json").out)
    tuning = report["tuning"]
    trials = {trial["batch_size"]: trial for trial in tuning["trials"]}
    size, next_size = tuning["batch_size"], tuning["does_not_fit"]

    assert tuning["is_proved"]
    assert len(trials) <= 6
    assert trials[size]["upper_bytes"] <= 256 * 2**20 < trials[next_size]["upper_bytes"]
    assert size < next_size <= 1.07 * size
    assert "the nearest class to 256 MiB" in tuning["notes"][0]


def test_sizes_that_are_run_on_a_gpu_are_compared_with_the_compiler(folder, nvml_stub):
    """The driver is a stand-in, and TensorFlow sees no GPU: what is measured is the CPU."""
    env = nvml_stub(
        """count=1
        gpu0.name=Tesla T4
        gpu0.total=16106127360
        gpu0.free=15000000000"""
    )
    command = [sys.executable, "-m", "oomdoctor", "tune", "cardmodels:small"]
    told = subprocess.run(
        [*command, "--max-batch-size", "8", "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=env,
    )

    assert told.returncode == 0, told.stderr
    line = " ".join(told.stdout.split())
    assert "batch 8 measured " in line
    assert "on CPU:0; XLA 0." in line
    assert "for the Tesla T4 says " in line
    assert "keras 3." in line


def test_tune_runs_what_xla_would_not_and_says_why(run):
    tune = ("tune", "cardmodels:recurrent", "--machine", "colab-t4", "--max-batch-size", "2")
    tuning = json.loads(run(*tune, "--no-cache", "--format", "json").out)["tuning"]
    assert tuning["compiled_by"] is None
    assert "memory runs on cuDNN" in tuning["notes"][0]


def test_tune_says_what_was_compiled_where_nothing_fits(folder, monkeypatch):
    monkeypatch.chdir(folder)
    card = oomdoctor.probe_machine(machine="t4")
    gpu = replace(card.gpus[0], free_bytes=card.gpus[0].reserved_bytes + 2**20)
    with pytest.raises(DoesNotFitError, match=r"Not even a batch size of 1 fits in 1\.00 MiB"):
        oomdoctor.suggest_batch_size("cardmodels:small", machine=replace(card, gpus=(gpu,)))
