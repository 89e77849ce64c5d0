"""Twelve further models that are scored once, when the estimate is finished.

Written after public examples of several fields, and fixed together with their batch sizes before
the estimate had seen any of them. Whoever looks at their figures and then changes the estimate has
to choose new ones.
"""

from __future__ import annotations

from typing import Any

from estimate_models import Case


def image_to_image() -> Any:
    """Generative: a U-Net of strided and transposed convolutions, as in pix2pix."""
    import keras
    from keras import layers

    inputs = x = keras.Input((64, 64, 3))
    skips = []
    for filters in (32, 64, 128, 256):
        x = layers.Conv2D(filters, 4, strides=2, padding="same", use_bias=False)(x)
        x = layers.LeakyReLU()(layers.BatchNormalization()(x))
        skips.append(x)
    for filters, skip in zip((128, 64, 32), reversed(skips[:-1]), strict=True):
        x = layers.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.Dropout(0.5)(layers.BatchNormalization()(x)))
        x = layers.Concatenate()([x, skip])
    x = layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh")(x)
    return keras.Model(inputs, x)


def temporal_convolutions() -> Any:
    """Time series: residual blocks of causal dilated convolutions."""
    import keras
    from keras import layers

    inputs = keras.Input((512, 8))
    x = layers.Conv1D(64, 1)(inputs)
    for dilation in (1, 2, 4, 8, 16):
        y = x
        for _ in range(2):
            y = layers.Conv1D(64, 3, padding="causal", dilation_rate=dilation)(y)
            y = layers.SpatialDropout1D(0.1)(layers.ReLU()(layers.LayerNormalization()(y)))
        x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, layers.Dense(1)(x[:, -1, :]))


def super_resolution() -> Any:
    """Vision: residual blocks and two sub-pixel upscalings."""
    import keras
    import tensorflow as tf
    from keras import layers

    inputs = keras.Input((32, 32, 3))
    x = skip = layers.Conv2D(48, 3, padding="same")(inputs)
    for _ in range(6):
        y = layers.Conv2D(48, 3, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv2D(48, 3, padding="same")(y)])
    x = layers.Add()([skip, layers.Conv2D(48, 3, padding="same")(x)])
    for _ in range(2):
        x = layers.Conv2D(192, 3, padding="same")(x)
        x = layers.Lambda(lambda t: tf.nn.depth_to_space(t, 2))(x)
    return keras.Model(inputs, layers.Conv2D(3, 3, padding="same")(x))


