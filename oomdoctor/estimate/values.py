"""The small whole numbers that shapes follow from: axes, sizes, loop counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomdoctor.estimate.nodes import Node
from oomdoctor.estimate.shapes import strided
from oomdoctor.estimate.tensors import Dims, Tensor, Unknown, Value, count, ints

MAX_VALUES = 64
"""Longer lists are data, not shapes."""


def value_of(node: Node, x: list[Tensor], dims: Dims) -> Value:
    """Return the whole numbers an operation gives, where they can matter to a shape."""
    rule = _VALUES.get(node.op)
    if rule is None:
        return None
    try:
        return rule(node, x, dims)
    except (Unknown, TypeError, ValueError, ZeroDivisionError, IndexError):
        return None


def _pairwise(act: Callable[[Any, Any], Any]) -> Callable[[Node, list[Tensor], Dims], Value]:
    def rule(node: Node, x: list[Tensor], dims: Dims) -> Value:
        a, b = x[0].value, x[1].value
        if a is None or b is None:
            return None
        if not dims:
            a = a[0] if isinstance(a, list) else a
            b = b[0] if isinstance(b, list) else b
            return act(a, b)
        n = dims[0]
        a = a * n if isinstance(a, list) and len(a) == 1 else a if isinstance(a, list) else [a] * n
        b = b * n if isinstance(b, list) and len(b) == 1 else b if isinstance(b, list) else [b] * n
        return [act(p, q) for p, q in zip(a, b, strict=True)]

    return rule


def _reduced(act: Callable[[list[Any]], Any]) -> Callable[[Node, list[Tensor], Dims], Value]:
    def rule(node: Node, x: list[Tensor], dims: Dims) -> Value:
        if len(x[0].dims) != 1 or x[0].value is None:
            return x[0].value if not x[0].dims else None
        total = act(ints(x[0]))
        return [total] if dims else total

    return rule


def _product(values: list[Any]) -> Any:
    return count(values)


def _same(node: Node, x: list[Tensor], dims: Dims) -> Value:
    value = x[0].value
    if value is None:
        return None
    if dims and not isinstance(value, list):
        return [value]
    return value[0] if not dims and isinstance(value, list) else value


def _cast(node: Node, x: list[Tensor], dims: Dims) -> Value:
    value, whole = x[0].value, "int" in node.outputs[0].dtype
    if value is None or not whole:
        return value
    return [int(v) for v in value] if isinstance(value, list) else int(value)


def _picked(node: Node, x: list[Tensor], dims: Dims) -> Value:
    if len(x[0].dims) != 1:
        return None
    taken, _ = strided(node, x)
    values = [ints(x[0])[i] for i in taken[0]]
    return values if dims else values[0]


def _gathered(node: Node, x: list[Tensor], dims: Dims) -> Value:
    values = [ints(x[0])[i] for i in ints(x[1])]
    return values if dims else values[0]


def _joined(node: Node, x: list[Tensor], dims: Dims) -> Value:
    return [v for part in x[:-1] for v in (ints(part) if part.dims != (0,) else [])]


def _transposed(node: Node, x: list[Tensor], dims: Dims) -> Value:
    """Return a small matrix of numbers turned over, as the gradient of a tiling needs it."""
    if len(x[0].dims) != 2 or x[1].value != [1, 0]:
        return None
    rows, columns = x[0].dims
    values = ints(x[0])
    return [values[row * columns + column] for column in range(columns) for row in range(rows)]


def _cut(node: Node, x: list[Tensor], dims: Dims) -> Value:
    values, begin = ints(x[0]), ints(x[1])
    if len(dims) == 1:
        return values[begin[0] :][: dims[0]]
    width = x[0].dims[1]
    return [
        values[(begin[0] + row) * width + begin[1] + column]
        for row in range(dims[0])
        for column in range(dims[1])
    ]


def _stitched(node: Node, x: list[Tensor], dims: Dims) -> Value:
    half = len(x) // 2
    merged: dict[int, Any] = {}
    for indices, data in zip(x[:half], x[half:], strict=True):
        merged.update(zip(ints(indices), ints(data), strict=True))
    return [merged[i] for i in range(len(merged))]


_VALUES: dict[str, Callable[[Node, list[Tensor], Dims], Value]] = {
    "Identity": _same,
    "StopGradient": _same,
    "PreventGradient": _same,
    "Reshape": _same,
    "ExpandDims": _same,
    "Squeeze": _same,
    "Cast": _cast,
    "Shape": lambda n, x, d: list(x[0].dims),
    "Size": lambda n, x, d: count(x[0].dims),
    "Rank": lambda n, x, d: len(x[0].dims),
    "StridedSlice": _picked,
    "GatherV2": _gathered,
    "ConcatV2": _joined,
    "Pack": lambda n, x, d: (
        [v for t in x for v in ints(t)] if int(n.attrs.get("axis", 0)) == 0 else None
    ),
    "Transpose": _transposed,
    "Range": lambda n, x, d: list(range(*(ints(t)[0] for t in x))) if d[0] <= MAX_VALUES else None,
    "Fill": lambda n, x, d: (
        None if x[1].value is None else [x[1].value] * count(d) if d else x[1].value
    ),
    "InvertPermutation": lambda n, x, d: [ints(x[0]).index(i) for i in range(d[0])],
    "Slice": _cut,
    "Select": lambda n, x, d: x[1].value if x[0].value else x[2].value,
    "SelectV2": lambda n, x, d: x[1].value if x[0].value else x[2].value,
    "DynamicStitch": _stitched,
    "AddV2": _pairwise(lambda a, b: a + b),
    "Add": _pairwise(lambda a, b: a + b),
    "Sub": _pairwise(lambda a, b: a - b),
    "Mul": _pairwise(lambda a, b: a * b),
    "FloorDiv": _pairwise(lambda a, b: a // b),
    "FloorMod": _pairwise(lambda a, b: a % b),
    "Maximum": _pairwise(max),
    "Minimum": _pairwise(min),
    "Less": _pairwise(lambda a, b: a < b),
    "LessEqual": _pairwise(lambda a, b: a <= b),
    "Greater": _pairwise(lambda a, b: a > b),
    "GreaterEqual": _pairwise(lambda a, b: a >= b),
    "Equal": _pairwise(lambda a, b: a == b),
    "NotEqual": _pairwise(lambda a, b: a != b),
    "LogicalAnd": _pairwise(lambda a, b: a and b),
    "LogicalOr": _pairwise(lambda a, b: a or b),
    "Neg": lambda n, x, d: -x[0].value if not d else [-v for v in ints(x[0])],
    "Prod": _reduced(_product),
    "Sum": _reduced(sum),
    "Max": _reduced(max),
    "Min": _reduced(min),
}
