"""A decoder with 25 billion parameters: 100 GB of weights in float32."""

from __future__ import annotations

import keras
from keras import layers


def build(blocks=32, width=8192, words=32_000, tokens=128):
    ids = keras.Input((tokens,), dtype="int32", name="ids")
    x = layers.Embedding(words, width, name="embedding")(ids)
    for number in range(blocks):
        name = f"block_{number}"
        y = layers.LayerNormalization(name=f"{name}_norm")(x)
        attention = layers.MultiHeadAttention(64, width // 64, name=f"{name}_attention")
        x = layers.Add()([x, attention(y, y, use_causal_mask=True)])
        y = layers.LayerNormalization(name=f"{name}_norm_2")(x)
        y = layers.Dense(4 * width, activation="gelu", name=f"{name}_up")(y)
        x = layers.Add()([x, layers.Dense(width, name=f"{name}_down")(y)])
    model = keras.Model(ids, layers.Dense(words, name="head")(x), name="giant")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
