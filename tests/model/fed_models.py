"""Models that are fed in many ways; tests name them as `fed_models:name`."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import layers, ops


def images(size=None, channels=3):
    """Images of any size, unless one is given."""
    model = keras.Sequential(
        [
            keras.Input((size, size, channels)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def images_of_32():
    return images(32)


def sequence(length=None):
    ids = keras.Input((length,), dtype="int32", name="ids")
    x = layers.Conv1D(16, 3, padding="same")(layers.Embedding(50, 16)(ids))
    model = keras.Model(ids, layers.Dense(1)(layers.GlobalMaxPooling1D()(x)))
    model.compile("adam", "mse")
    return model


def sequence_of_200():
    return sequence(200)


def two_inputs(length=None, size=None):
    ids = keras.Input((length,), dtype="int32", name="ids")
    image = keras.Input((size, size, 3), name="image")
    x = layers.GlobalMaxPooling1D()(layers.Embedding(50, 16)(ids))
    z = layers.GlobalMaxPooling2D()(layers.Conv2D(16, 3)(image))
    model = keras.Model({"ids": ids, "image": image}, layers.Dense(1)(layers.Add()([x, z])))
    model.compile("adam", "mse")
    return model


def two_inputs_of_200_and_32():
    return two_inputs(200, 32)


class Subclassed(keras.Model):
    """Does not say what it takes, and takes a dictionary or one tensor."""

    def __init__(self):
        super().__init__()
        self.conv = layers.Conv2D(8, 3)
        self.dense = layers.Dense(4)

    def call(self, inputs):
        image = inputs["image"] if isinstance(inputs, dict) else inputs
        return self.dense(ops.mean(self.conv(image), axis=(1, 2)))


def subclassed():
    model = Subclassed()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def subclassed_that_ran():
    """As people build such a model: by calling it."""
    model = subclassed()
    model(tf.zeros((1, 32, 32, 3)))
    return model


class Vae(keras.Model):
    """Encodes, samples and decodes, with a train_step of its own."""

    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(8)])
        self.decoder = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(64)])
        self.seeds = keras.random.SeedGenerator(1)
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, x):
        mean, spread = ops.split(self.encoder(x), 2, axis=-1)
        noise = keras.random.normal(ops.shape(mean), seed=self.seeds)
        self.add_loss(ops.mean(ops.square(mean)))
        return self.decoder(mean + ops.exp(spread) * noise)

    def train_step(self, data):
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x) - x)) + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def vae():
    model = Vae()
    model.compile(optimizer="adam")
    return model


class Gan(keras.Model):
    """Two networks, two optimizers, no call."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((8,)), layers.Dense(256), layers.Dense(64)])
        self.critic = keras.Sequential([keras.Input((64,)), layers.Dense(256), layers.Dense(1)])

    def compile(self, of_critic, of_generator):
        super().compile()
        self.of_critic, self.of_generator = of_critic, of_generator

    def train_step(self, real):
        real = real[0] if isinstance(real, tuple) else real
        noise = tf.random.normal((tf.shape(real)[0], 8))
        for network, optimizer, sign in (
            (self.critic, self.of_critic, 1.0),
            (self.generator, self.of_generator, -1.0),
        ):
            with tf.GradientTape() as tape:
                gap = ops.mean(self.critic(self.generator(noise))) - ops.mean(self.critic(real))
                loss = sign * gap
            weights = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


def gan():
    model = Gan()
    model.compile(keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4))
    return model


def looks_words_up():
    words = keras.Input((6,), dtype="string", name="words")
    ids = layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    x = layers.GlobalAveragePooling1D()(layers.Embedding(5, 64)(ids))
    model = keras.Model(words, layers.Dense(1)(x))
    model.compile("adam", "mse")
    return model


