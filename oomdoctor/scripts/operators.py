"""What arithmetic and indexing give."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts import checks_copies, checks_data, checks_pictures
from oomdoctor.scripts.layout import Layout
from oomdoctor.scripts.values import (
    Array,
    Dataset,
    Items,
    Length,
    Listing,
    Maker,
    Number,
    Picture,
    Sequence,
    Shape,
    Tensor,
    Text,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

PIXEL_SCALES = (255, 256, 127.5, 128)
"""What arrays of unknown dtype are divided by only where they hold pixels of one byte."""

FEW_NAMES = 1000
"""Files that a slice may leave for them to be a few."""
LARGEST = 2**53
"""Numbers beyond this are no sizes, their products could grow without end, and reports could not
print them."""

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def binary(walker: Walker, node: ast.BinOp, left: Value, right: Value) -> Value:
    """Return what an operation gives, and tell where bytes become float64."""
    if isinstance(left, Number) and isinstance(right, Number):
        return _number(node.op, left, right)
    if isinstance(left, Array):
        return _array(walker, node, left, right, node.left)
    if isinstance(right, Array):
        return _array(walker, node, right, left, node.right)
    if isinstance(left, Picture):
        return _picture(node, left, right)
    if isinstance(right, Picture):
        return _picture(node, right, left)
    if isinstance(left, Sequence):
        checks_pictures.consumed(walker, left)
        checks_pictures.consumed(walker, right)
        return left if isinstance(node.op, ast.Add) else None
    if isinstance(left, Shape):
        return Shape(is_share=left.is_share or isinstance(node.op, ast.FloorDiv))
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Tensor):
            is_scalar = one.is_scalar and (
                isinstance(other, Number) or (isinstance(other, Tensor) and other.is_scalar)
            )
            return Tensor(is_scalar=is_scalar, layout=one.layout, is_picture=one.is_picture)
    return None


def number(value: float, varies: bool = False) -> Number:
    """Return a number, its value unknown if it can be no size."""
    return Number(value if abs(value) <= LARGEST else None, varies)


def _number(op: ast.operator, left: Number, right: Number) -> Number:
    varies = left.varies or right.varies
    function = _ARITHMETIC.get(type(op))
    if function is None or left.value is None or right.value is None:
        return Number(varies=varies)
    try:
        return number(function(left.value, right.value), varies)
    except (ArithmeticError, ValueError):
        return Number(varies=varies)


def _array(walker: Walker, node: ast.BinOp, array: Array, other: Value, source: ast.expr) -> Value:
    checks_copies.made(walker, node, source, array)
    if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        return replace(array, load=None, is_mapped=False)
    if not isinstance(other, Number):
        is_bytes = array.dtype == "uint8"
        return replace(array, load=None, is_mapped=False, dtype=None if is_bytes else array.dtype)
    is_float = isinstance(other.value, float) or isinstance(node.op, ast.Div)
    is_division = isinstance(node.op, ast.Div) and other.value in PIXEL_SCALES
    if array.size not in ("small", "part", "text") and (
        (array.dtype == "uint8" and is_float) or (array.dtype is None and is_division)
    ):
        # A number on the right can be made a float32 of NumPy, where NumPy has a name.
        can_fix = isinstance(node.right, ast.Constant) and walker.numpy_name is not None
        checks_data.widened(
            walker, node, array, node.left, can_fix=can_fix, numpy=walker.numpy_name
        )
        return replace(array, dtype="float64", is_mapped=False)
    return replace(array, is_mapped=False)


def _picture(node: ast.BinOp, picture: Picture, other: Value) -> Picture:
    """Return an image after arithmetic: bytes become float64 as soon as a fraction is in it."""
    dtype, widened = picture.layout.dtype, picture.widened
    scale = other.value if isinstance(other, Number) else None
    is_division = isinstance(node.op, ast.Div)
    is_scaled = is_division and isinstance(scale, float) and scale in PIXEL_SCALES
    is_widened = dtype == "uint8" and (is_division or isinstance(scale, float))
    if is_widened or (dtype is None and is_scaled):
        dtype, widened = "float64", node
    return Picture(Layout(picture.layout.dims, dtype), picture.node, widened)


def subscript(
    walker: Walker, whole: ast.Subscript, holder: Value, node: ast.expr, index: Value
) -> Value:
    """Return a part of a value."""
    if isinstance(holder, Items):
        return _part(holder, index)
    if isinstance(holder, Array):
        return _slice(walker, whole, holder, node, index)
    if isinstance(holder, Maker):
        return _of_maker(holder, node, index)
    if isinstance(holder, Sequence):
        if isinstance(node, ast.Slice):
            return None if holder.pictures is None and _is_few(walker, node) else holder
        return _element(holder, index)
    if isinstance(holder, Listing):
        return _of_listing(walker, holder, node, index)
    if isinstance(holder, Picture):
        return holder if _keeps(node) else Picture(Layout(None, holder.layout.dtype), holder.node)
    if isinstance(holder, Shape):
        return holder
    if isinstance(holder, Tensor):
        return Tensor(is_scalar=False)
    return None


def _element(items: Sequence, index: Value) -> Value:
    if items.parts and isinstance(index, Number) and isinstance(index.value, int):
        is_inside = -len(items.parts) <= index.value < len(items.parts)
        return items.parts[index.value] if is_inside else items.item
    return items.item


def _is_few(walker: Walker, node: ast.Slice) -> bool:
    """Return whether a slice leaves a few things only."""
    bound = walker.value(node.upper) if isinstance(node.upper, (ast.Constant, ast.Name)) else None
    size = bound.value if isinstance(bound, Number) else None
    return size is not None and 0 <= size < FEW_NAMES


def _of_listing(walker: Walker, listing: Listing, node: ast.expr, index: Value) -> Value:
    """Return a part of names of files or of a table; a few of them are no dataset."""
    if listing.kind == "table":
        return Listing("rows")
    if isinstance(node, ast.Slice):
        return None if _is_few(walker, node) else listing
    return listing if listing.kind == "walk" and isinstance(index, Number) else None


def _keeps(node: ast.expr) -> bool:
    """Return whether an index only turns an image, or its channels, round."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    for part in parts:
        is_dots = isinstance(part, ast.Constant) and part.value is Ellipsis
        is_all = isinstance(part, ast.Slice) and part.lower is None and part.upper is None
        if not is_dots and not is_all:
            return False
    return True


