"""Every kind of input a person has: an answer, or one sentence that names an argument."""

import sys
from pathlib import Path

import numpy as np
import pytest

from oomdoctor.api.model import estimating
from oomdoctor.errors import OomDoctorError, UsageError

MODELS = Path(__file__).parents[1] / "model"

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def estimator():
    from oomdoctor.runner.estimator import Estimator
    from oomdoctor.units import GIB

    with Estimator(ram_bytes=8 * GIB) as found:
        yield found


@pytest.fixture
def estimate(estimator, monkeypatch):
    """A function from a model's name, and how it is fed, to its estimate; one process for all."""
    monkeypatch.chdir(MODELS)
    monkeypatch.setattr(sys, "path", [*sys.path, str(MODELS)])

    def ask(name, *, batch_size=16, kind="train", machine=None, **fed):
        with estimating(f"fed_models:{name}", kind=kind, estimator=estimator, **fed) as ask_for:
            return ask_for(batch_size, machine=machine)[0]

    return ask


@pytest.fixture
def specs():
    import tensorflow as tf

    return tf.TensorSpec


SAME = [
    ("images", {"input_shape": (32, 32, 3)}, "images_of_32"),
    ("images", {"input_shape": (32, 32)}, "images_of_32"),
    ("images", {"input_shape": "32x32"}, "images_of_32"),
    ("images_of_32", {"input_shape": (32, 32, 3)}, "images_of_32"),
    ("images", {"data": "fed_models:pipeline"}, "images_of_32"),
    ("images", {"data": "fed_models:generator"}, "images_of_32"),
    ("sequence", {"input_shape": 200}, "sequence_of_200"),
    ("sequence", {"input_shape": {"ids": 200}}, "sequence_of_200"),
    ("two_inputs", {"input_shape": {"ids": 200, "image": (32, 32)}}, "two_inputs_of_200_and_32"),
]
"""A model of open size with what it is fed, and the same model with that size built in."""


@pytest.mark.parametrize(("name", "fed", "built"), SAME)
def test_a_size_that_is_given_counts_as_one_that_is_built_in(estimate, name, fed, built):
    assert estimate(name, **fed).peak_bytes == estimate(built).peak_bytes


def test_a_batch_of_specs_counts_as_the_inputs_it_describes(estimate, specs):
    x, y = specs((None, 32, 32, 3)), specs((None,), "int32")
    open_, built = estimate("images", batch=(x, y)), estimate("images_of_32")
    by_dict = estimate("subclassed", batch=({"image": x}, y))
    by_size = estimate("subclassed", input_shape=(32, 32, 3))

    assert open_.peak_bytes == built.peak_bytes
    assert by_dict.peak_bytes == by_size.peak_bytes
    assert by_dict.peak_bytes > 16 * 30 * 30 * 8 * 4


ANSWERS = [
    ("subclassed_that_ran", {}),
    ("vae", {"input_shape": 64}),
    ("gan", {"input_shape": 64}),
    ("looks_words_up", {}),
    ("splits_text", {}),
    ("looks_numbers_up", {}),
    ("prepares_images", {}),
    ("loses_in_layers", {}),
    ("ragged", {"input_shape": 40}),
    ("ragged", {"data": "fed_models:rows"}),
    ("mean_of_ragged", {"data": "fed_models:rows"}),
    ("sparse", {"data": "fed_models:counts"}),
]


@pytest.mark.parametrize(("name", "fed"), ANSWERS)
def test_a_model_is_estimated_and_takes_more_for_more_samples(estimate, name, fed):
    small, large = estimate(name, **fed), estimate(name, batch_size=4096, **fed)

    assert 0 < small.low_bytes <= small.peak_bytes <= small.high_bytes
    assert large.peak_bytes > small.peak_bytes


def test_only_what_a_step_uses_of_several_optimizers_is_held(estimate):
    """Two Adams; the one that Keras compiles by default is never used."""
    found = estimate("gan", input_shape=64, batch_size=1)
    weights = 4 * ((8 * 256 + 256) + (256 * 64 + 64) + (64 * 256 + 256) + (256 + 1))

    held = dict(found.parts)
    assert held["optimizer"] == pytest.approx(2 * weights, rel=0.05)
    assert held["weights"] == pytest.approx(weights, rel=0.05)


def test_rows_of_a_ragged_batch_are_as_long_as_the_longest(estimate):
    fed, given = estimate("ragged", data="fed_models:rows"), estimate("ragged", input_shape=40)

    assert fed.peak_bytes == pytest.approx(given.peak_bytes, rel=0.1)


@pytest.mark.parametrize("name", ["ragged", "sparse"])
def test_what_xla_does_not_take_is_estimated_without_it(estimate, name):
    from oomdoctor.api.machine import probe_machine

    fed = {"ragged": "fed_models:rows", "sparse": "fed_models:counts"}[name]
    found = estimate(name, data=fed, machine=probe_machine(machine="colab-t4"))

    assert found.program == "executor"
    assert found.peak_bytes == estimate(name, data=fed).peak_bytes
    assert any("XLA" in note for note in found.notes)


