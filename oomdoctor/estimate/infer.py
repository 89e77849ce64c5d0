"""Works out the dimensions the trace left open.

The step is traced with a free batch dimension, as `fit` does. When it is simulated at one batch
size, shapes, axes and loop counters are computed as the kernels would; everything else is only a
shape.
"""

from __future__ import annotations

from oomdoctor.estimate.nodes import Node, Shape
from oomdoctor.estimate.shapes import ELEMENTWISE, SHAPES, every
from oomdoctor.estimate.tensors import Dims, Tensor, Unknown, count, ints
from oomdoctor.estimate.values import MAX_VALUES, value_of

_MATRICES = frozenset({"Pack", "Slice", "Transpose"})
"""Operations whose numbers are followed in two dimensions, too."""


def _gradient_axes(x: list[Tensor]) -> tuple[list[int], list[int]]:
    a, b = ints(x[0]) if x[0].dims != (0,) else [], ints(x[1]) if x[1].dims != (0,) else []
    rank = max(len(a), len(b))
    a, b = [1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b
    first = [i for i in range(rank) if a[i] == 1 and (b[i] != 1)]
    second = [i for i in range(rank) if b[i] == 1 and (a[i] != 1)]
    both = [i for i in range(rank) if a[i] == 1 and b[i] == 1]
    return sorted(first + both) if first else [], sorted(second + both) if second else []


def _offsets(x: list[Tensor]) -> list[Tensor]:
    """Return where each part of a concatenation starts."""
    axis, outputs, start = x[0].value, [], 0
    for part in x[1:]:
        if axis is None or part.value is None:
            outputs.append(Tensor(part.dims, "int32"))
            continue
        at = [0] * len(part.value)
        at[axis] = start
        start += part.value[axis]
        outputs.append(Tensor(part.dims, "int32", at))
    return outputs


def _filled(node: Node, x: list[Tensor], port: int, batch: int) -> Dims:
    """Return a static shape whose open dimensions follow an input's of the same rank.

    Where no input has that rank, the first dimension follows the first input that has any.
    """
    shape = node.outputs[port].shape
    if shape is None:
        raise Unknown
    same = next((t for t in x if len(t.dims) == len(shape)), None)
    if same is not None:
        return tuple(s if d is None else d for d, s in zip(shape, same.dims, strict=True))
    if None in shape[1:]:
        raise Unknown
    first = next((t.dims[0] for t in x if t.dims), batch)
    return (first, *(d for d in shape[1:] if d is not None))


def _guessed(node: Node, x: list[Tensor], shape: Shape | None, batch: int) -> Dims:
    """Return a shape that is at least plausible, where the true one cannot be told."""
    if node.op == "Reshape":
        return (count(x[0].dims),)
    if shape is None or sum(d is None for d in shape) > 1:
        return max((t.dims for t in x), key=count, default=())
    return tuple(batch if d is None else d for d in shape)


def infer(node: Node, x: list[Tensor], batch: int) -> tuple[list[Tensor], bool]:
    """Return the outputs of an operation, and whether their shapes are sure.

    Args:
        node: The operation.
        x: Its inputs.
        batch: The batch size, for an open dimension that nothing explains.
    """
    if node.op == "BroadcastGradientArgs":
        try:
            pair = _gradient_axes(x)
            return [Tensor((len(axes),), "int32", axes) for axes in pair], True
        except Unknown:
            return [Tensor((0,), "int32"), Tensor((0,), "int32")], False
    if node.op == "ConcatOffset":
        return _offsets(x), True
    if node.op == "ShapeN":
        return [Tensor((len(t.dims),), "int32", list(t.dims)) for t in x], True
    sure, outputs = True, []
    for port, kind in enumerate(node.outputs):
        shape = kind.shape
        dims: Dims
        if shape is not None and None not in shape:
            dims = shape  # type: ignore[assignment]
        else:
            try:
                rule = SHAPES.get(node.op)
                if rule is not None:
                    dims = rule(node, x)
                elif node.op in ELEMENTWISE and x:
                    dims = every(node, x)
                else:
                    dims = _filled(node, x, port, batch)
            except (Unknown, LookupError, ValueError, ZeroDivisionError, TypeError):
                sure = False
                dims = _guessed(node, x, shape, batch)
        whole = len(dims) < 2 or (len(dims) == 2 and node.op in _MATRICES)
        whole = whole and count(dims) <= MAX_VALUES
        outputs.append(Tensor(dims, kind.dtype, value_of(node, x, dims) if whole and x else None))
    return outputs, sure
