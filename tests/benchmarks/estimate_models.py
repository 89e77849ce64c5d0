"""The models the estimate is judged by, fixed before it was calibrated.

`CALIBRATION` were looked at while the estimator was written; `HELD_OUT` were only scored. Inputs
are small so that one case takes seconds on two cores; the batches are such that activations
outweigh the weights in some cases and not in others, and that a step holds at least some 20 MB:
below, the measured peaks themselves differ by a third from step to step, and no card is so small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """A model to train: how it is built, what it is fed and in which batches."""

    name: str
    build: Callable[[], Any]
    batches: tuple[int, ...] = (8, 32)
    loss: str = "sparse_categorical_crossentropy"
    fed: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shape of a sample and dtype of what a train step of the model's own takes; `build` compiles
    such a model itself."""


def _application(name: str, pixels: int = 64, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        import keras

        factory = getattr(keras.applications, name)
        return factory(weights=None, input_shape=(pixels, pixels, 3), classes=100, **options)

    return build


def _conv(x: Any, filters: int, **options: Any) -> Any:
    import keras

    return keras.layers.Conv2D(filters, 3, padding="same", activation="relu", **options)(x)


def mlp() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(1024, "relu"),
            layers.Dropout(0.3),
            layers.Dense(1024, "relu"),
            layers.Dense(512, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )


def cnn() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        x = layers.MaxPooling2D()(_conv(x, filters))
    x = layers.Dropout(0.5)(layers.Flatten()(x))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.Dense(256, "relu")(x)))


def vgg_like() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((64, 64, 3))
    for filters in (32, 64, 128, 256):
        x = layers.MaxPooling2D()(_conv(_conv(x, filters), filters))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))


def unet() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((64, 64, 3))
    skips = []
    for filters in (16, 32, 64):
        x = _conv(_conv(x, filters), filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = _conv(_conv(x, 128), 128)
    for filters, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(x)
        x = _conv(_conv(layers.Concatenate()([x, skip]), filters), filters)
    return keras.Model(inputs, layers.Conv2D(4, 1, activation="softmax")(x))


def unet_batch_norm() -> Any:
    import keras
    from keras import layers

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.LeakyReLU()(layers.BatchNormalization()(x))
        return x

    inputs = x = keras.Input((64, 64, 1))
    skips = []
    for filters in (16, 32, 64):
        x = block(x, filters)
        skips.append(x)
        x = layers.AveragePooling2D(2)(x)
    x = block(x, 96)
    for filters, skip in zip((64, 32, 16), reversed(skips), strict=True):
        x = layers.Concatenate()([layers.UpSampling2D()(x), skip])
        x = block(x, filters)
    return keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))


def lstm() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((40, 64)),
            layers.LSTM(128, return_sequences=True),
            layers.LSTM(128),
            layers.Dense(10, "softmax"),
        ]
    )


def gru() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((50, 32)),
            layers.GRU(96, return_sequences=True),
            layers.GRU(64),
            layers.Dense(10, "softmax"),
        ]
    )


def text_bilstm() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((60,), dtype="int32"),
            layers.Embedding(5000, 64),
            layers.Bidirectional(layers.LSTM(64)),
            layers.Dense(64, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )


def _encoder(x: Any, width: int, heads: int, *, causal: bool = False) -> Any:
    from keras import layers

    attended = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(
        x, x, use_causal_mask=causal
    )
    x = layers.LayerNormalization()(layers.Add()([x, attended]))
    hidden = layers.Dense(4 * width, "gelu")(x)
    hidden = layers.Dropout(0.1)(layers.Dense(width)(hidden))
    return layers.LayerNormalization()(layers.Add()([x, hidden]))


def transformer() -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((128,), dtype="int32")
    x = layers.Embedding(4000, 128)(inputs)
    for _ in range(3):
        x = _encoder(x, 128, 4)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))


def language_model() -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((96,), dtype="int32")
    x = layers.Embedding(3000, 96)(inputs)
    for _ in range(2):
        x = _encoder(x, 96, 3, causal=True)
    return keras.Model(inputs, layers.Dense(3000, "softmax")(x))


def vision_transformer() -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((64, 64, 3))
    x = layers.Conv2D(128, 8, strides=8)(inputs)
    x = layers.Reshape((64, 128))(x)
    for _ in range(4):
        x = _encoder(x, 128, 4)
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.Flatten()(x)))


