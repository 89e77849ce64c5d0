"""Models of several kinds, whose batch size is tuned and which then train under the real limit."""

from __future__ import annotations

import keras
from keras import layers


def mobilenet():
    """Pictures through a deep network with many small activations."""
    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10)
    return _compiled(model)


def unet():
    """Masks from pictures: what was kept on the way down is needed on the way up."""
    inputs = keras.Input((64, 64, 1))

    def conv(x, filters):
        return layers.Conv2D(filters, 3, padding="same", activation="relu")(x)

    wide = conv(inputs, 32)
    middle = conv(layers.MaxPooling2D()(wide), 64)
    deep = conv(layers.MaxPooling2D()(middle), 128)
    up = conv(layers.Concatenate()([layers.Conv2DTranspose(64, 2, 2)(deep), middle]), 64)
    up = conv(layers.Concatenate()([layers.Conv2DTranspose(32, 2, 2)(up), wide]), 32)
    outputs = layers.Conv2D(1, 1, activation="sigmoid")(up)
    return _compiled(keras.Model(inputs, outputs), "binary_crossentropy")


def transformer():
    """Token ids through attention."""
    inputs = keras.Input((128,), dtype="int32")
    x = layers.Embedding(2000, 128)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
    x = layers.GlobalAveragePooling1D()(x)
    return _compiled(keras.Model(inputs, layers.Dense(10, activation="softmax")(x)))


def recurrent():
    """Token ids through a loop."""
    return _compiled(
        keras.Sequential(
            [
                keras.Input((40,), dtype="int32"),
                layers.Embedding(2000, 64),
                layers.LSTM(128, return_sequences=True),
                layers.LSTM(128),
                layers.Dense(10, activation="softmax"),
            ]
        )
    )


def two_inputs():
    """Pictures beside numbers, by name, with batch normalization."""
    picture, numbers = keras.Input((48, 48, 3), name="picture"), keras.Input((8,), name="numbers")
    x = picture
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(layers.BatchNormalization()(x))
    x = layers.Concatenate()([layers.GlobalAveragePooling2D()(x), numbers])
    model = keras.Model(
        {"picture": picture, "numbers": numbers}, layers.Dense(10, activation="softmax")(x)
    )
    return _compiled(model)


def small():
    """A few convolutions, for a test that ends soon."""
    return _compiled(
        keras.Sequential(
            [
                keras.Input((24, 24, 1)),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10, activation="softmax"),
            ]
        )
    )


def _compiled(model, loss="sparse_categorical_crossentropy"):
    model.compile("adam", loss)
    return model
