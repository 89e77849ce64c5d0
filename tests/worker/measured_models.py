"""Models that tests hand to a worker as `measured_models:name`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import keras
from keras import layers

DIES_AT, HANGS_AT = 13, 14


def conv():
    print("a print of the user's")
    os.write(1, b"and one past Python\n")
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(8, 3, activation="relu", name="first"),
            layers.Conv2D(8, 3, activation="relu", name="second"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax", name="classes"),
        ],
        name="conv",
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def dense(units=64):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(units), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def wide():
    return dense(4096)


def four_mib():
    model = keras.Sequential([keras.Input((1024,)), layers.Dense(1024), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


class _ValidatesLavishly(keras.Sequential):
    """Needs much more to validate than to train."""

    def test_step(self, data):
        import tensorflow as tf

        x, y = data
        many = tf.tile(x, [256, 1])
        return {"loss": tf.reduce_mean(tf.square(many)) + tf.reduce_mean(y)}


def validates_lavishly():
    model = _ValidatesLavishly([keras.Input((1024,)), layers.Dense(16), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def perilous_data(batch_size):
    """Return a batch, except for the sizes that kill the process or hang it."""
    if batch_size == DIES_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    if batch_size == HANGS_AT:
        if "PID_FILE" in os.environ:
            Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
        time.sleep(600)
    import tensorflow as tf

    return tf.zeros((batch_size, 4)), tf.zeros((batch_size, 1))


def recurrent():
    """Many small ops are ready at once: each waits in its turn when memory is out."""
    model = keras.Sequential(
        [keras.Input((60, 32)), layers.LSTM(64, return_sequences=True), layers.LSTM(64)]
    )
    model.compile("adam", "mse")
    return model


def several_inputs():
    """Named inputs of several dtypes, an embedding fed with floats, two outputs and losses."""
    ids = keras.Input((6,), name="ids")
    price = keras.Input((3,), name="price")
    flag = keras.Input((1,), dtype="int32", name="flag")
    x = layers.Concatenate()(
        [
            layers.Flatten()(layers.Embedding(50, 4)(ids)),
            price,
            layers.Flatten()(layers.Embedding(2, 4)(flag)),
        ]
    )
    outputs = {
        "kind": layers.Dense(5, activation="softmax", name="kind")(x),
        "value": layers.Dense(1, name="value")(x),
    }
    model = keras.Model({"ids": ids, "price": price, "flag": flag}, outputs)
    model.compile("adam", {"kind": "sparse_categorical_crossentropy", "value": "mse"})
    return model


class Autoencoder(keras.Model):
    """Takes x alone, has a train_step of its own and no loss."""

    def __init__(self):
        super().__init__()
        self.squeeze = layers.Dense(8)
        self.widen = layers.Dense(32)

    def call(self, x):
        return self.widen(self.squeeze(x))

    def train_step(self, data):
        import tensorflow as tf

        (x,) = data if isinstance(data, tuple) else (data,)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - x) ** 2)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def autoencoder():
    model = Autoencoder()
    model(keras.KerasTensor((None, 32)))
    model.compile("rmsprop")
    return model


def uncompiled():
    return keras.Sequential([keras.Input((20, 8)), layers.LSTM(16), layers.Dense(4)])


class ReadsBatchSize(keras.Model):
    """Needs to know the batch size while it is traced."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        rows = [self.dense(x[i : i + 1]) for i in range(x.shape[0])]
        return keras.ops.concatenate(rows, axis=0)


def reads_batch_size():
    model = ReadsBatchSize()
    model.compile("sgd", "mse")
    return model


def any_size():
    inputs = keras.Input((None, None, 3))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3)(inputs))
    return keras.Model(inputs, layers.Dense(1)(x))


def fixed_batch():
    inputs = keras.Input(batch_shape=(4, 5))
    model = keras.Model(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    return model


def broken():
    raise RuntimeError("the user's own mistake")


def no_model():
    return sys


def heavy_weights():
    """Weights of 16 MiB, beside which activations are small."""
    hidden = [layers.Dense(1024, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input((1024,)), *hidden, layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def slow_beside_a_block():
    """Something in the middle of the pool stays there, and the step takes long to trace."""
    import tensorflow as tf

    lower = tf.raw_ops.Empty(shape=[61, 2**20], dtype=tf.uint8)
    block = tf.raw_ops.Empty(shape=[3, 2**20], dtype=tf.uint8)
    del lower

    class Slow(keras.Sequential):
        def train_step(self, data):
            time.sleep(8)
            return super().train_step(data)

    model = Slow([keras.Input((64,)), layers.Dense(16), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.block = block
    return model


def tower():
    """Each sample takes about 150 KiB, in many pieces, and nothing else takes much."""
    levels = [layers.Activation("tanh") for _ in range(8)]
    model = keras.Sequential([keras.Input((64,)), layers.Dense(4096), *levels, layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def frozen_layer():
    """Nearly all weights are in a layer that is not trained."""
    frozen = layers.Dense(512, trainable=False)
    model = keras.Sequential([keras.Input((512,)), frozen, layers.Dense(1)])
    model.compile("adam", "mse")
    return model