def recommender() -> Any:
    import keras
    from keras import layers

    user = keras.Input((1,), dtype="int32", name="user")
    item = keras.Input((1,), dtype="int32", name="item")
    left = layers.Flatten()(layers.Embedding(20000, 32)(user))
    right = layers.Flatten()(layers.Embedding(8000, 32)(item))
    x = layers.Dense(256, "relu")(layers.Concatenate()([left, right]))
    x = layers.Dense(128, "relu")(x)
    return keras.Model([user, item], layers.Dense(1, "sigmoid")(x))


def multi_input() -> Any:
    import keras
    from keras import layers

    picture = keras.Input((48, 48, 3), name="picture")
    table = keras.Input((20,), name="table")
    x = picture
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
        x = layers.MaxPooling2D()(x)
    x = layers.GlobalAveragePooling2D()(x)
    y = layers.Dense(128, "tanh")(table)
    x = layers.Dense(128, "relu")(layers.Concatenate()([x, y]))
    return keras.Model([picture, table], layers.Dense(10, "softmax")(x))


def two_outputs() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((56, 56, 3))
    for filters in (24, 48, 96):
        x = layers.SeparableConv2D(filters, 3, padding="same", activation="swish")(x)
        x = layers.GroupNormalization(8)(x)
        x = layers.AveragePooling2D(2)(x)
    x = layers.GlobalMaxPooling2D()(x)
    return keras.Model(inputs, [layers.Dense(10, "softmax")(x), layers.Dense(1, "sigmoid")(x)])


def custom_train_step() -> Any:
    import keras
    import tensorflow as tf
    from keras import layers

    class Noisy(keras.Model):
        """Trains on noisy pictures and clips the gradients by hand."""

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                prediction = self(x + tf.random.normal(tf.shape(x), stddev=0.1), training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=prediction)
            gradients = tape.gradient(loss, self.trainable_variables)
            gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    inputs = x = keras.Input((48, 48, 3))
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(
            _conv(x, filters)
        )
    x = layers.GlobalAveragePooling2D()(x)
    return Noisy(inputs, layers.Dense(10, "softmax")(x))


def subclassed() -> Any:
    import keras
    from keras import layers

    class Mixer(keras.Model):
        """Mixes patches and channels in turn, written as a subclass."""

        def __init__(self) -> None:
            super().__init__()
            self.patches = layers.Conv2D(96, 4, strides=4)
            self.norms = [layers.LayerNormalization() for _ in range(6)]
            self.mixers = [
                layer
                for _ in range(3)
                for layer in (layers.Dense(256, "gelu"), layers.Dense(256, "gelu"))
            ]
            self.back = [layer for _ in range(3) for layer in (layers.Dense(196), layers.Dense(96))]
            self.reshape = layers.Reshape((196, 96))
            self.swap = layers.Permute((2, 1))
            self.pool = layers.GlobalAveragePooling1D()
            self.head = layers.Dense(10, "softmax")

        def call(self, inputs: Any, training: bool = False) -> Any:
            x = self.reshape(self.patches(inputs))
            for i in range(3):
                y = self.swap(self.norms[2 * i](x))
                x = x + self.swap(self.back[2 * i](self.mixers[2 * i](y)))
                x = x + self.back[2 * i + 1](self.mixers[2 * i + 1](self.norms[2 * i + 1](x)))
            return self.head(self.pool(x))

    model = Mixer()
    model(keras.Input((56, 56, 3)))
    return model


def autoencoder() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 4, strides=2, padding="same")(x)
        x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    for filters in (64, 32):
        x = layers.Conv2DTranspose(filters, 4, strides=2, padding="same", activation="relu")(x)
    x = layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="sigmoid")(x)
    return keras.Model(inputs, x)


def audio_conv1d() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((4000, 1))
    for filters in (32, 64, 128):
        x = layers.Conv1D(filters, 9, strides=2, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling1D(4)(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax")(x))


def video_conv3d() -> Any:
    import keras
    from keras import layers

    inputs = x = keras.Input((8, 32, 32, 3))
    for filters in (16, 32):
        x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling3D()(x)
    x = layers.Flatten()(x)
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.Dense(64, "relu")(x)))