def splits_text():
    text = keras.Input((1,), dtype="string", name="text")
    split = layers.TextVectorization(max_tokens=20, output_sequence_length=12)
    split.adapt(["some words", "and some more"])
    x = layers.GlobalAveragePooling1D()(layers.Embedding(20, 64)(split(text)))
    model = keras.Model(text, layers.Dense(1)(x))
    model.compile("adam", "mse")
    return model


def looks_numbers_up():
    codes = keras.Input((4,), dtype="int64", name="codes")
    ids = layers.IntegerLookup(vocabulary=[3, 5, 7])(codes)
    x = layers.Flatten()(layers.Embedding(5, 64)(ids))
    model = keras.Model(codes, layers.Dense(1)(x))
    model.compile("adam", "mse")
    return model


def prepares_images():
    inputs = keras.Input((24, 24, 3), dtype="uint8")
    x = layers.Resizing(32, 32)(inputs)
    x = layers.RandomFlip()(layers.Rescaling(1 / 255)(x))
    x = layers.RandomRotation(0.1)(x)
    x = layers.Normalization(mean=[0.5, 0.5, 0.5], variance=[1.0, 1.0, 1.0])(x)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3)(x))
    model = keras.Model(inputs, layers.Dense(4)(x))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class KeepsSmall(layers.Layer):
    def call(self, x):
        self.add_loss(ops.mean(ops.square(x)))
        return x


def loses_in_layers():
    inputs = keras.Input((32,))
    x = KeepsSmall()(layers.Dense(64, activity_regularizer="l2")(inputs))
    model = keras.Model(inputs, layers.Dense(32, kernel_regularizer="l2")(x))
    model.compile("adam")
    return model


def ragged():
    ids = keras.Input((None,), dtype="int32", ragged=True, name="ids")
    x = layers.Embedding(50, 16)(ids)
    model = keras.Model(ids, layers.Dense(1)(ops.max(x, axis=1)))
    model.compile("adam", "mse")
    return model


class MeanOfRagged(keras.Model):
    """Takes a ragged tensor as TensorFlow does."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(50, 16)
        self.dense = layers.Dense(1)

    def call(self, ids):
        return self.dense(tf.reduce_mean(self.embedding(ids.to_tensor()), axis=1))


def mean_of_ragged():
    model = MeanOfRagged()
    model.compile("adam", "mse")
    return model


def sparse():
    counts = keras.Input((1000,), sparse=True, name="counts")
    model = keras.Model(counts, layers.Dense(1)(layers.Dense(64)(counts)))
    model.compile("adam", "mse")
    return model


def fixed_batch():
    inputs = keras.Input(batch_shape=(4, 32))
    model = keras.Model(inputs, layers.Dense(8)(inputs))
    model.compile("adam", "mse")
    return model


def sets_its_own_policy():
    keras.config.set_dtype_policy("float32")
    return images(32)


def downloads():
    keras.utils.get_file("none.h5", "http://127.0.0.1:9/none.h5")
    return images(32)


# What a model is fed, for `--data fed_models:name`.


def pipeline():
    """Batches of a tf.data pipeline whose images differ in size."""

    def read():
        for size in (16, 32, 24):
            yield tf.zeros((2, size, size, 3)), tf.zeros((2,), tf.int32)

    signature = (
        tf.TensorSpec((None, None, None, 3), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    )
    return tf.data.Dataset.from_generator(read, output_signature=signature)


def generator():
    """Batches of a generator."""
    yield tf.zeros((2, 16, 16, 3)), tf.zeros((2,), tf.int32)
    yield tf.zeros((2, 32, 32, 3)), tf.zeros((2,), tf.int32)


def rows():
    lengths = [3, 40, 7, 1]
    ids = tf.RaggedTensor.from_row_lengths(tf.zeros((sum(lengths),), tf.int32), lengths)
    return tf.data.Dataset.from_tensor_slices((ids, tf.zeros((4, 1)))).batch(2)


def counts():
    x = tf.sparse.from_dense(tf.one_hot([5, 7, 9, 11], 1000))
    return tf.data.Dataset.from_tensor_slices((x, tf.zeros((4, 1)))).batch(2)
