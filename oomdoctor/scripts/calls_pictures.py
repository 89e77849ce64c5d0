"""What calls give that read an image or change one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts.layout import Dims, Layout
from oomdoctor.scripts.names import COLOR_LOADERS, NOT_PICTURES, PICTURE_READERS, PICTURE_TO_ARRAY
from oomdoctor.scripts.values import Array, Items, Number, Other, Picture, Sequence, Text, Value

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

_SAME = frozenset(
    ("PIL.Image.fromarray", "keras.utils.array_to_img", "keras.preprocessing.image.array_to_img",
     "SimpleITK.GetArrayFromImage", "SimpleITK.Cast")
)  # fmt: skip
_OF_SKIMAGE = ("transform", "color", "util", "exposure", "filters", "restoration", "morphology")
_GRAY = ("COLOR_BGR2GRAY", "COLOR_RGB2GRAY")
_KEEPING = frozenset(
    ("copy", "crop", "filter", "point", "rotate", "transpose", "clip", "squeeze", "swapaxes",
     "to_rgb")
)  # fmt: skip


def numbers(node: ast.expr | None, value: Value) -> Dims | None:
    """Return the numbers of a tuple or a list, unknown ones as None."""
    parts: tuple[Value, ...] | None = None
    if isinstance(value, Items) or (isinstance(value, Sequence) and value.parts):
        parts = value.parts
    if parts is None or len(parts) > 8:
        return None
    return tuple(whole(part) for part in parts)


def whole(value: Value) -> int | None:
    """Return a number that may be a size."""
    if isinstance(value, Number) and isinstance(value.value, (int, float)) and not value.varies:
        return int(value.value) if value.value == int(value.value) and value.value >= 0 else None
    return None


def make_picture(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return the image that a function reads or changes, or None."""
    last = name.rpartition(".")[2]
    if name in PICTURE_READERS:
        return Picture(_read(name, given), node)
    first = given.args[0] if given.args else None
    if name in PICTURE_TO_ARRAY:
        layout = first.layout if isinstance(first, Picture) else Layout()
        return Picture(Layout(layout.dims, "float32"), node)
    if not isinstance(first, Picture):
        if name == "cv2.resize" and first is None:  # whatever it was, now it is an image
            size = numbers(None, given.get(1, "dsize"))
            return Picture(resized(Layout((None, None, None)), size[::-1] if size else None), node)
        return None
    if last in NOT_PICTURES:
        return Other()
    if name in _SAME:
        return first
    if last == "preprocess_input":
        return Picture(Layout(first.layout.dims, "float32"), first.node)
    if name.startswith("cv2."):
        return _of_opencv(last, first, given)
    if name.startswith("skimage."):
        return _of_skimage(name, first, given)
    if name.startswith("patchify."):
        size = numbers(None, given.get(1, "patch_size"))
        return Picture(Layout(size, first.layout.dtype), first.node)
    return None


def _read(name: str, given: Arguments) -> Layout:
    dtype = PICTURE_READERS[name]
    channels: int | None = 3 if dtype == "uint8" else None
    size: Dims = (None, None)
    if name == "cv2.imread":
        flag = given.expression(1, "flags")
        is_gray = isinstance(flag, ast.Constant) and flag.value == 0
        is_gray = is_gray or getattr(flag, "attr", "") == "IMREAD_GRAYSCALE"
        return Layout((None, None) if is_gray else (None, None, 3), dtype)
    if name in COLOR_LOADERS:
        size = numbers(None, given.get(2, "target_size")) or size
        if given.keywords.get("color_mode") == Text("grayscale"):
            channels = 1
    if name.startswith("skimage.") and ("as_gray" in given or "as_grey" in given):
        return Layout((None, None), "float64")
    return Layout((*size, channels), dtype)


def _of_opencv(last: str, first: Picture, given: Arguments) -> Value:
    layout = first.layout
    if last == "resize":
        size = numbers(None, given.get(1, "dsize"))
        return Picture(resized(layout, size[::-1] if size else None), first.node)
    if last == "cvtColor":
        code = getattr(given.expression(1, "code"), "attr", "")
        if code in _GRAY and layout.dims:
            return Picture(Layout(layout.dims[:2], layout.dtype), first.node)
    return first


def _of_skimage(name: str, first: Picture, given: Arguments) -> Value:
    part = name.split(".")[1]
    if name == "skimage.measure.block_reduce":
        return Picture(Layout(None, "float64"), first.node)
    if part not in _OF_SKIMAGE:
        return Other()
    if name.endswith(".resize"):
        size = numbers(None, given.get(1, "output_shape"))
        layout = resized(first.layout, size)
        return Picture(Layout(layout.dims, "float64"), first.node)
    if part == "color" and "2gray" in name:
        return Picture(Layout((first.layout.dims or (None, None))[:2], "float64"), first.node)
    return first


def resized(layout: Layout, size: Dims | None) -> Layout:
    """Return the layout of an image that gets another height and width."""
    if size is None or len(size) < 2:
        return Layout(None, layout.dtype)
    if len(size) > 2:
        return Layout(size, layout.dtype)
    channels = layout.dims[2:] if layout.dims is not None else (None,)
    return Layout((*size, *channels), layout.dtype)


def picture_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    """Return what a method of an image gives."""
    layout: Layout = holder.layout
    if name == "resize":
        size = numbers(None, given.get(0, "size"))
        return Picture(resized(layout, size[::-1] if size else None), holder.node)
    if name == "convert":
        mode = given.get(0, "mode")
        channels: Dims = () if mode in (Text("L"), Text("1")) else (3,)
        dims = (*(layout.dims or (None, None))[:2], *channels)
        return Picture(Layout(dims, layout.dtype), holder.node)
    if name == "astype":
        dtype = given.get(0, "dtype")
        from oomdoctor.scripts.calls_arrays import dtype_name

        return Picture(Layout(layout.dims, dtype_name(dtype)), holder.node)
    if name in ("flatten", "ravel", "reshape"):
        return Picture(layout, holder.node)
    return holder if name in _KEEPING else Other()


def changed(picture: Picture, dtype: str | None) -> Picture:
    """Return an image with another dtype."""
    return Picture(Layout(picture.layout.dims, dtype), picture.node)


def of_array(value: Value) -> Array | None:
    """Return a value if it is a whole array of images."""
    return value if isinstance(value, Array) and value.pictures is not None else None
