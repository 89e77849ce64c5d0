"""Steps of small models, lowered once for all tests of XLA."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session")
def cnn():
    """A compiled CNN with two convolutions, pooling, dropout and two dense layers."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(16, 3, activation="relu", padding="same", name="first"),
            layers.Conv2D(32, 3, activation="relu", padding="same", name="second"),
            layers.MaxPooling2D(name="pool"),
            layers.Flatten(name="flat"),
            layers.Dense(64, activation="relu", name="wide"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(10, name="logits"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    return model


@pytest.fixture(scope="session")
def cnn_at_32(cnn):
    """The CNN's step for a batch of 32."""
    from oomdoctor.xla.lowering import lowering

    with lowering(cnn) as traced:
        return traced.at(32)


@pytest.fixture(scope="session")
def deep_step():
    """A step that takes the compiler several seconds: many dense layers."""
    import keras
    from keras import layers

    from oomdoctor.xla.lowering import lowering

    dense = [layers.Dense(64, activation="gelu") for _ in range(120)]
    model = keras.Sequential([layers.Input((64,)), *dense])
    model.compile(optimizer="adam", loss="mse")
    with lowering(model) as traced:
        return traced.at(8).hlo
