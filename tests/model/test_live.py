"""A live model is trained in another process and stays as it was."""

import random

import pytest

from oomdoctor.errors import InputError
from oomdoctor.model.live import spec_of_model
from oomdoctor.runner.runner import Runner
from oomdoctor.worker.messages import Fit

pytestmark = pytest.mark.tensorflow


def make_model():
    """Return a trained model full of things that only exist in this function."""
    import keras
    import numpy as np

    class Scale(keras.layers.Layer):
        def __init__(self, factor=1.0, **options):
            super().__init__(**options)
            self.factor = factor

        def build(self, shape):
            self.gain = self.add_weight(shape=(shape[-1],), name="gain")

        def call(self, x):
            return x * self.gain * self.factor

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

    class Counting(keras.Model):
        def train_step(self, data):
            return {**super().train_step(data), "steps": self.optimizer.iterations}

    def squash(x):
        return keras.ops.tanh(x) * 2

    def penalty(y_true, y_pred):
        return keras.ops.mean((y_true - y_pred) ** 4)

    inputs = keras.Input((8,))
    x = keras.layers.Dense(16, activation=squash, name="squashed")(inputs)
    x = keras.layers.Dropout(0.5)(x)
    x = keras.layers.Dense(16, name="frozen", trainable=False)(Scale(2.0, name="scale")(x))
    model = Counting(inputs, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 100)), penalty)
    model.fit(np.ones((4, 8)), np.ones((4, 1)), verbose=0)
    return model


def state_of(model):
    """Return everything about a model that training elsewhere could change."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return {
        "values": [(v.path, v.numpy().tobytes()) for v in variables],
        "config": model.get_config(),
        "compile": model.get_compile_config(),
        "functions": (model.train_function, model.test_function, model.predict_function),
        "attributes": sorted(vars(model)),
        "trainable": [layer.trainable for layer in model._flatten_layers()],
    }


def draws():
    """Return the next numbers of every random generator a user may have seeded."""
    import keras
    import numpy as np
    import tensorflow as tf

    return (
        random.random(),
        np.random.rand(),
        float(tf.random.uniform(())),
        tf.random.get_global_generator().state.numpy().tobytes(),
        float(keras.random.uniform(())),
        float(keras.random.uniform((), seed=keras.random.SeedGenerator())),
    )


def rebuild(model):
    """Return a model as the worker rebuilds it."""
    from oomdoctor.model.build import build_model, settings_kept

    with settings_kept():
        return build_model(spec_of_model(model))[0]


def test_a_live_model_is_trained_elsewhere_and_left_byte_for_byte_as_it_was():
    import keras

    keras.utils.set_random_seed(7)
    model = make_model()
    keras.utils.set_random_seed(7)
    expected = draws()
    keras.utils.set_random_seed(7)
    before = state_of(model)

    with Runner(spec_of_model(model)) as runner:
        trial = runner.fit(Fit(16))

    assert trial.outcome == "fits"
    assert trial.notes == ()
    assert trial.batch_bytes == 16 * (8 + 1) * 4
    assert state_of(model) == before
    assert draws() == expected


def test_a_frozen_layer_of_a_subclass_stays_frozen():
    import keras
    import numpy as np

    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.big = keras.layers.Dense(512)
            self.small = keras.layers.Dense(1)

        def call(self, x):
            return self.small(self.big(x))

    model = Two()
    model(np.zeros((1, 512)))
    model.compile("adam", "mse")
    model.big.trainable = False

    rebuilt = rebuild(model)

    assert rebuilt is not model
    assert [tuple(v.shape) for v in rebuilt.trainable_variables] == [(512, 1), (1,)]


def test_a_model_that_cannot_be_described_is_refused_with_advice():
    import keras

    class Opaque(keras.Model):
        def __init__(self, helper):
            super().__init__()
            self.helper = helper

        def get_config(self):
            raise NotImplementedError("no config")

        def call(self, x):
            return x

    with pytest.raises(InputError, match=r"cannot be described.*module:callable"):
        spec_of_model(Opaque(object()))


def test_a_model_with_a_compile_of_its_own_is_refused_with_advice():
    import keras
    import numpy as np

    class Pair(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def compile(self, first, second):
            super().compile()
            self.first, self.second = first, second

        def call(self, x):
            return self.dense(x)

    model = Pair()
    model(np.zeros((1, 3)))
    model.compile("adam", "sgd")

    with pytest.raises(InputError, match="compile"):
        rebuild(model)


def test_something_else_than_a_model_is_refused():
    with pytest.raises(InputError, match="A dict is not a Keras model"):
        spec_of_model({})