def video_classifier() -> Any:
    """Video: one small network on each frame, then a GRU."""
    import keras
    from keras import layers

    frame = keras.Sequential(
        [
            keras.Input((40, 40, 3)),
            layers.Conv2D(24, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(48, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(96, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    inputs = keras.Input((12, 40, 40, 3))
    x = layers.GRU(64)(layers.TimeDistributed(frame)(inputs))
    return keras.Model(inputs, layers.Dense(20, "softmax")(layers.Dropout(0.4)(x)))


def translation() -> Any:
    """Text: an LSTM encoder, an LSTM decoder and attention between them."""
    import keras
    from keras import layers

    source = keras.Input((40,), dtype="int32")
    target = keras.Input((40,), dtype="int32")
    x = layers.Embedding(6000, 96)(source)
    x = layers.Bidirectional(layers.LSTM(96, return_sequences=True), merge_mode="sum")(x)
    y = layers.LSTM(96, return_sequences=True)(layers.Embedding(6000, 96)(target))
    y = layers.Concatenate()([y, layers.Attention()([y, x])])
    return keras.Model([source, target], layers.Dense(6000, "softmax")(y))


def q_network() -> Any:
    """Reinforcement learning: Q values of frames, and a train step with a target network."""
    import keras
    import tensorflow as tf
    from keras import layers

    def network() -> Any:
        return keras.Sequential(
            [
                keras.Input((84, 84, 4)),
                layers.Conv2D(32, 8, strides=4, activation="relu"),
                layers.Conv2D(64, 4, strides=2, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.Flatten(),
                layers.Dense(512, "relu"),
                layers.Dense(6),
            ]
        )

    class Agent(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.target = network(), network()
            self.target.trainable = False

        def train_step(self, data: Any) -> Any:
            frames, actions, rewards, following = data
            future = tf.reduce_max(self.target(following), axis=1)
            wanted = rewards + 0.99 * future
            with tf.GradientTape() as tape:
                values = self.online(frames)
                taken = tf.reduce_sum(values * tf.one_hot(actions, 6), axis=1)
                loss = tf.reduce_mean(keras.losses.huber(wanted[:, None], taken[:, None]))
            gradients = tape.gradient(loss, self.online.trainable_variables)
            self.optimizer.apply(gradients, self.online.trainable_variables)
            return {"loss": loss}

    model = Agent()
    model.compile(optimizer="adam", jit_compile=False)
    return model


def neighbour_attention() -> Any:
    """Graphs: each node attends to its sixteen neighbours, found by index."""
    import keras
    import tensorflow as tf
    from keras import layers

    nodes, neighbours, width = 200, 16, 64
    features = keras.Input((nodes, 32))
    edges = keras.Input((nodes, neighbours), dtype="int32")
    gather = layers.Lambda(
        lambda pair: tf.gather(pair[0], pair[1], batch_dims=1),
        output_shape=(nodes, neighbours, width),
    )
    x = layers.Dense(width)(features)
    for _ in range(2):
        around = gather([layers.Dense(width, use_bias=False)(x), edges])
        scores = layers.LeakyReLU()(layers.Dense(1)(around + x[:, :, None, :]))
        around = keras.ops.softmax(scores, axis=2) * around
        x = layers.LayerNormalization()(x + keras.ops.sum(around, axis=2))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model([features, edges], layers.Dense(10, "softmax")(x))


def n_beats() -> Any:
    """Time series: dense blocks, each of which takes away what it has explained."""
    import keras
    from keras import layers

    inputs = left = keras.Input((168,))
    forecasts = []
    for _ in range(5):
        x = left
        for _ in range(4):
            x = layers.Dense(256, "relu")(x)
        left = layers.Subtract()([left, layers.Dense(168)(layers.Dense(32)(x))])
        forecasts.append(layers.Dense(24)(layers.Dense(32)(x)))
    return keras.Model(inputs, layers.Add()(forecasts))


def spectrogram_network() -> Any:
    """Audio: a Fourier transform inside the model, then convolutions."""
    import keras
    import tensorflow as tf
    from keras import layers

    inputs = keras.Input((8000,))
    x = layers.Lambda(
        lambda t: tf.abs(tf.signal.stft(t, 255, 128))[..., None], output_shape=(61, 129, 1)
    )(inputs)
    x = layers.Normalization()(layers.Resizing(64, 64)(x))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, activation="relu")(x)
    x = layers.Flatten()(layers.Dropout(0.25)(layers.MaxPooling2D()(x)))
    x = layers.Dropout(0.5)(layers.Dense(64, "relu")(x))
    return keras.Model(inputs, layers.Dense(8, "softmax")(x))


def two_towers() -> Any:
    """Recommendation: queries against all items of the batch, quadratic in its size."""
    import keras
    import tensorflow as tf
    from keras import layers

    def tower(rows: int) -> Any:
        return keras.Sequential(
            [
                keras.Input((), dtype="int32"),
                layers.Embedding(rows, 64),
                layers.Dense(128, "relu"),
                layers.Dense(64),
            ]
        )

    class Retrieval(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.candidate = tower(30000), tower(10000)

        def train_step(self, data: Any) -> Any:
            users, items = data
            with tf.GradientTape() as tape:
                scores = tf.matmul(self.query(users), self.candidate(items), transpose_b=True)
                labels = tf.eye(tf.shape(scores)[0])
                loss = tf.reduce_sum(
                    keras.losses.categorical_crossentropy(labels, scores, from_logits=True)
                )
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    model = Retrieval()
    model.compile(optimizer="adam", jit_compile=False)
    return model


def adversarial() -> Any:
    """Generative: two networks with an optimizer each, trained in one step."""
    import keras
    import tensorflow as tf
    from keras import layers

    class Adversarial(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.judge = keras.Sequential([keras.Input((32, 32, 3))])
            for filters in (32, 64, 64):
                self.judge.add(layers.Conv2D(filters, 4, strides=2, padding="same"))
                self.judge.add(layers.LeakyReLU(0.2))
            self.judge.add(layers.Flatten())
            self.judge.add(layers.Dense(1))
            self.maker = keras.Sequential([keras.Input((64,)), layers.Dense(4 * 4 * 64)])
            self.maker.add(layers.Reshape((4, 4, 64)))
            for filters in (64, 128, 128):
                self.maker.add(layers.Conv2DTranspose(filters, 4, strides=2, padding="same"))
                self.maker.add(layers.LeakyReLU(0.2))
            self.maker.add(layers.Conv2D(3, 5, padding="same", activation="sigmoid"))

        def compile(self, **options: Any) -> None:
            super().compile(**options)
            self.judge_optimizer = keras.optimizers.Adam(1e-4)
            self.maker_optimizer = keras.optimizers.Adam(1e-4)
            self.judge_optimizer.build(self.judge.trainable_variables)
            self.maker_optimizer.build(self.maker.trainable_variables)

        def train_step(self, data: Any) -> Any:
            size = tf.shape(data)[0]
            made = self.maker(tf.random.normal((size, 64)))
            shown = tf.concat([made, data], axis=0)
            labels = tf.concat([tf.ones((size, 1)), tf.zeros((size, 1))], axis=0)
            labels += 0.05 * tf.random.uniform(tf.shape(labels))
            with tf.GradientTape() as tape:
                judged = self.judge(shown)
                loss = tf.reduce_mean(
                    keras.losses.binary_crossentropy(labels, judged, from_logits=True)
                )
            gradients = tape.gradient(loss, self.judge.trainable_weights)
            self.judge_optimizer.apply(gradients, self.judge.trainable_weights)
            with tf.GradientTape() as tape:
                judged = self.judge(self.maker(tf.random.normal((size, 64))))
                fooled = tf.reduce_mean(
                    keras.losses.binary_crossentropy(tf.zeros((size, 1)), judged, from_logits=True)
                )
            gradients = tape.gradient(fooled, self.maker.trainable_weights)
            self.maker_optimizer.apply(gradients, self.maker.trainable_weights)
            return {"judge": loss, "maker": fooled}

    model = Adversarial()
    model.compile(jit_compile=False)
    return model


def diffusion() -> Any:
    """Generative: a U-Net that is told how much noise an image holds, and predicts it."""
    import keras
    import tensorflow as tf
    from keras import layers

    def block(x: Any, width: int) -> Any:
        residual = x if x.shape[-1] == width else layers.Conv2D(width, 1)(x)
        x = layers.BatchNormalization(center=False, scale=False)(x)
        x = layers.Conv2D(width, 3, padding="same", activation="swish")(x)
        return layers.Add()([layers.Conv2D(width, 3, padding="same")(x), residual])

    image, noise = keras.Input((32, 32, 3)), keras.Input((1, 1, 1))
    level = layers.UpSampling2D(32)(layers.Dense(32, "swish")(noise))
    x = layers.Concatenate()([layers.Conv2D(32, 1)(image), level])
    skips = []
    for width in (32, 64):
        for _ in range(2):
            x = block(x, width)
            skips.append(x)
        x = layers.AveragePooling2D(2)(x)
    for _ in range(2):
        x = block(x, 96)
    for width in (64, 32):
        x = layers.UpSampling2D(2, interpolation="bilinear")(x)
        for _ in range(2):
            x = block(layers.Concatenate()([x, skips.pop()]), width)
    network = keras.Model([image, noise], layers.Conv2D(3, 1, kernel_initializer="zeros")(x))

    class Diffusion(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.normalizer = layers.Normalization()
            self.normalizer.build((None, 32, 32, 3))
            self.network = network

        def train_step(self, data: Any) -> Any:
            images = self.normalizer(data)
            noises = tf.random.normal(tf.shape(images))
            angle = tf.random.uniform((tf.shape(images)[0], 1, 1, 1))
            noisy = tf.cos(angle) * images + tf.sin(angle) * noises
            with tf.GradientTape() as tape:
                predicted = self.network([noisy, tf.sin(angle) ** 2], training=True)
                loss = tf.reduce_mean(tf.abs(noises - predicted))
            gradients = tape.gradient(loss, self.network.trainable_weights)
            self.optimizer.apply(gradients, self.network.trainable_weights)
            return {"loss": loss}

    model = Diffusion()
    model.compile(optimizer="adam", jit_compile=False)
    return model


_FRAMES = ((84, 84, 4), "float32")
LAST = (
    Case("image_to_image", image_to_image, (4, 16), "mae"),
    Case("temporal_convolutions", temporal_convolutions, (4, 32), "mse"),
    Case("super_resolution", super_resolution, (2, 8), "mae"),
    Case("video_classifier", video_classifier, (2, 8)),
    Case("translation", translation, (4, 32)),
    Case(
        "q_network",
        q_network,
        (32, 128),
        fed=(_FRAMES, ((), "int32"), ((), "float32"), _FRAMES),
    ),
    Case("neighbour_attention", neighbour_attention, (8, 32)),
    Case("n_beats", n_beats, (256, 4096), "mae"),
    Case("spectrogram_network", spectrogram_network, (8, 32)),
    Case("two_towers", two_towers, (256, 1024), fed=(((), "int32"), ((), "int32"))),
    Case("adversarial", adversarial, (8, 32), fed=(((32, 32, 3), "float32"),)),
    Case("diffusion", diffusion, (4, 16), fed=(((32, 32, 3), "float32"),)),
)
