"""The models that the search for a batch size is scored on, each with a memory limit.

The first five were there while earlier searches were built. The other five were written down, with
their limits, before any search had seen them.
"""

from __future__ import annotations

from typing import Any

LIMITS_MIB = {
    "mlp": 300,
    "cnn": 300,
    "lstm": 200,
    "transformer": 600,
    "mobilenet": 600,
    "densenet": 500,
    "causal_lm": 400,
    "pointnet": 600,
    "vae": 300,
    "bidirectional": 150,
}
NEW = ("densenet", "causal_lm", "pointnet", "vae", "bidirectional")


def mlp() -> Any:
    """Return dense layers: mostly weights and optimizer state."""
    import keras

    layers = [keras.layers.Dense(2048, activation="relu") for _ in range(3)]
    return _compiled([keras.Input((1024,)), *layers, keras.layers.Dense(10, activation="softmax")])


def cnn() -> Any:
    """Return convolutions with pooling: scratch memory of kernels matters."""
    import keras

    layers = []
    for filters in (32, 64, 128):
        layers.append(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
        layers.append(keras.layers.MaxPooling2D())
    layers += [keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
    return _compiled([keras.Input((64, 64, 3)), *layers])


def mobilenet() -> Any:
    """Return a deep network with many small activations."""
    import keras

    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10)
    return _compiled(model)


def lstm() -> Any:
    """Return a recurrent network: tensor lists in a loop."""
    import keras

    return _compiled(
        [
            keras.Input((60, 64)),
            keras.layers.LSTM(128, return_sequences=True),
            keras.layers.LSTM(128),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def transformer() -> Any:
    """Return two encoder blocks over token ids."""
    import keras
    from keras import layers

    inputs = keras.Input((128,), dtype="int32")
    x = layers.Embedding(5000, 128)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    return _compiled(keras.Model(inputs, outputs))


def densenet() -> Any:
    """Return blocks in which every layer sees all before it."""
    import keras
    from keras import layers

    inputs = keras.Input((48, 48, 3))
    x = layers.Conv2D(24, 3, padding="same")(inputs)
    for _ in range(2):
        for _ in range(5):
            y = layers.Activation("relu")(layers.BatchNormalization()(x))
            x = layers.Concatenate()([x, layers.Conv2D(16, 3, padding="same")(y)])
        x = layers.AveragePooling2D(2)(layers.Conv2D(48, 1)(x))
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x))
    return _compiled(keras.Model(inputs, outputs))


def causal_lm() -> Any:
    """Return a decoder that predicts every next token: the vocabulary is in the loss."""
    import keras
    from keras import layers

    tokens = keras.Input((96,), dtype="int32")
    positions = layers.Embedding(96, 96)(keras.ops.arange(96))
    x = layers.Embedding(3000, 96)(tokens) + positions
    for _ in range(3):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(6, 16)(y, y, use_causal_mask=True)
        x = x + layers.Dense(96)(layers.Dense(384, "gelu")(layers.LayerNormalization()(x)))
    model = keras.Model(tokens, layers.Dense(3000)(x))
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def pointnet() -> Any:
    """Return a shared network over points, turned by a matrix that it learns."""
    import keras
    from keras import layers

    points = keras.Input((512, 3))

    def wide(x: Any, *filters: int) -> Any:
        for count in filters:
            x = layers.Conv1D(count, 1)(x)
            x = layers.Activation("relu")(layers.BatchNormalization(momentum=0.0)(x))
        return x

    def turned(x: Any, size: int) -> Any:
        y = layers.GlobalMaxPooling1D()(wide(x, 32, 64, 256))
        y = layers.Dense(size * size)(layers.Dense(64, "relu")(y))
        return layers.Dot(axes=(2, 1))([x, layers.Reshape((size, size))(y)])

    x = turned(wide(turned(points, 3), 32, 32), 32)
    x = layers.GlobalMaxPooling1D()(wide(x, 32, 64, 512))
    outputs = layers.Dense(10, "softmax")(layers.Dropout(0.3)(layers.Dense(128, "relu")(x)))
    return _compiled(keras.Model(points, outputs))


def vae() -> Any:
    """Return a variational autoencoder with a `train_step` of its own."""
    import keras
    from keras import layers, ops

    class Vae(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            image = keras.Input((32, 32, 3))
            x = layers.Conv2D(32, 3, 2, padding="same", activation="relu")(image)
            x = layers.Flatten()(layers.Conv2D(64, 3, 2, padding="same", activation="relu")(x))
            self.encoder = keras.Model(image, layers.Dense(64)(x))
            code = keras.Input((32,))
            x = layers.Reshape((8, 8, 64))(layers.Dense(4096, "relu")(code))
            for filters in (64, 32):
                x = layers.Conv2DTranspose(filters, 3, 2, padding="same", activation="relu")(x)
            x = layers.Conv2DTranspose(3, 3, padding="same", activation="sigmoid")(x)
            self.decoder = keras.Model(code, x)
            self.noise = keras.random.SeedGenerator(0)
            self.tracker = keras.metrics.Mean(name="loss")

        def call(self, images: Any) -> Any:
            return self.decoder(self.encoder(images)[:, :32])

        def train_step(self, data: Any) -> Any:
            import tensorflow as tf

            images = data[0] if isinstance(data, tuple) else data
            with tf.GradientTape() as tape:
                mean, spread = ops.split(self.encoder(images), 2, axis=1)
                drawn = keras.random.normal(ops.shape(mean), seed=self.noise)
                rebuilt = self.decoder(mean + ops.exp(0.5 * spread) * drawn)
                error = ops.mean(ops.sum(ops.square(images - rebuilt), axis=(1, 2, 3)))
                distance = -0.5 * ops.mean(1 + spread - ops.square(mean) - ops.exp(spread))
                loss = error + distance
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    model = Vae()
    model.build((None, 32, 32, 3))
    model.compile("adam")
    return model


def bidirectional() -> Any:
    """Return a tagger that reads token ids both ways."""
    import keras
    from keras import layers

    return _compiled(
        [
            keras.Input((50,), dtype="int32"),
            layers.Embedding(4000, 64),
            layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
            layers.Dense(20, activation="softmax"),
        ]
    )


def _compiled(model: Any) -> Any:
    import keras

    if isinstance(model, list):
        model = keras.Sequential(model)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model