def frozen_base() -> Any:
    import keras
    from keras import layers

    base = keras.applications.MobileNet(
        weights=None, include_top=False, input_shape=(64, 64, 3), pooling="avg"
    )
    base.trainable = False
    x = layers.Dropout(0.2)(base(base.input, training=False))
    return keras.Model(base.input, layers.Dense(10, "softmax")(layers.Dense(128, "relu")(x)))


CROSS_ENTROPY = "sparse_categorical_crossentropy"

CALIBRATION = (
    Case("mlp", mlp, (512, 4096)),
    Case("cnn", cnn, (16, 64)),
    Case("vgg_like", vgg_like, (16, 48)),
    Case("unet", unet, (8, 32)),
    Case("lstm", lstm, (64, 256)),
    Case("transformer", transformer, (4, 16)),
    Case("recommender", recommender, (4096, 32768), "binary_crossentropy"),
    Case("multi_input", multi_input, (16, 64)),
    Case("custom_train_step", custom_train_step, (16, 64)),
    Case("resnet50", _application("ResNet50"), (8, 32)),
    Case("mobilenet_v2", _application("MobileNetV2"), (16, 48)),
    Case("densenet121", _application("DenseNet121"), (8, 24)),
    Case("efficientnet_b0", _application("EfficientNetB0"), (8, 32)),
)

HELD_OUT = (
    Case("unet_batch_norm", unet_batch_norm, (8, 32), "binary_crossentropy"),
    Case("gru", gru, (128, 512)),
    Case("text_bilstm", text_bilstm, (128, 512)),
    Case("language_model", language_model, (8, 32)),
    Case("vision_transformer", vision_transformer, (8, 32)),
    Case("subclassed", subclassed, (8, 32)),
    Case("two_outputs", two_outputs, (16, 64), "sparse_categorical_crossentropy+mse"),
    Case("autoencoder", autoencoder, (16, 64), "mse"),
    Case("audio_conv1d", audio_conv1d, (16, 64)),
    Case("video_conv3d", video_conv3d, (16, 48)),
    Case("frozen_base", frozen_base, (32, 96)),
    Case("vgg16", _application("VGG16"), (4, 16)),
    Case("resnet50_v2", _application("ResNet50V2"), (8, 24)),
    Case("mobilenet_v3_small", _application("MobileNetV3Small"), (16, 64)),
    Case("xception", _application("Xception", 72), (4, 16)),
    Case("inception_v3", _application("InceptionV3", 76), (8, 24)),
    Case("nasnet_mobile", _application("NASNetMobile"), (8, 24)),
    Case("efficientnet_v2_b0", _application("EfficientNetV2B0"), (8, 32)),
    Case("convnext_tiny", _application("ConvNeXtTiny"), (4, 16)),
)

CASES = CALIBRATION + HELD_OUT


def compiled(case: Case, optimizer: str, precision: str) -> Any:
    """Return the case's model, compiled with one optimizer under one dtype policy."""
    import keras

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(precision)
    model = case.build()
    if case.fed:
        return model
    loss = case.loss.split("+")
    model.compile(optimizer=optimizer, loss=loss if len(loss) > 1 else loss[0], jit_compile=False)
    return model


def specs(case: Case, model: Any, batch: int | None) -> tuple[Any, Any]:
    """Return the TensorSpecs of inputs and targets with the given batch dimension."""
    import tensorflow as tf

    inputs = getattr(model, "inputs", None) if case.name != "subclassed" else None
    if inputs:
        x = [tf.TensorSpec((batch, *i.shape[1:]), i.dtype, name=i.name) for i in inputs]
    else:
        x = [tf.TensorSpec((batch, 56, 56, 3), "float32")]
    outputs = model.outputs if inputs else [None]
    y = []
    for loss, output in zip(case.loss.split("+"), outputs, strict=True):
        shape = tuple(output.shape[1:]) if output is not None else (10,)
        if loss.startswith("sparse"):
            y.append(tf.TensorSpec((batch, *shape[:-1]), "int32"))
        else:
            y.append(tf.TensorSpec((batch, *shape), "float32"))
    return (x if len(x) > 1 else x[0]), (y if len(y) > 1 else y[0])


def __getattr__(name: str) -> Any:
    """Let `estimate_models:mlp__adam__float32` name a compiled model."""
    case_name, _, rest = name.partition("__")
    optimizer, _, precision = rest.partition("__")
    for case in CASES:
        if case.name == case_name and precision:
            return lambda: compiled(case, optimizer, precision)
    raise AttributeError(name)
