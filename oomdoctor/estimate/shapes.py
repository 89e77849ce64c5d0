"""Works out the dimensions the trace left open, and the small whole numbers they follow from.

The step is traced with a free batch dimension, as `fit` does. When it is simulated at one batch
size, shapes, axes and loop counters are computed here as the kernels would; everything else is
only a shape. A `Value` is a number or a flat list of numbers; None where nobody needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oomdoctor.estimate.nodes import Node, Shape

Dims = tuple[int, ...]
Value = Any
MAX_VALUES = 64


class Tensor(NamedTuple):
    """A tensor of the simulated step."""

    dims: Dims
    dtype: str
    value: Value = None
    buffer: Any = None
    """The memory it lies in; None where it needs none."""


class Unknown(Exception):
    """The shape of an output cannot be told."""


def count(dims: Sequence[int]) -> int:
    """Return the number of elements."""
    total = 1
    for size in dims:
        total *= size
    return total


def broadcast(*shapes: Dims) -> Dims:
    """Return the shape several shapes broadcast to.

    Example:
        >>> broadcast((8, 1, 3), (5, 1))
        (8, 5, 3)
    """
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    # A dimension of 1 stretches, also to 0.
    return tuple(next((d for d in dims if d != 1), 1) for dims in zip(*padded, strict=True))


def _ints(tensor: Tensor) -> list[int]:
    if tensor.value is None:
        raise Unknown
    return tensor.value if isinstance(tensor.value, list) else [tensor.value]


def _axes(tensor: Tensor, rank: int) -> list[int]:
    return sorted({axis % rank if rank else 0 for axis in _ints(tensor)})


def _reshape(node: Node, x: list[Tensor]) -> Dims:
    target = list(_ints(x[1]))
    if -1 in target:
        known = -count(target)
        target[target.index(-1)] = count(x[0].dims) // known if known else 0
    return tuple(target)


def _reduce(node: Node, x: list[Tensor]) -> Dims:
    dims = x[0].dims
    axes = _axes(x[1], len(dims))
    if node.attrs.get("keep_dims"):
        return tuple(1 if i in axes else d for i, d in enumerate(dims))
    return tuple(d for i, d in enumerate(dims) if i not in axes)


def _matmul(node: Node, x: list[Tensor]) -> Dims:
    a, b = x[0].dims, x[1].dims
    rows = a[1] if node.attrs.get("transpose_a") else a[0]
    return (rows, b[0] if node.attrs.get("transpose_b") else b[1])


def _batch_matmul(node: Node, x: list[Tensor]) -> Dims:
    a, b = x[0].dims, x[1].dims
    rows = a[-1] if node.attrs.get("adj_x") else a[-2]
    columns = b[-2] if node.attrs.get("adj_y") else b[-1]
    return (*broadcast(a[:-2], b[:-2]), rows, columns)


def _einsum(node: Node, x: list[Tensor]) -> Dims:
    left, _, right = str(node.attrs["equation"]).replace(" ", "").partition("->")
    size: dict[str, int] = {}
    rest: Dims = ()
    for term, tensor in zip(left.split(","), x, strict=True):
        head, dots, tail = term.partition("...")
        dims = tensor.dims
        size.update(zip(head, dims, strict=False))
        if dots:
            rest = dims[len(head) : len(dims) - len(tail)]
        if tail:
            size.update(zip(tail, dims[len(dims) - len(tail) :], strict=True))
    head, dots, tail = right.partition("...")
    return (
        *(size[letter] for letter in head),
        *(rest if dots else ()),
        *(size[letter] for letter in tail),
    )


def _concat(node: Node, x: list[Tensor]) -> Dims:
    *parts, axis = x
    dims = list(parts[0].dims)
    at = _ints(axis)[0] % len(dims)
    dims[at] = sum(part.dims[at] for part in parts)
    return tuple(dims)


def _gather(node: Node, x: list[Tensor]) -> Dims:
    axis = _ints(x[2])[0] % max(1, len(x[0].dims)) if len(x) > 2 else 0
    return (*x[0].dims[:axis], *x[1].dims, *x[0].dims[axis + 1 :])


def _strided(node: Node, x: list[Tensor]) -> tuple[list[range], list[int | None]]:
    """Return the rows taken of each input dimension, and the plan of the output dimensions."""
    dims = x[0].dims
    begin, end, step = (_ints(t) for t in x[1:4])
    mask = node.attrs.get
    taken: list[range] = []
    plan: list[int | None] = []
    at = 0
    for i in range(len(begin)):
        if mask("ellipsis_mask", 0) >> i & 1:
            new_axes = bin(mask("new_axis_mask", 0) >> (i + 1)).count("1")
            for _ in range(len(dims) - at - (len(begin) - i - 1 - new_axes)):
                taken.append(range(dims[at]))
                plan.append(at)
                at += 1
            continue
        if mask("new_axis_mask", 0) >> i & 1:
            plan.append(None)
            continue
        size = dims[at]
        if mask("shrink_axis_mask", 0) >> i & 1:
            start = begin[i] + (size if begin[i] < 0 else 0)
            taken.append(range(start, start + 1))
        else:
            low = None if mask("begin_mask", 0) >> i & 1 else begin[i]
            high = None if mask("end_mask", 0) >> i & 1 else end[i]
            taken.append(range(size)[slice(low, high, step[i])])
            plan.append(at)
        at += 1
    for rest in range(at, len(dims)):
        taken.append(range(dims[rest]))
        plan.append(rest)
    return taken, plan


def _strided_slice(node: Node, x: list[Tensor]) -> Dims:
    taken, plan = _strided(node, x)
    return tuple(1 if at is None else len(taken[at]) for at in plan)


def _slice(node: Node, x: list[Tensor]) -> Dims:
    begin, size = _ints(x[1]), _ints(x[2])
    return tuple(d - b if s == -1 else s for d, b, s in zip(x[0].dims, begin, size, strict=True))


def _pad(node: Node, x: list[Tensor]) -> Dims:
    pads = _ints(x[1])
    return tuple(d + pads[2 * i] + pads[2 * i + 1] for i, d in enumerate(x[0].dims))


def _expand(node: Node, x: list[Tensor]) -> Dims:
    at = _ints(x[1])[0]
    at = at + len(x[0].dims) + 1 if at < 0 else at
    return (*x[0].dims[:at], 1, *x[0].dims[at:])


def _squeeze(node: Node, x: list[Tensor]) -> Dims:
    dims = x[0].dims
    axes = [a % len(dims) for a in node.attrs.get("squeeze_dims") or ()]
    return tuple(d for i, d in enumerate(dims) if (i not in axes if axes else d != 1))


def _split(node: Node, x: list[Tensor]) -> Dims:
    dims = list(x[1].dims)
    at = _ints(x[0])[0] % len(dims)
    dims[at] //= int(node.attrs.get("num_split", 1))
    return tuple(dims)


def _one_hot(node: Node, x: list[Tensor]) -> Dims:
    axis = int(node.attrs.get("axis", -1))
    dims = x[0].dims
    at = len(dims) if axis == -1 else axis
    return (*dims[:at], _ints(x[1])[0], *dims[at:])


def _pack(node: Node, x: list[Tensor]) -> Dims:
    axis = int(node.attrs.get("axis", 0))
    dims = x[0].dims
    at = axis + len(dims) + 1 if axis < 0 else axis
    return (*dims[:at], len(x), *dims[at:])


def _unpack(node: Node, x: list[Tensor]) -> Dims:
    axis = int(node.attrs.get("axis", 0)) % len(x[0].dims)
    return tuple(d for i, d in enumerate(x[0].dims) if i != axis)


def _range(node: Node, x: list[Tensor]) -> Dims:
    start, stop, step = (_ints(t)[0] for t in x)
    return (max(0, -((start - stop) // step)),)


def _like(at: int) -> Callable[[Node, list[Tensor]], Dims]:
    return lambda node, x: x[at].dims


def _shape_value(at: int) -> Callable[[Node, list[Tensor]], Dims]:
    return lambda node, x: tuple(_ints(x[at]))


def _every(node: Node, x: list[Tensor]) -> Dims:
    return broadcast(*(t.dims for t in x))


_RULES: dict[str, Callable[[Node, list[Tensor]], Dims]] = {
    "Reshape": _reshape,
    "MatMul": _matmul,
    "BatchMatMulV2": _batch_matmul,
    "BatchMatMul": _batch_matmul,
    "Einsum": _einsum,
    "ConcatV2": _concat,
    "GatherV2": _gather,
    "ResourceGather": lambda n, x: (*x[1].dims, *(d or 0 for d in (n.outputs[0].shape or ())[-1:])),
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _shape_value(0),
    "Slice": _slice,
    "Pad": _pad,
    "PadV2": _pad,
    "MirrorPad": _pad,
    "ExpandDims": _expand,
    "Squeeze": _squeeze,
    "Split": _split,
    "OneHot": _one_hot,
    "Pack": _pack,
    "Unpack": _unpack,
    "Range": _range,
    "Transpose": lambda n, x: tuple(x[0].dims[i] for i in _ints(x[1])),
    "BroadcastTo": _shape_value(1),
    "Fill": _shape_value(0),
    "Tile": lambda n, x: tuple(d * m for d, m in zip(x[0].dims, _ints(x[1]), strict=True)),
    "Conv2DBackpropInput": _shape_value(0),
    "Conv3DBackpropInputV2": _shape_value(0),
    "DepthwiseConv2dNativeBackpropInput": _shape_value(0),
    "AvgPoolGrad": _shape_value(0),
    "AvgPool3DGrad": _shape_value(0),
    "StatelessRandomUniformV2": _shape_value(0),
    "StatelessRandomNormalV2": _shape_value(0),
    "StatelessTruncatedNormalV2": _shape_value(0),
    "RandomUniform": _shape_value(0),
    "RandomStandardNormal": _shape_value(0),
    "UnsortedSegmentSum": lambda n, x: (_ints(x[2])[0], *x[0].dims[len(x[1].dims) :]),
    "MaxPoolGrad": _like(0),
    "MaxPool3DGrad": _like(0),
    "BiasAdd": _like(0),
    "Cumsum": _like(0),
    **dict.fromkeys(
        ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin"), _reduce
    ),
}


def _value(node: Node, x: list[Tensor], dims: Dims) -> Value:
    """Return the whole numbers an operation gives, where they can matter to a shape."""
    rule = _VALUES.get(node.op)
    if rule is None:
        return None
    try:
        return rule(node, x, dims)
    except (Unknown, TypeError, ZeroDivisionError, IndexError):
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
        total = act(_ints(x[0]))
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
    taken, _ = _strided(node, x)
    values = [_ints(x[0])[i] for i in taken[0]]
    return values if dims else values[0]


def _gathered(node: Node, x: list[Tensor], dims: Dims) -> Value:
    values = [_ints(x[0])[i] for i in _ints(x[1])]
    return values if dims else values[0]


def _joined(node: Node, x: list[Tensor], dims: Dims) -> Value:
    return [v for part in x[:-1] for v in (_ints(part) if part.dims != (0,) else [])]


def _transposed(node: Node, x: list[Tensor], dims: Dims) -> Value:
    """Return a small matrix of numbers turned over, as the gradient of a tiling needs it."""
    if len(x[0].dims) != 2 or x[1].value != [1, 0]:
        return None
    rows, columns = x[0].dims
    values = _ints(x[0])
    return [values[row * columns + column] for column in range(columns) for row in range(rows)]


def _cut(node: Node, x: list[Tensor], dims: Dims) -> Value:
    values, begin = _ints(x[0]), _ints(x[1])
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
        merged.update(zip(_ints(indices), _ints(data), strict=True))
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
        [v for t in x for v in _ints(t)] if int(n.attrs.get("axis", 0)) == 0 else None
    ),
    "Transpose": _transposed,
    "Range": lambda n, x, d: list(range(*(_ints(t)[0] for t in x))) if d[0] <= MAX_VALUES else None,
    "Fill": lambda n, x, d: (
        None if x[1].value is None else [x[1].value] * count(d) if d else x[1].value
    ),
    "InvertPermutation": lambda n, x, d: [_ints(x[0]).index(i) for i in range(d[0])],
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
    "Neg": lambda n, x, d: -x[0].value if not d else [-v for v in _ints(x[0])],
    "Prod": _reduced(_product),
    "Sum": _reduced(sum),
    "Max": _reduced(max),
    "Min": _reduced(min),
}


def _gradient_axes(x: list[Tensor]) -> tuple[list[int], list[int]]:
    a, b = _ints(x[0]) if x[0].dims != (0,) else [], _ints(x[1]) if x[1].dims != (0,) else []
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
    """Return a static shape whose one open dimension follows an input's first, or the batch."""
    shape = node.outputs[port].shape
    if shape is None:
        raise Unknown
    first = next((t.dims[0] for t in x if t.dims and t.dims[0] > 1), batch)
    if any(d is None for d in shape[1:]):
        same = next((t for t in x if len(t.dims) == len(shape)), None)
        if same is None:
            raise Unknown
        return tuple(s if d is None else d for d, s in zip(shape, same.dims, strict=True))
    return tuple(first if d is None else d for d in shape)


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
                rule = _RULES.get(node.op)
                if rule is not None:
                    dims = rule(node, x)
                elif node.op in ELEMENTWISE and x:
                    dims = _every(node, x)
                else:
                    dims = _filled(node, x, port, batch)
            except (Unknown, IndexError, ValueError, ZeroDivisionError, TypeError):
                sure = False
                dims = _guessed(node, x, shape, batch)
        whole = len(dims) < 2 or (len(dims) == 2 and node.op in _MATRICES)
        whole = whole and count(dims) <= MAX_VALUES
        outputs.append(Tensor(dims, kind.dtype, _value(node, x, dims) if whole and x else None))
    return outputs, sure


