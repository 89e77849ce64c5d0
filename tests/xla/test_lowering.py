"""Steps as XLA is given them: from shapes alone, the same bytes every time, or one sentence."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from oomdoctor.errors import UsageError
from oomdoctor.xla.errors import NotCompilable
from oomdoctor.xla.lowering import lowering

pytestmark = pytest.mark.tensorflow


def _model(*layers, loss="mse"):
    import keras

    model = keras.Sequential(list(layers))
    model.compile(optimizer="sgd", loss=loss)
    return model


def test_arguments_are_named_in_the_order_of_the_program(cnn_at_32):
    first = cnn_at_32.arguments[:2]

    assert [argument.part for argument in first] == ["inputs", "inputs"]
    assert first[0].shape == (32, 32, 32, 3)
    kernel = next(a for a in cnn_at_32.arguments if a.name.endswith("/first/kernel"))
    assert kernel.part == "weights"
    assert kernel.is_trainable
    assert kernel.shape == (3, 3, 3, 16)
    slots = [a for a in cnn_at_32.arguments if a.part == "optimizer" and a.shape == kernel.shape]
    assert len(slots) == 2


def test_the_model_is_as_before(cnn):
    built = cnn.optimizer.built
    weights = [w.numpy().sum() for w in cnn.trainable_variables]

    with lowering(cnn) as traced:
        traced.at(4)

    assert cnn.optimizer.built is built
    assert [w.numpy().sum() for w in cnn.trainable_variables] == weights


def test_sizes_differ_and_a_size_repeats(cnn):
    with lowering(cnn) as traced:
        small, large, again = traced.at(2), traced.at(2**20), traced.at(2)

    assert small.hlo == again.hlo
    assert small.hlo != large.hlo
    assert large.arguments[0].shape[0] == 2**20  # 12 GiB, of which nothing is allocated


def test_the_same_step_gives_the_same_bytes_in_every_process():
    code = (
        "import hashlib, keras\n"
        "from keras import layers\n"
        "from oomdoctor.xla.lowering import lowering\n"
        "import numpy as np\n"
        "if {noise}: keras.Sequential([layers.Dense(2)]).predict(np.ones((1, 3)), verbose=0)\n"
        "keras.utils.clear_session()\n"
        "m = keras.Sequential([layers.Input((8,)), layers.Dense(4), layers.Dropout(0.5)])\n"
        "m.compile('adam', 'mse')\n"
        "with lowering(m) as traced: print(hashlib.sha256(traced.at(16).hlo).hexdigest())\n"
    )
    digests = set()
    for number in (1, 2):
        environ = {**os.environ, "PYTHONHASHSEED": str(number), "TF_CPP_MIN_LOG_LEVEL": "3"}
        run = subprocess.run(
            [sys.executable, "-c", code.format(noise=number == 2)],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(run.stdout.split()[-1])

    assert len(digests) == 1


def test_python_code_inside_is_one_sentence():
    import tensorflow as tf
    from keras import layers

    class Python(layers.Layer):
        """Leaves the graph."""

        def call(self, inputs):
            given = tf.py_function(lambda x: x * 2, [inputs], tf.float32)
            return tf.ensure_shape(given, inputs.shape)

    model = _model(layers.Input((4,)), layers.Dense(4), Python(), layers.Dense(1))

    with lowering(model) as traced, pytest.raises(NotCompilable) as raised:
        traced.at(8)

    assert "EagerPyFunc" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_strings_inside_are_one_sentence():
    import keras
    from keras import layers

    words = layers.Input((1,), dtype="string")
    numbers = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(words)
    model = keras.Model(words, layers.Dense(1)(numbers))
    model.compile(optimizer="sgd", loss="mse")

    with lowering(model) as traced, pytest.raises(NotCompilable) as raised:
        traced.at(8)

    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_length_that_is_not_known_is_asked_for():
    import tensorflow as tf
    from keras import layers

    model = _model(
        layers.Input((None, 8)), layers.Conv1D(4, 3), layers.GlobalMaxPooling1D(), layers.Dense(1)
    )

    with pytest.raises(UsageError, match="no fixed size"), lowering(model):
        pass
    batch = (tf.TensorSpec((None, None, 8)), tf.TensorSpec((None, 1)))
    with lowering(model, batch=batch) as traced, pytest.raises(UsageError, match="fixed shape"):
        traced.at(8)


def test_a_model_that_is_not_compiled_is_said_to_be():
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])

    with pytest.raises(UsageError, match="not compiled"), lowering(model):
        pass
