"""What calls give that make or change whole arrays."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from oomdoctor.scripts import checks_copies, checks_data, checks_pictures, checks_sizes
from oomdoctor.scripts.calls_pictures import changed, make_picture, numbers
from oomdoctor.scripts.known_data import KERAS
from oomdoctor.scripts.layout import Dims
from oomdoctor.scripts.names import FLOAT64, NOT_PICTURES, SMALL_PICTURES, TABULAR
from oomdoctor.scripts.values import (
    Array,
    Items,
    Length,
    Maker,
    Number,
    Other,
    Picture,
    Ref,
    Sequence,
    Text,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

_VIEWING = frozenset(
    ("ascontiguousarray", "asarray", "expand_dims", "moveaxis", "squeeze", "swapaxes", "transpose",
     "ravel", "rollaxis")
)  # fmt: skip
_COPYING = frozenset(
    ("array", "copy", "flatten", "repeat", "float32", "float64", "divide", "subtract")
)
_JOINING = frozenset(("append", "concatenate", "dstack", "hstack", "stack", "vstack"))
_PLACES = frozenset(
    ("arange", "argsort", "argwhere", "choice", "flatnonzero", "in1d", "isin", "logical_and",
     "logical_not", "logical_or", "nonzero", "permutation", "where")
)  # fmt: skip
"""Functions that give the places of samples."""
_FILLING = frozenset(("empty", "full", "ndarray", "ones", "zeros"))


def make_array(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return what a function of NumPy, or one that reads files, gives."""
    picture = make_picture(walker, node, name, given)
    if picture is not None:
        return picture
    first = given.args[0] if given.args else None
    if name.startswith(("cv2.", "skimage.", "PIL.", "imageio.")):
        return Other()
    if name == "h5py.File":
        return Maker("h5file", source=node)  # type: ignore[arg-type]
    if name.startswith("keras.datasets.") and name.endswith(".load_data"):
        return _builtin_data(name.split(".")[2])
    if name.endswith(".preprocess_input") or name == "keras.utils.normalize":
        return _normalized(walker, node, name, first, given)
    if name.endswith(".pad_sequences"):
        return Maker("tokens", source=Maker("tokens"))
    if name == "keras.utils.to_categorical" or name.endswith("np_utils.to_categorical"):
        return _one_hot(walker, node, first, given)
    if not name.startswith("numpy."):
        return None
    if name == "numpy.load":
        return _loaded(walker, node, first, given)
    return _of_numpy(walker, node, name.rpartition(".")[2], first, given)


def _loaded(walker: Walker, node: ast.Call, first: Value, given: Arguments) -> Array:
    mode = given.expression(1, "mmap_mode")
    is_mapped = mode is not None and not (isinstance(mode, ast.Constant) and not mode.value)
    is_packed = isinstance(first, Text) and first.value.endswith(".npz")
    # In a loop, or by a function that is told the file, it is one part of many.
    is_part = bool(walker.loops)
    is_told = walker.is_argument(given.expression(0, "file"))
    size = "part" if is_part else "small" if is_told else None
    return Array(load=node, is_mapped=is_mapped, is_packed=is_packed, size=size)


def _normalized(walker: Walker, node: ast.Call, name: str, first: Value, given: Arguments) -> Value:
    """Return what scales a whole array gives: another one, of floats."""
    if not isinstance(first, Array):
        return None
    checks_copies.made(walker, node, given.expression(0, "x"), first)
    is_float = name.endswith("preprocess_input") or first.dtype not in (None, "uint8")
    if not is_float and first.size != "small":
        checks_data.widened(walker, node, first, given.expression(0, "x"))
    return replace(first, dtype="float32" if is_float else "float64", load=None)


def _one_hot(walker: Walker, node: ast.Call, first: Value, given: Arguments) -> Value:
    if isinstance(first, Array) and (first.pictures is not None or _is_text(first)):
        checks_sizes.one_hot(walker, node, first, given)
        return Array(dtype="float32", pictures=first.pictures)
    is_text = isinstance(first, Maker) and first.kind == "tokens"
    if is_text and not any(function.yields for function in walker.functions):
        walker.tell("one-hot-labels", node, detail="text")
    return Other() if first is not None else None


def _is_text(array: Array) -> bool:
    return array.dims is not None and array.size == "tokens"


def _of_numpy(walker: Walker, node: ast.Call, name: str, first: Value, given: Arguments) -> Value:
    dtype = dtype_name(given.keywords.get("dtype"))
    if isinstance(first, Picture):
        if name in NOT_PICTURES:
            return Other()
        return first if dtype is None else changed(first, dtype)
    if name in _FILLING:
        return _filled(walker, node, name, given, dtype)
    source = given.expression(0, "a")
    if name in ("array", "asarray"):
        dtype = dtype or dtype_name(given.get(1, "dtype"))
    if isinstance(first, Array):
        return _of_array(walker, node, name, first, source, dtype, given)
    if name == "reshape" and isinstance(first, Sequence):
        name = "array"
    if name in ("array", "asarray", "stack", *_JOINING):
        if isinstance(first, Maker) and first.kind == "h5data":
            return Array(dtype=dtype, load=node, is_hdf5=True)
        if isinstance(first, Items):
            return _joined(walker, node, name, first, source, dtype)
        if isinstance(first, Sequence):
            checks_copies.made(walker, node, source, first)
            return _of_list(walker, node, first, dtype, source)
        return None
    return Maker("index") if name in _PLACES else Other()


