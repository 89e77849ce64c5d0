"""Recomputing changes the memory of a step and nothing else."""

import itertools

import numpy as np
import pytest

from oomdoctor.errors import UsageError
from oomdoctor.treat.recompute import recompute
from oomdoctor.treat.recompute_plan import Operation, plan_recompute

tensorflow = pytest.mark.tensorflow


def chain(count, size=100):
    operations = [Operation(str(i), (i,), (i + 1,), work=1.0) for i in range(count)]
    return operations, [size] * (count + 1), [count]


def test_a_chain_is_cut_at_about_the_root_of_its_length():
    operations, sizes, outputs = chain(100)
    plan = plan_recompute(operations, sizes, outputs)
    assert plan.plain_bytes == 10_000
    assert plan.peak_bytes <= 2_200
    assert all(a.stop <= b.start for a, b in itertools.pairwise(plan.stretches))


def test_a_long_skip_is_kept_and_not_cut():
    # As in a U-Net, the first output is read again by the last operation but one.
    operations, sizes, outputs = chain(40)
    operations[38] = Operation("38", (38, 1), (39,), work=1.0)
    plan = plan_recompute(operations, sizes, outputs)
    inside = [s for s in plan.stretches if s.start <= 0 < s.stop]
    assert plan.peak_bytes < 1_800
    assert all(s.saved_bytes <= (s.stop - s.start - 2) * 100 for s in inside)


def test_what_must_run_once_is_in_no_stretch():
    operations, sizes, outputs = chain(30)
    operations[10] = Operation("10", (10,), (11,), work=1.0, can_recompute=False)
    plan = plan_recompute(operations, sizes, outputs)
    assert plan.stretches
    assert not [s for s in plan.stretches if s.start <= 10 < s.stop]


def test_no_more_is_recomputed_than_asked_for():
    operations, sizes, outputs = chain(100)
    full = plan_recompute(operations, sizes, outputs)
    some = plan_recompute(operations, sizes, outputs, most_bytes=6_000)
    assert full.peak_bytes < some.peak_bytes <= 6_000
    assert some.extra_work < full.extra_work


def test_nothing_is_planned_for_one_operation():
    assert plan_recompute(*chain(1)).stretches == ()


def convolutional():
    import keras

    inputs = keras.Input((16, 16, 3))
    hidden = inputs
    for _ in range(4):
        skip = keras.layers.Conv2D(8, 1)(hidden)
        for _ in range(2):
            hidden = keras.layers.Conv2D(8, 3, padding="same")(hidden)
            hidden = keras.layers.BatchNormalization()(hidden)
            hidden = keras.layers.Activation("tanh")(hidden)
            hidden = keras.layers.Dropout(0.3)(hidden)
        hidden = keras.layers.Add()([hidden, skip])
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden))


def sequential():
    import keras

    layers = [keras.layers.Dense(16, "tanh") for _ in range(9)]
    return keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten(), *layers])


def nested():
    import keras

    return keras.Sequential([keras.Input((16, 16, 3)), convolutional(), keras.layers.Dense(2)])


def masked():
    import keras

    inputs = keras.Input((768,), dtype="int32")
    hidden = keras.layers.Embedding(50, 8, mask_zero=True)(inputs)
    for _ in range(5):
        hidden = keras.layers.Dense(8, "tanh")(hidden)
        hidden = keras.layers.Dropout(0.2)(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden))


def subclassed():
    import keras

    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = keras.layers.Dense(8, "tanh"), keras.layers.Dense(8)
            self.drop = keras.layers.Dropout(0.3)

        def build(self, shape):
            self.first.build(shape)
            self.second.build((*shape[:-1], 8))

        def call(self, inputs, training=None):
            return self.second(self.drop(self.first(inputs), training=training))

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.flatten = keras.layers.Flatten()
            self.blocks = [Block() for _ in range(3)]
            self.end = keras.layers.Dense(2)

        def call(self, inputs, training=None):
            hidden = self.flatten(inputs)
            for block in self.blocks:
                hidden = block(hidden, training=training)
            return self.end(hidden)

    model = Own()
    model(np.zeros((1, 16, 16, 3), "float32"))
    return model


@tensorflow
@pytest.mark.slow
@pytest.mark.parametrize("build", [convolutional, sequential, nested, masked, subclassed])
@pytest.mark.parametrize("eagerly", [False, True])
def test_training_is_the_same_to_the_last_moving_average(build, eagerly):
    import keras

    rng = np.random.default_rng(0)
    x = rng.random((12, 16, 16, 3), np.float32)
    if build is masked:
        x = rng.integers(0, 50, (12, 768))

    def trained(change):
        keras.utils.set_random_seed(7)
        model = build()
        y = np.zeros((12, *model(x[:1]).shape[1:]), "float32")
        model = change(model)
        model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=eagerly)
        model.fit(x, y, batch_size=4, epochs=2, verbose=0, shuffle=False)
        return [variable.numpy() for variable in model.variables]

    for plain, again in zip(trained(lambda m: m), trained(recompute), strict=True):
        np.testing.assert_allclose(again, plain, rtol=2e-4, atol=1e-6)


@tensorflow
def test_a_model_of_one_layer_is_refused():
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(UsageError, match="saves nothing"):
        recompute(model)