_MATRICES = frozenset({"Pack", "Slice", "Transpose"})
"""Operations whose numbers are followed in two dimensions, too."""

ELEMENTWISE = frozenset(
    {
        "Abs", "Acos", "Add", "AddN", "AddV2", "Atan2", "Cast", "Ceil", "Cos", "Cosh", "DivNoNan",
        "Div", "Elu", "EluGrad", "Equal", "Erf", "Erfc", "Exp", "Expm1", "Floor", "FloorDiv",
        "FloorMod", "Greater", "GreaterEqual", "Identity", "IsFinite", "IsInf", "IsNan",
        "LeakyRelu", "LeakyReluGrad", "Less", "LessEqual", "Log", "Log1p", "LogicalAnd",
        "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "MulNoNan", "Neg", "NotEqual",
        "OnesLike", "Pow", "PreventGradient", "RealDiv", "Reciprocal", "Relu", "Relu6", "Relu6Grad",
        "ReluGrad", "Round", "Rsqrt", "RsqrtGrad", "Select", "SelectV2", "Selu", "SeluGrad",
        "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Softmax", "LogSoftmax", "Softplus",
        "SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Square",
        "SquaredDifference", "StopGradient", "Sub", "Tan", "Tanh", "TanhGrad", "TruncateDiv",
        "Xdivy", "Xlogy", "ZerosLike", "ClipByValue", "ReciprocalGrad", "L2Normalize",
    }
)  # fmt: skip
"""Operations that work element by element and broadcast."""
