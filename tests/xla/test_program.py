"""Which program Keras would run on a card."""

from __future__ import annotations

import pytest

from oomdoctor.xla.program import choose_program, keeping_auto

pytestmark = pytest.mark.tensorflow


def _model(*middle, **options):
    import keras

    model = keras.Sequential([keras.Input((8, 4)), *middle, keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", **options)
    return model


def test_xla_is_the_default_on_a_gpu():
    program = choose_program(_model())

    assert program.is_xla
    assert program.is_assumed  # on this machine "auto" became False
    assert "jit_compile" in program.reason


def test_what_the_model_was_compiled_with_is_kept():
    with keeping_auto():
        auto, off, on = _model(), _model(jit_compile=False), _model(jit_compile=True)

    assert choose_program(auto).is_xla
    assert not choose_program(auto).is_assumed
    assert choose_program(off).name == "executor"
    assert choose_program(off).reason == "The model was compiled with jit_compile=False."
    assert choose_program(on).is_xla
    assert choose_program(on).reason == "The model was compiled with jit_compile=True."


def test_a_file_does_not_say_whether_it_was_auto(tmp_path):
    import keras

    _model().save(tmp_path / "model.keras")

    with keeping_auto():
        model = keras.saving.load_model(tmp_path / "model.keras")

    program = choose_program(model)
    assert program.is_xla
    assert program.is_assumed


@pytest.mark.parametrize(("jit", "name"), [("on", "xla"), ("off", "executor")])
def test_the_user_decides(jit, name):
    program = choose_program(_model(run_eagerly=True), jit=jit)

    assert program.name == name
    assert "--jit" in program.reason


def test_only_the_users_own_decision_leaves_a_choice():
    import keras

    with keeping_auto():
        off = _model(jit_compile=False)

    assert choose_program(off).has_choice
    assert choose_program(_model(), jit="off").has_choice
    assert not choose_program(_model()).has_choice  # XLA already
    assert not choose_program(_model(keras.layers.LSTM(4)), jit="off").has_choice


def test_a_layer_is_the_reason_even_if_xla_was_asked_for():
    """Keras turns jit_compile=True into False then."""
    import keras

    with keeping_auto():
        words = keras.Input((4,), dtype="string")
        x = keras.layers.StringLookup(vocabulary=["a"], name="lookup")(words)
        model = keras.Model(words, keras.layers.Embedding(3, 2)(x))
        with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
            model.compile(optimizer="sgd", loss="mse", jit_compile=True)

    program = choose_program(model)
    assert program.name == "executor"
    assert program.reason == "The layer lookup (StringLookup) does not support XLA."


def test_eager_models_are_not_compiled():
    assert "run_eagerly" in choose_program(_model(run_eagerly=True)).reason


def test_recurrent_layers_run_on_cudnn():
    from keras import layers

    for layer in (layers.LSTM(4), layers.GRU(4), layers.Bidirectional(layers.LSTM(4))):
        program = choose_program(_model(layer))
        assert program.name == "executor"
        assert "cuDNN" in program.reason


def test_recurrent_layers_that_cudnn_cannot_run_are_compiled():
    from keras import layers

    for layer in (
        layers.LSTM(4, activation="relu"),
        layers.LSTM(4, use_cudnn=False),
        layers.GRU(4, unroll=True),
        layers.GRU(4, reset_after=False),
        layers.SimpleRNN(4),
    ):
        assert choose_program(_model(layer)).is_xla


def test_layers_without_support_are_named():
    import keras

    numbers = keras.Input((1,), dtype="int64")
    x = keras.layers.IntegerLookup(vocabulary=[1, 2, 3], output_mode="one_hot", name="ids")(numbers)
    model = keras.Model(numbers, keras.layers.Dense(1)(x))
    model.compile(optimizer="sgd", loss="mse")

    program = choose_program(model)

    assert program.name == "executor"
    assert program.reason == "The layer ids (IntegerLookup) does not support XLA."


def test_a_distributed_model_is_not_compiled():
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = _model()

    assert "tf.distribute" in choose_program(model).reason