REFUSED = [
    ("images", {}, r"has no fixed size \(None, None, 3\).*input_shape=.*--input-size NxNx3"),
    ("images_of_32", {"input_shape": (64, 64)}, r"takes samples of shape \(32, 32, 3\), not"),
    ("images", {"input_shape": {"picture": (32, 32)}}, "has no input picture: its inputs are"),
    ("images", {"input_shape": "32y32"}, "is not the size of an input"),
    ("two_inputs", {"input_shape": 200}, r"has 2 inputs \(ids, image\).*--input-size ids=SIZE"),
    ("two_inputs", {"input_shape": {"ids": 200}}, "input image has no fixed size.*image=NxNx3"),
    ("subclassed", {}, "does not say what it takes: give input_shape=, batch= or data="),
    ("gan", {}, "does not say what it takes"),
    ("sparse", {}, "is sparse.*give data="),
    (
        "gan",
        {"input_shape": 64, "kind": "predict"},
        "^The model's predict_step cannot .*: Model Gan",
    ),
    ("fixed_batch", {}, "takes batches of 4 only, not 16"),
    ("images_of_32", {"data": "absent.npy"}, r"absent\.npy does not exist: give a \.npy"),
    ("images_of_32", {"data": "fed_models:absent"}, "has no absent"),
    ("images", {"data": "fed_models:pipeline", "input_shape": 3}, "would have no effect"),
    (
        "images_of_32",
        {"kind": "predict", "loss": "mse"},
        "loss= .* has no effect with kind=predict",
    ),
    ("images_of_32", {"kind": "evaluate", "optimizer": "sgd"}, "optimizer= .* has no effect"),
    ("downloads", {}, "cannot download what it wants .* with weights=None"),
    ("sets_its_own_policy", {"precision": "mixed_float16"}, "has no effect"),
]


@pytest.mark.parametrize(("name", "fed", "says"), REFUSED)
def test_what_cannot_be_told_or_has_no_effect_is_one_sentence(estimate, name, fed, says):
    with pytest.raises(OomDoctorError, match=says) as error:
        estimate(name, **fed)

    assert "\n" not in str(error.value)
    assert "Traceback" not in str(error.value)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (lambda spec: (spec((None, None, 3)),), "give every dimension but the first"),
        (lambda spec: (spec(()),), "single number"),
        (lambda spec: (spec((8, 32, 32, 3)),), "batch= fixes the batch size to 8: write None"),
        (lambda spec: (4,), r"holds a int: give tf\.TensorSpec"),
    ],
)
def test_specs_that_say_too_little_are_one_sentence(estimate, specs, batch, says):
    with pytest.raises(UsageError, match=says):
        estimate("images", batch=batch(specs))


def test_a_spec_of_a_ragged_tensor_asks_for_data(estimate):
    import tensorflow as tf

    with pytest.raises(UsageError, match="give ragged and sparse tensors as data="):
        estimate("ragged", batch=tf.RaggedTensorSpec([None, None], tf.int32))


def test_arrays_in_files_are_read_by_their_headers(estimate, tmp_path):
    x, y = np.zeros((8, 32, 32, 3)), np.zeros((8,), "int32")
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    np.savez(tmp_path / "other.npz", first=x, second=y)

    built = estimate("images_of_32").peak_bytes
    assert estimate("images", data=tmp_path / "x.npy").peak_bytes == built
    assert estimate("images", data=tmp_path / "both.npz").peak_bytes == built
    with pytest.raises(OomDoctorError, match="call the inputs x and the targets y"):
        estimate("images", data=tmp_path / "other.npz")
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(OomDoctorError, match="holds no arrays"):
        estimate("images", data=tmp_path / "text.npy")


def test_a_folder_of_images_gives_the_size_that_the_model_leaves_open(estimate, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for kind, size in (("cats", (32, 32)), ("dogs", (20, 16))):
        (tmp_path / kind).mkdir()
        image.new("RGB", size).save(tmp_path / kind / "one.png")

    found = estimate("images", data=tmp_path)

    assert found.peak_bytes == estimate("images_of_32").peak_bytes
    assert any("Images differ in size" in note for note in found.notes)
    smaller = estimate("images", data=tmp_path, input_shape=(16, 16))
    assert smaller.peak_bytes < found.peak_bytes


def test_a_live_model_is_fed_in_the_same_ways():
    import tensorflow as tf

    import oomdoctor

    sys.path.insert(0, str(MODELS))
    import fed_models

    x, y = tf.TensorSpec((None, 32, 32, 3)), tf.TensorSpec((None,), "int32")
    fixed = oomdoctor.estimate_memory(fed_models.images_of_32())
    for fed in (
        {"input_shape": (32, 32, 3)},
        {"batch": (x, y)},
        {"data": (np.zeros((8, 32, 32, 3), "float32"), np.zeros((8,), "int32"))},
    ):
        assert oomdoctor.estimate_memory(fed_models.images(), **fed).peak_bytes == fixed.peak_bytes
    with pytest.raises(UsageError, match="give one of them"):
        oomdoctor.estimate_memory(fed_models.images(), batch=(x, y), data=(x, y))


def test_a_live_model_that_was_never_called_is_left_unbuilt():
    import tensorflow as tf

    import oomdoctor

    sys.path.insert(0, str(MODELS))
    import fed_models

    model, batch = (
        fed_models.subclassed(),
        (
            tf.TensorSpec((None, 32, 32, 3)),
            tf.TensorSpec((None,), tf.int32),
        ),
    )
    assert oomdoctor.estimate_memory(model, batch=batch).peak_bytes > 16 * 30 * 30 * 8 * 4
    assert not model.weights
    images = tf.TensorSpec((None, 64))
    assert dict(oomdoctor.estimate_memory(fed_models.gan(), batch=images).parts)["weights"] > 0


@pytest.mark.heavy
def test_every_model_of_keras_applications_has_an_answer_or_one_sentence():
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    import estimate_applications

    rows = list(estimate_applications.rows(estimate_applications.names()))

    assert len(rows) > 30
    # MobileNetV3 takes images of any size, unless it is given one.
    refused = {name: sentence for name, sentence, *more in rows if not more}
    assert set(refused) == {"MobileNetV3Large", "MobileNetV3Small"}
    assert all("--input-size NxNx3" in sentence for sentence in refused.values())
