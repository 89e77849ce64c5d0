"""What calls give that build, train or ask a model, or run it on several devices."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from oomdoctor.scripts import checks_data, checks_loops
from oomdoctor.scripts.calls_arrays import dtype_name
from oomdoctor.scripts.calls_pictures import numbers, resized, whole
from oomdoctor.scripts.layout import Dims, Layout
from oomdoctor.scripts.names import (
    MODEL_MAKERS,
    SCALAR_GIVERS,
    STRATEGIES,
    TENSOR_GIVERS,
)
from oomdoctor.scripts.values import (
    Dataset,
    Maker,
    Model,
    Number,
    Other,
    Sequence,
    Shape,
    Strategy,
    Symbolic,
    Tensor,
    Text,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

OLD_ARGUMENTS = {
    "fit_generator": ("x", "steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data",
                      "validation_steps", "validation_freq", "class_weight"),
    "evaluate_generator": ("x", "steps", "callbacks"),
    "predict_generator": ("x", "steps", "callbacks"),
}  # fmt: skip
"""What the old methods took by place, as far as `fit`, `evaluate` and `predict` still take it."""
_STILL_KNOWN = frozenset(("generator", "shuffle", "initial_epoch", "verbose"))
IMAGE_RANK = 3
"""Axes of an image: height, width, channels."""
_TRAINING = frozenset(("fit", "train_on_batch"))
_ASKING = frozenset(("evaluate", "predict", "test_on_batch", "predict_on_batch"))


def model_method(
    walker: Walker, node: ast.Call, model: Model, name: str, given: Arguments
) -> Value:
    """Return what a method of a model gives."""
    if old_generator(walker, node, name):
        walker.training(node)
        return Other()
    if name in _TRAINING or name in _ASKING:
        checks_loops.used(walker, model)
    if name in _TRAINING:
        walker.training(node, steps=True)
    if name in ("fit", "evaluate", "predict"):
        data = given.get(0, "x")
        checks_data.handed_over(walker, data)
        checks_data.handed_over(walker, given.keywords.get("validation_data"))
        if name == "predict":
            checks_loops.predicted(walker, node, model)
        elif name == "fit":
            _shared(walker, node, model, data, given)
    if name in _TRAINING or name in _ASKING or name in ("compile", "summary", "save"):
        return Other()
    return None


def old_generator(walker: Walker, node: ast.Call, name: str) -> bool:
    """Tell of a method that newer versions no longer have."""
    if name not in OLD_ARGUMENTS:
        return False
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(holder, ast.Call):  # super().fit_generator(…) is the library's own
        return True
    known = OLD_ARGUMENTS[name]
    is_fixable = (
        len(node.args) + len(node.keywords) > 0
        and len(node.args) <= len(known)
        and not any(isinstance(arg, ast.Starred) for arg in node.args)
        and all(word.arg in _STILL_KNOWN or word.arg in known for word in node.keywords)
    )
    walker.tell("old-generator-method", node, name=name, is_fixable=is_fixable)
    return True


def _shared(walker: Walker, node: ast.Call, model: Model, data: Value, given: Arguments) -> None:
    """Tell of batches that replicas cannot share evenly."""
    size = given.get(2, "batch_size")
    number = size.value if isinstance(size, Number) else None
    if model.gpus and isinstance(number, int) and number % model.gpus:
        walker.tell("split-that-does-not-divide", node, count=number, parts=model.gpus)
    if model.strategy is not None:
        distributed(walker, model.strategy, data)


def distributed(walker: Walker, strategy: Strategy, data: Value) -> None:
    """Tell of a dataset whose last or whole batches replicas cannot share evenly."""
    if not isinstance(data, Dataset) or data.batch is None or data.content == "small":
        return
    if strategy.replicas and data.batch_size and data.batch_size % strategy.replicas:
        walker.tell(
            "split-that-does-not-divide",
            data.batch,
            count=data.batch_size,
            parts=strategy.replicas,
        )
    elif not data.drops and isinstance(data.batch.func, ast.Attribute):
        walker.tell("partial-batch-under-strategy", data.batch, count=data.batch_size)


def strategy_method(
    walker: Walker, node: ast.Call, strategy: Strategy, name: str, given: Arguments
) -> Value:
    """Return what a method of a strategy gives."""
    if name == "scope":
        return Maker("scope", strategy)
    if name == "experimental_distribute_dataset":
        data = given.get(0, "dataset")
        distributed(walker, strategy, data)
        return Maker("distributed", Tensor(is_input=True))
    if name == "run":
        walker.training(node, steps=True)
        return Tensor()
    return Tensor(is_scalar=True) if name == "reduce" else None


def make_model_part(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return what a function of TensorFlow or Keras gives."""
    last = name.rpartition(".")[2]
    if name in MODEL_MAKERS or (name.startswith("keras.applications.") and last[:1].isupper()):
        return Model()
    if name == "keras.utils.multi_gpu_model":
        gpus = given.get(1, "gpus")
        number = gpus.value if isinstance(gpus, Number) else None
        return Model(gpus=number if isinstance(number, int) else None)
    if name in STRATEGIES:
        return Strategy(_listed(given.expression(0, "devices")))
    if name in ("keras.Input", "keras.layers.Input"):
        _seen_input(walker, given.get(0, "shape"))
        return Symbolic()
    if last == "set_floatx":
        if given.get(0, "value") == Text("float64"):
            walker.tell("floatx-of-64-bits", node)
        return Other()
    if "input_shape" in given:
        _seen_input(walker, given.keywords["input_shape"])
    if last == "shuffle_and_repeat":
        return Maker("shuffle", given.get(0, "buffer_size"))
    if name.startswith("keras.losses.") and last[:1].isupper():
        return Maker("loss") if "reduction" not in given else Maker("layer")
    if name.startswith("keras."):
        return _of_keras(name, last, given)
    return _of_tensorflow(walker, node, name, last, given)


