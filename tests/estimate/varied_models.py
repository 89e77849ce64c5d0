"""One small network trained in several ways; imported by the worker, too."""

import contextlib

import keras
from keras import layers


def network(optimizer="adam", policy="float32", remat=False):
    keras.config.set_dtype_policy(policy)
    names = [f"convolution_{number}" for number in range(3)]
    scope = contextlib.nullcontext()
    if remat:
        scope = keras.RematScope(mode="list_of_layers", layer_names=names)
    with scope:
        inputs = x = keras.Input((48, 48, 3))
        for name, filters in zip(names, (32, 64, 96), strict=True):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu", name=name)(x)
            x = layers.MaxPooling2D()(layers.BatchNormalization()(x))
        x = layers.GlobalAveragePooling2D()(x)
        model = keras.Model(inputs, layers.Dense(10, "softmax")(x))
    keras.config.set_dtype_policy("float32")
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    return model


def plain():
    return network()


def accumulating():
    return network(keras.optimizers.Adam(gradient_accumulation_steps=4))


def clipped():
    return network(keras.optimizers.Adam(global_clipnorm=1.0))


def bfloat16():
    return network(policy="mixed_bfloat16")


def recomputing():
    return network(remat=True)
