"""What arithmetic and indexing give."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts.values import (
    Array,
    Dataset,
    Items,
    Length,
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
        return _array(walker, node, left, right)
    if isinstance(right, Array):
        return _array(walker, node, right, left)
    if isinstance(left, Picture):
        return left
    if isinstance(left, Shape):
        return Shape(is_share=left.is_share or isinstance(node.op, ast.FloorDiv))
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Tensor):
            is_scalar = one.is_scalar and (
                isinstance(other, Number) or (isinstance(other, Tensor) and other.is_scalar)
            )
            return Tensor(is_scalar=is_scalar)
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


def _array(walker: Walker, node: ast.BinOp, array: Array, other: Value) -> Value:
    if not isinstance(other, Number):
        return replace(array, load=None, is_mapped=False)
    is_float = isinstance(other.value, float) or isinstance(node.op, ast.Div)
    is_division = isinstance(node.op, ast.Div) and other.value in PIXEL_SCALES
    if array.size != "small" and (
        (array.dtype == "uint8" and is_float) or (array.dtype is None and is_division)
    ):
        # A number on the right can be made a float32 of NumPy, where NumPy has a name.
        can_fix = isinstance(node.right, ast.Constant) and walker.numpy_name is not None
        walker.tell(
            "bytes-to-float64",
            node,
            name=_name(node.left),
            detail=walker.numpy_name,
            is_fixable=can_fix,
        )
        return replace(array, dtype="float64", is_mapped=False)
    return replace(array, is_mapped=False)


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def subscript(holder: Value, node: ast.expr, index: Value) -> Value:
    """Return a part of a value."""
    if isinstance(holder, Items):
        return _part(holder, index)
    if isinstance(holder, Array):
        return _slice(holder, node, index)
    if isinstance(holder, Maker):
        return _of_maker(holder, node, index)
    if isinstance(holder, Sequence):
        return holder.item
    if isinstance(holder, (Shape, Picture)):
        return holder
    if isinstance(holder, Tensor):
        return Tensor(is_scalar=False)
    return None


def _part(holder: Items, index: Value) -> Value:
    if not isinstance(index, Number) or not isinstance(index.value, int):
        return None
    return (
        holder.parts[index.value] if -len(holder.parts) <= index.value < len(holder.parts) else None
    )


def _slice(array: Array, node: ast.expr, index: Value) -> Value:
    if isinstance(index, Text):
        return replace(array, is_packed=True)
    first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
    if not isinstance(first, ast.Slice):
        is_tuple = isinstance(node, ast.Tuple) and isinstance(first, ast.Constant)
        return array if is_tuple and first.value is Ellipsis else None  # type: ignore[attr-defined]
    bounds = [bound for bound in (first.lower, first.upper) if bound is not None]
    if len(bounds) == 2:
        return None  # a piece, as of one batch
    if isinstance(first.upper, ast.Constant):
        return replace(array, size="small")
    return array


def _of_maker(holder: Maker, node: ast.expr, index: Value) -> Value:
    if holder.kind == "shape":
        return Length() if isinstance(index, Number) and index.value == 0 else None
    if holder.kind == "splits":
        return Dataset(is_batched=False, content="samples")
    if holder.kind == "h5file":
        return Maker("h5data")
    if holder.kind == "h5data":
        is_all = isinstance(node, ast.Slice) and node.lower is None and node.upper is None
        is_empty = isinstance(node, ast.Tuple) and not node.elts
        is_dots = isinstance(node, ast.Constant) and node.value is Ellipsis
        return Array() if is_all or is_empty or is_dots else None
    return None