def _seen_input(walker: Walker, value: Value) -> None:
    """Remember the shape of the model's input, if it may be an image."""
    dims = numbers(None, value)
    if dims is not None and len(dims) == IMAGE_RANK and walker.state is None:
        walker.state = dims


def _listed(devices: ast.expr | None) -> int | None:
    return len(devices.elts) if isinstance(devices, (ast.List, ast.Tuple)) else None


def _of_keras(name: str, last: str, given: Arguments) -> Value:
    if name.startswith(("keras.layers.", "keras.metrics.")):
        return Maker("layer")
    if last == "ImageDataGenerator":
        return Maker("datagen")
    if name.startswith("keras.optimizers."):
        return Maker("optimizer")
    if name.startswith("keras.ops."):
        return Symbolic() if any(isinstance(arg, Symbolic) for arg in given.args) else Tensor()
    return None


def _of_tensorflow(walker: Walker, node: ast.Call, name: str, last: str, given: Arguments) -> Value:
    if name == "tensorflow.GradientTape":
        walker.training(node)
        return Maker("tape")
    if name in ("tensorflow.constant", "tensorflow.convert_to_tensor", "tensorflow.Variable"):
        checks_data.constant(walker, node, given)
        return Tensor()
    if name == "tensorflow.shape":
        return Shape()
    first = given.args[0] if given.args else None
    parts = first.item if isinstance(first, Sequence) else None
    if isinstance(parts, Shape) and name in ("tensorflow.concat", "tensorflow.stack"):
        return parts
    if name == "tensorflow.slice":
        size = given.get(2, "size")
        if isinstance(size, Shape) and size.is_share:
            walker.tell("split-that-does-not-divide", node)
        return Tensor()
    if name == "tensorflow.split":
        _split(walker, node, given)
        return Maker("parts", Tensor())
    if any(isinstance(arg, Symbolic) for arg in given.args):
        return Symbolic()
    picture = _of_images(last, first, given)
    if picture is not None:
        return picture
    if name in SCALAR_GIVERS:
        return Tensor(is_scalar=len(given.args) == 1 and "axis" not in given)
    if name.startswith(TENSOR_GIVERS) or (name.count(".") == 1 and last.islower()):
        return Tensor()
    return None


_DECODERS = frozenset(
    ("decode_bmp", "decode_gif", "decode_image", "decode_jpeg", "decode_png",
     "decode_and_crop_jpeg")
)  # fmt: skip
_SIZED = {"resize": 1, "resize_with_pad": 1, "resize_with_crop_or_pad": 1, "random_crop": 1}
_KEEPING = frozenset(
    ("adjust_brightness", "adjust_contrast", "clip_by_value", "flip_left_right", "flip_up_down",
     "per_image_standardization", "random_brightness", "random_contrast", "random_flip_left_right",
     "random_flip_up_down", "random_hue", "random_saturation", "rot90", "squeeze")
)  # fmt: skip


def _of_images(last: str, first: Value, given: Arguments) -> Tensor | None:
    """Return what a function of `tf.image` gives, with its size as far as the code says it."""
    if last in _DECODERS:
        channels = given.get(1, "channels")
        number = channels.value if isinstance(channels, Number) else None
        shape: Dims = (None, None, number if isinstance(number, int) and number else None)
        return Tensor(layout=Layout(shape, "uint8"), is_picture=True)
    if not isinstance(first, Tensor) or not (first.is_picture or first.layout):
        return None
    layout = first.layout or Layout()
    if last in _SIZED:
        size = numbers(None, given.get(1, "size"))
        if size is None:
            height, width = given.get(1, "target_height"), given.get(2, "target_width")
            size = (whole(height), whole(width))
        dtype = "float32" if last.startswith("resize") else layout.dtype
        return Tensor(layout=Layout(resized(layout, size).dims, dtype), is_picture=first.is_picture)
    if last in ("cast", "convert_image_dtype"):
        dtype = dtype_name(given.get(1, "dtype"))
        return Tensor(layout=Layout(layout.dims, dtype), is_picture=first.is_picture)
    if last == "reshape":
        dims = numbers(None, given.get(1, "shape"))
        return Tensor(layout=Layout(dims, layout.dtype), is_picture=first.is_picture)
    if last == "rgb_to_grayscale" and layout.dims and len(layout.dims) > 1:
        return Tensor(layout=Layout((*layout.dims[:2], 1), layout.dtype), is_picture=True)
    if last in _KEEPING:
        return Tensor(layout=layout, is_picture=first.is_picture)
    return None


def _split(walker: Walker, node: ast.Call, given: Arguments) -> None:
    tensor, parts = given.get(0, "value"), given.get(1, "num_or_size_splits")
    axis = given.get(2, "axis")
    if isinstance(axis, Number) and axis.value != 0:
        return
    number = parts.value if isinstance(parts, Number) else None
    size = tensor.batch_size if isinstance(tensor, Tensor) else None
    if size and isinstance(number, int) and number and size % number:
        walker.tell("split-that-does-not-divide", node, count=size, parts=number)
