"""The models that the search for a batch size is scored on, each with a memory limit.

The first five were there while earlier searches were built. `NEW` were written down, with their
limits, before any search had seen them; `UNSEEN` were written down after that, before the search of
today had run any of them.
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
    "wavenet": 350,
    "unet": 450,
    "mixer": 256,
    "contrastive": 400,
    "video": 300,
}
NEW = ("densenet", "causal_lm", "pointnet", "vae", "bidirectional")
UNSEEN = ("wavenet", "unet", "mixer", "contrastive", "video")


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


def wavenet() -> Any:
    """Return causal convolutions, dilated ever more, with gates and skips, over audio samples."""
    import keras
    from keras import layers

    samples = keras.Input((512, 1))
    x, skips = layers.Conv1D(32, 1)(samples), []
    for dilation in (1, 2, 4, 8, 16, 32):
        pair = [
            layers.Conv1D(32, 2, padding="causal", dilation_rate=dilation, activation=name)(x)
            for name in ("tanh", "sigmoid")
        ]
        y = layers.Multiply()(pair)
        skips.append(layers.Conv1D(32, 1)(y))
        x = layers.Add()([x, layers.Conv1D(32, 1)(y)])
    x = layers.Conv1D(64, 1, activation="relu")(layers.ReLU()(layers.Add()(skips)))
    return _compiled(keras.Model(samples, layers.Conv1D(64, 1, activation="softmax")(x)))


def unet() -> Any:
    """Return an encoder and a decoder for masks, joined at every resolution."""
    import keras
    from keras import layers

    image = keras.Input((64, 64, 3))
    x, joined = image, []
    for filters in (16, 32, 64):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        joined.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(128, 3, padding="same", activation="relu")(x)
    for filters in (64, 32, 16):
        x = layers.Conv2DTranspose(filters, 2, 2)(x)
        x = layers.Concatenate()([x, joined.pop()])
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return _compiled(keras.Model(image, layers.Conv2D(10, 1, activation="softmax")(x)))


def mixer() -> Any:
    """Return dense layers over patches and over channels in turn."""
    import keras
    from keras import layers

    image = keras.Input((64, 64, 3))
    x = layers.Reshape((64, 96))(layers.Conv2D(96, 8, 8)(image))
    for _ in range(4):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dropout(0.1)(layers.Dense(64)(layers.Dense(128, "gelu")(y)))
        x = x + layers.Permute((2, 1))(y)
        x = x + layers.Dense(96)(layers.Dense(384, "gelu")(layers.LayerNormalization()(x)))
    return _compiled(
        keras.Model(image, layers.Dense(20, "softmax")(layers.GlobalAveragePooling1D()(x)))
    )


def contrastive() -> Any:
    """Return an encoder whose own `train_step` sees two views, and compares all with all."""
    import keras
    from keras import layers, ops

    class Contrastive(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            blocks = []
            for filters in (32, 64, 128):
                blocks += [
                    layers.Conv2D(filters, 3, padding="same", use_bias=False),
                    layers.BatchNormalization(),
                    layers.ReLU(),
                    layers.MaxPooling2D(),
                ]
            self.augment = keras.Sequential([layers.RandomFlip("horizontal")])
            self.encoder = keras.Sequential(
                [*blocks, layers.GlobalAveragePooling2D(), layers.Dense(64)]
            )
            self.encoder.build((None, 32, 32, 3))
            self.tracker = keras.metrics.Mean(name="loss")

        def call(self, images: Any) -> Any:
            return self.encoder(images)

        def train_step(self, data: Any) -> Any:
            import tensorflow as tf

            images = data[0] if isinstance(data, tuple) else data
            with tf.GradientTape() as tape:
                views = [self.encoder(self.augment(images), training=True) for _ in range(2)]
                one, two = (ops.normalize(view, axis=-1) for view in views)
                likeness = ops.matmul(one, ops.transpose(two)) / 0.1
                labels = ops.arange(ops.shape(images)[0])
                loss = ops.mean(
                    keras.losses.sparse_categorical_crossentropy(labels, likeness, from_logits=True)
                )
            gradients = tape.gradient(loss, self.encoder.trainable_weights)
            self.optimizer.apply(gradients, self.encoder.trainable_weights)
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    model = Contrastive()
    model.build((None, 32, 32, 3))
    model.compile("adam")
    return model


def video() -> Any:
    """Return convolutions that remember from frame to frame."""
    import keras
    from keras import layers

    return _compiled(
        [
            keras.Input((8, 24, 24, 3)),
            layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True),
            layers.BatchNormalization(),
            layers.ConvLSTM2D(16, 3, padding="same"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )


def _compiled(model: Any) -> Any:
    import keras

    if isinstance(model, list):
        model = keras.Sequential(model)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model