def _part(holder: Items, index: Value) -> Value:
    if not isinstance(index, Number) or not isinstance(index.value, int):
        return None
    return (
        holder.parts[index.value] if -len(holder.parts) <= index.value < len(holder.parts) else None
    )


def _slice(
    walker: Walker, whole: ast.Subscript, array: Array, node: ast.expr, index: Value
) -> Value:
    if isinstance(index, Text):
        return replace(array, is_packed=True)
    first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
    if not isinstance(first, ast.Slice):
        is_tuple = isinstance(node, ast.Tuple) and isinstance(first, ast.Constant)
        if is_tuple and first.value is Ellipsis:  # type: ignore[attr-defined]
            return array
        is_fancy = isinstance(first, ast.Compare) or index == Maker("index")
        if is_fancy:  # what fits a condition, or a list of places, as a copy
            checks_copies.made(walker, whole, whole.value, array)
            return replace(array, is_mapped=False, count=None)
        return None
    bounds = [bound for bound in (first.lower, first.upper) if bound is not None]
    if len(bounds) == 2:
        return None  # a piece, as of one batch
    if isinstance(first.upper, ast.Constant):
        return replace(array, size="small")
    return replace(array, count=None) if bounds else array


def _of_maker(holder: Maker, node: ast.expr, index: Value) -> Value:
    if holder.kind == "shape":
        return _of_shape(holder, index)
    if holder.kind == "splits":
        return Dataset(is_batched=False, content="samples")
    if holder.kind == "h5file":
        return Maker("h5data", source=holder.source)
    if holder.kind == "h5data":
        is_all = isinstance(node, ast.Slice) and node.lower is None and node.upper is None
        is_empty = isinstance(node, ast.Tuple) and not node.elts
        is_dots = isinstance(node, ast.Constant) and node.value is Ellipsis
        return Array(load=node_of(holder), is_hdf5=True) if is_all or is_empty or is_dots else None
    return None


def node_of(holder: Maker) -> Any:
    """Return the call that opened a file."""
    return holder.source


def _of_shape(shape: Maker, index: Value) -> Value:
    """Return one number of a shape."""
    place = index.value if isinstance(index, Number) else None
    if place == 0:
        return Length()
    dims = shape.source.dims if isinstance(shape.source, Array) else None
    if dims is not None and isinstance(place, int) and 0 < place <= len(dims):
        size = dims[place - 1]
        return Number(size) if size is not None else None
    return None