def _of_array(
    walker: Walker,
    node: ast.Call,
    name: str,
    first: Array,
    source: ast.expr | None,
    dtype: str | None,
    given: Arguments,
) -> Value:
    if name == "reshape":
        return _reshaped(first, numbers(None, given.get(1, "newshape")))
    if name in _VIEWING:
        dims = first.dims if name in ("ascontiguousarray", "asarray") else None
        dims = (*first.dims, 1) if name == "expand_dims" and first.dims else dims
        return replace(first, dtype=dtype or first.dtype, dims=dims)
    if name in _COPYING:
        checks_copies.made(walker, node, source, first)
        width = name if name.startswith("float") else dtype or first.dtype
        if name in ("divide", "subtract") and width == "uint8":
            width = "float64"
        return replace(first, dtype=width, is_mapped=False)
    if name in _JOINING:
        checks_copies.made(walker, node, source, first)
        return replace(first, load=None, is_mapped=False, dtype=dtype or first.dtype, count=None)
    return Other()


def _reshaped(array: Array, dims: Dims | None) -> Array:
    return replace(array, dims=dims[1:] if dims and None not in dims[1:] else None)


def _joined(
    walker: Walker,
    node: ast.Call,
    name: str,
    parts: Items,
    source: ast.expr | None,
    dtype: str | None,
) -> Value:
    """Return arrays that are put together: a copy of each."""
    elements = source.elts if isinstance(source, (ast.Tuple, ast.List)) else []
    for element, part in zip(elements, parts.parts, strict=False):
        if isinstance(part, (Array, Sequence)):
            checks_copies.made(walker, node, element, part)
    first = parts.parts[0] if parts.parts else None
    if isinstance(first, Sequence):
        return _of_list(walker, node, first, dtype, None)
    if isinstance(first, Array):
        return replace(first, is_mapped=False, dtype=dtype or first.dtype, count=None)
    return None


def _of_list(
    walker: Walker, node: ast.Call, items: Sequence, dtype: str | None, source: ast.expr | None
) -> Value:
    item = items.item
    checks_pictures.consumed(walker, items)
    if items.pictures is not None:
        kept = item.layout if isinstance(item, Picture) else None
        was_wide = kept is not None and kept.dtype == "float64"
        if dtype == "float64" and items.is_whole and not was_wide:
            wide = Array(is_whole=True, dims=kept.dims if kept else None)
            checks_data.widened(walker, node, wide, source)
        return Array(
            is_whole=items.is_whole,
            dtype=dtype or (kept.dtype if kept else None),
            dims=kept.dims if kept else None,
            pictures=items.pictures,
        )
    if isinstance(item, Array):
        return replace(item, load=None, is_mapped=False, dtype=dtype or item.dtype)
    return None


def _filled(
    walker: Walker, node: ast.Call, name: str, given: Arguments, dtype: str | None
) -> Value:
    """Return what `np.zeros` and its kin give, and tell of a size that the code itself says."""
    value = given.get(0, "shape")
    if not isinstance(value, (Items, Sequence, Number)):
        return Other()
    place = given.get(2 if name == "full" else 1, "dtype")
    width = dtype or dtype_name(place) or "float64"
    if isinstance(value, Number):
        return Other()
    dims = numbers(None, value)
    if dims is None or len(dims) < 2:
        return Other()
    parts = value.parts
    array = Array(
        dtype=width,
        count=dims[0],
        dims=dims[1:],
        is_filled=False,
        load=None,
        size="text" if _is_one_hot(parts) else None,
    )
    checks_sizes.allocated(walker, node, array)
    if array.size_bytes is None and not isinstance(parts[0], Length):
        return replace(array, size=array.size or "small")
    return array


def _is_one_hot(parts: tuple[Value, ...]) -> bool:
    """Return whether a shape is that of samples, positions and words."""
    return len(parts) > 2 and isinstance(parts[-1], Length) and isinstance(parts[0], Length)


def _builtin_data(name: str) -> Value:
    if name in TABULAR or name not in KERAS:
        return Items((Items((Other(), Other())), Items((Other(), Other()))))
    size = "small" if name in SMALL_PICTURES else "builtin"
    train, test, dims = KERAS[name]
    pairs = (
        Items((Array(dtype="uint8", size=size, count=count, dims=dims), Other()))
        for count in (train, test)
    )
    return Items(tuple(pairs))


def array_method(
    walker: Walker, node: ast.Call, array: Array, name: str, given: Arguments
) -> Value:
    """Return what a method of an array gives."""
    source = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name == "astype":
        dtype = dtype_name(given.get(0, "dtype"))
        if dtype == "float64" and array.dtype != "float64" and array.size != "small":
            checks_data.float64(walker, node, array)
        keeps = given.expression(4, "copy")
        if not (isinstance(keeps, ast.Constant) and keeps.value is False):
            checks_copies.made(walker, node, source, array, dtype=dtype)
        return replace(array, dtype=dtype, is_mapped=False)
    if name == "reshape":
        value = given.args[0] if given.args else None
        inside = numbers(None, value)
        sizes = tuple(
            arg.value if isinstance(arg, Number) and isinstance(arg.value, int) else None
            for arg in given.args
        )
        return _reshaped(array, inside or sizes)
    if name in ("copy", "flatten"):
        checks_copies.made(walker, node, source, array)
        return array
    return array if name in _VIEWING else Other()


def dtype_name(value: Value) -> str | None:
    """Return the name of a dtype given as a string, as NumPy's, or as Python's `float`."""
    if isinstance(value, Text):
        name = value.value
    elif isinstance(value, Ref):
        name = value.name.rpartition(".")[2]
    else:
        return None
    return "float64" if name in FLOAT64 else name
