"""A spec becomes a model and batches it can be fed with; here without a worker."""

import sys

import pytest

from oomdoctor.errors import InputError, UsageError
from oomdoctor.model.spec import ModelSpec

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def built(spec_of, monkeypatch):
    """A function from a model's name to the model and its spec."""
    from oomdoctor.model.build import build_model

    monkeypatch.setattr(sys, "path", list(sys.path))

    def build(name, **fields):
        spec = spec_of(name, **fields)
        return build_model(spec)[0], spec

    return build


def first_batch(model, spec, batch_size, kind="train"):
    from oomdoctor.model.batches import make_batch, possible_batches

    return make_batch(spec, next(possible_batches(model, spec, kind)), batch_size)


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("broken", RuntimeError, "the user's own mistake"),
        ("no_model", InputError, "gave a module, not a Keras model"),
        ("missing", InputError, "has no missing"),
    ],
)
def test_a_model_that_cannot_be_made_is_an_error(built, name, error, match):
    with pytest.raises(error, match=match):
        built(name)


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("no_such_module:build", "There is no module no_such_module"),
        ("model", "names no model"),
        ("absent.keras", r"absent\.keras does not exist"),
        (__file__ + ".keras", "does not exist"),
    ],
)
def test_a_source_that_names_nothing_is_an_error(source, match):
    from oomdoctor.model.build import build_model

    with pytest.raises((InputError, UsageError), match=match):
        build_model(ModelSpec(source))


def test_a_lambda_in_a_file_is_refused_by_the_safe_mode(tmp_path):
    import keras

    from oomdoctor.model.build import build_model

    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Lambda(lambda x: x * 2)(inputs))
    path = tmp_path / "unsafe.keras"
    model.save(path)

    with pytest.raises(InputError, match=r"cannot be rebuilt[\s\S]*[Ll]ambda"):
        build_model(ModelSpec(str(path)))


def test_a_free_input_size_must_be_given_and_must_suit(built):
    model, spec = built("any_size")
    with pytest.raises(UsageError, match="has no fixed size"):
        first_batch(model, spec, 2)

    model, spec = built("any_size", input_shape=(8, 8, 4))
    with pytest.raises(UsageError, match=r"not \(8, 8, 4\)"):
        first_batch(model, spec, 2)

    model, spec = built("any_size", input_shape=(8, 8))
    assert first_batch(model, spec, 2)[0].shape == (2, 8, 8, 3)

    model, spec = built("any_size", input_shape=(16, 12, 3))
    assert first_batch(model, spec, 2)[0].shape == (2, 16, 12, 3)


def test_a_fixed_batch_cannot_be_another(built):
    model, spec = built("fixed_batch")

    assert first_batch(model, spec, 4)[0].shape == (4, 5)
    with pytest.raises(UsageError, match="batches of 4 only, not 5"):
        first_batch(model, spec, 5)


def test_indices_stay_within_the_vocabulary_of_their_own_embedding(built):
    model, spec = built("several_inputs")

    x, y = first_batch(model, spec, 500)

    assert set(x) == {"ids", "price", "flag"}
    assert x["ids"].dtype.name == "float32"
    assert 40 < x["ids"].numpy().max() < 50
    assert set(x["flag"].numpy().ravel()) == {0, 1}
    assert y["kind"].shape == (500,)
    assert set(y["kind"].numpy()) == set(range(5))
    assert y["value"].shape == (500, 1)


@pytest.mark.parametrize(
    ("loss", "shape", "dtype"),
    [
        ("sparse_categorical_crossentropy", (3,), "int32"),
        ("categorical_crossentropy", (3, 10), "float32"),
        ("binary_crossentropy", (3, 10), "float32"),
        ("mse", (3, 10), "float32"),
    ],
)
def test_targets_follow_the_loss(built, loss, shape, dtype):
    model, spec = built("conv", loss=loss)

    _, y = first_batch(model, spec, 3)

    assert (tuple(y.shape), y.dtype.name) == (shape, dtype)


def test_predicting_needs_no_targets(built):
    model, spec = built("conv")

    (x,) = first_batch(model, spec, 3, kind="predict")

    assert x.shape == (3, 16, 16, 3)


def test_inputs_of_every_dtype_can_be_made():
    import tensorflow as tf

    from oomdoctor.model.fields import Field, make

    for dtype in ("float16", "float64", "bfloat16", "int64", "int8", "uint8", "bool", "string"):
        batch = make(Field(tf.TensorSpec((None, 2), dtype)), 3)
        assert (tuple(batch.shape), batch.dtype.name) == ((3, 2), dtype)
