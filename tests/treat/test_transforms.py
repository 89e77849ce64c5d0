"""Transforms change a live model's memory and keep what it has learnt."""

import numpy as np
import pytest

from oomdoctor.errors import UsageError
from oomdoctor.treat.accumulation import accumulate_gradients, split_batch
from oomdoctor.treat.compiling import recompile
from oomdoctor.treat.optimizers import lighter_optimizer
from oomdoctor.treat.precision import mixed_precision
from oomdoctor.treat.replicas import divisible_batch, replicated

pytestmark = pytest.mark.tensorflow


def build(optimizer="adam"):
    import keras

    keras.utils.set_random_seed(2)
    inputs = keras.Input((6, 6, 3))
    hidden = keras.layers.Conv2D(8, 3, activation="relu")(inputs)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.Flatten()(hidden)
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def data(count=16):
    rng = np.random.default_rng(0)
    return rng.random((count, 6, 6, 3), np.float32), rng.integers(0, 3, count)


def test_mixed_precision_is_what_keras_builds_under_the_policy():
    import keras

    keras.config.set_dtype_policy("mixed_float16")
    try:
        expected = build()
    finally:
        keras.config.set_dtype_policy("float32")
    model = mixed_precision(build())
    for ours, theirs in zip(model.layers[:-1], expected.layers[:-1], strict=True):
        assert ours.compute_dtype == theirs.compute_dtype
        assert ours.variable_dtype == theirs.variable_dtype
    assert model.layers[-1].compute_dtype == "float32"
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    x, y = data()
    assert model(x).dtype == "float32"
    np.testing.assert_allclose(model(x), expected(x), atol=2e-3)
    before = model.get_weights()[0].copy()
    model.fit(x, y, verbose=0)
    assert (model.get_weights()[0] != before).any()
    assert all(weight.dtype == "float32" for weight in model.weights)


def test_mixed_precision_reaches_into_inner_models_and_keeps_learnt_state():
    import keras

    inner = build()
    model = keras.Sequential([keras.Input((6, 6, 3)), inner])
    model.compile("adam", "sparse_categorical_crossentropy")
    x, y = data()
    model.fit(x, y, verbose=0)
    steps = int(model.optimizer.iterations)
    mixed_precision(model, "mixed_bfloat16")
    assert inner.layers[1].compute_dtype == "bfloat16"
    assert inner.layers[-1].compute_dtype == "float32"
    assert int(model.optimizer.iterations) == steps
    model.fit(x, y, verbose=0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_accumulation_gives_the_weights_of_the_large_batch(momentum):
    import keras

    def trained(size):
        keras.utils.set_random_seed(2)
        model = keras.Sequential(
            [
                keras.Input((6, 6, 3)),
                keras.layers.Flatten(),
                keras.layers.Dense(8, "tanh"),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1, momentum), "mse")
        if size < 32:
            accumulate_gradients(model, 32 // size)
        x, y = data(128)
        model.fit(x, y, batch_size=size, epochs=3, shuffle=False, verbose=0)
        return model.get_weights(), int(model.optimizer.iterations)

    whole, updates = trained(32)
    size, times = split_batch(32, largest=11)
    assert (size, times) == (8, 4)
    parts, same = trained(size)
    assert updates == same == 12
    for found, expected in zip(parts, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_effective_batch_is_kept_exactly():
    assert split_batch(128, 48) == (32, 4)
    assert split_batch(30, 100) == (30, 1)
    assert split_batch(7, 3) == (1, 7)
    with pytest.raises(UsageError):
        split_batch(0, 3)


@pytest.mark.parametrize(("name", "copies"), [("rmsprop", 1), ("lion", 1), ("sgd", 0)])
def test_a_lighter_optimizer_keeps_less(name, copies):
    import keras

    model = build(keras.optimizers.Adam(0.01, clipnorm=2.0, weight_decay=0.1))
    x, y = data()
    model.fit(x, y, verbose=0)
    lighter_optimizer(model, name)
    trained = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    state = sum(int(np.prod(v.shape)) for v in model.optimizer.variables)
    assert state == copies * trained + 2
    assert model.optimizer.clipnorm == 2.0
    assert model.optimizer.weight_decay == 0.1
    assert "accuracy" in model.fit(x, y, verbose=0).history


def test_a_schedule_is_not_carried_to_another_optimizer():
    import keras

    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.9)
    model = build(keras.optimizers.Adam(schedule))
    with pytest.raises(UsageError, match="pass learning_rate="):
        lighter_optimizer(model)
    with pytest.raises(UsageError, match="not a lighter optimizer"):
        lighter_optimizer(model, "adam")


def test_what_was_compiled_stays_compiled():
    model = build()
    x, y = data()
    model.fit(x, y, verbose=0)
    steps, loss = int(model.optimizer.iterations), model.loss
    recompile(model, jit_compile=False)
    assert model.jit_compile is False
    assert int(model.optimizer.iterations) == steps
    assert model.loss == loss


def test_a_batch_is_split_evenly_over_replicas():
    assert divisible_batch(33, 2) == 32
    with pytest.raises(UsageError, match="cannot be split"):
        divisible_batch(3, 4)
    model = replicated(build, ["CPU:0"])
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 2
