"""The dimensions of an operation's output, from those of its inputs, as its kernel has them."""

from __future__ import annotations

from collections.abc import Callable

from oomdoctor.estimate import windows
from oomdoctor.estimate.nodes import Node
from oomdoctor.estimate.tensors import Dims, Tensor, axes_of, broadcast, count, ints


def _reshape(node: Node, x: list[Tensor]) -> Dims:
    target = list(ints(x[1]))
    if -1 in target:
        known = -count(target)
        target[target.index(-1)] = count(x[0].dims) // known if known else 0
    return tuple(target)


def _reduce(node: Node, x: list[Tensor]) -> Dims:
    dims = x[0].dims
    axes = axes_of(x[1], len(dims))
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
    at = ints(axis)[0] % len(dims)
    dims[at] = sum(part.dims[at] for part in parts)
    return tuple(dims)


def _gather(node: Node, x: list[Tensor]) -> Dims:
    axis = ints(x[2])[0] % max(1, len(x[0].dims)) if len(x) > 2 else 0
    # Dimensions of a batch, which indices and values have in common, are there once.
    shared = node.attrs.get("batch_dims", 0)
    return (*x[0].dims[:axis], *x[1].dims[shared:], *x[0].dims[axis + 1 :])


def strided(node: Node, x: list[Tensor]) -> tuple[list[range], list[int | None]]:
    """Return the rows taken of each input dimension, and the plan of the output dimensions."""
    dims = x[0].dims
    begin, end, step = (ints(t) for t in x[1:4])
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
    taken, plan = strided(node, x)
    return tuple(1 if at is None else len(taken[at]) for at in plan)


def _slice(node: Node, x: list[Tensor]) -> Dims:
    begin, size = ints(x[1]), ints(x[2])
    return tuple(d - b if s == -1 else s for d, b, s in zip(x[0].dims, begin, size, strict=True))


def _pad(node: Node, x: list[Tensor]) -> Dims:
    pads = ints(x[1])
    return tuple(d + pads[2 * i] + pads[2 * i + 1] for i, d in enumerate(x[0].dims))


def _expand(node: Node, x: list[Tensor]) -> Dims:
    at = ints(x[1])[0]
    at = at + len(x[0].dims) + 1 if at < 0 else at
    return (*x[0].dims[:at], 1, *x[0].dims[at:])


def _squeeze(node: Node, x: list[Tensor]) -> Dims:
    dims = x[0].dims
    axes = [a % len(dims) for a in node.attrs.get("squeeze_dims") or ()]
    return tuple(d for i, d in enumerate(dims) if (i not in axes if axes else d != 1))


def _split(node: Node, x: list[Tensor]) -> Dims:
    dims = list(x[1].dims)
    at = ints(x[0])[0] % len(dims)
    dims[at] //= int(node.attrs.get("num_split", 1))
    return tuple(dims)


def _one_hot(node: Node, x: list[Tensor]) -> Dims:
    axis = int(node.attrs.get("axis", -1))
    dims = x[0].dims
    at = len(dims) if axis == -1 else axis
    return (*dims[:at], ints(x[1])[0], *dims[at:])


def _pack(node: Node, x: list[Tensor]) -> Dims:
    axis = int(node.attrs.get("axis", 0))
    dims = x[0].dims
    at = axis + len(dims) + 1 if axis < 0 else axis
    return (*dims[:at], len(x), *dims[at:])


def _unpack(node: Node, x: list[Tensor]) -> Dims:
    axis = int(node.attrs.get("axis", 0)) % len(x[0].dims)
    return tuple(d for i, d in enumerate(x[0].dims) if i != axis)


def _range(node: Node, x: list[Tensor]) -> Dims:
    start, stop, step = (ints(t)[0] for t in x)
    return (max(0, -((start - stop) // step)),)


def _like(at: int) -> Callable[[Node, list[Tensor]], Dims]:
    return lambda node, x: x[at].dims


def _shape_value(at: int) -> Callable[[Node, list[Tensor]], Dims]:
    return lambda node, x: tuple(ints(x[at]))


def every(node: Node, x: list[Tensor]) -> Dims:
    """Return the shape that all inputs broadcast to."""
    return broadcast(*(t.dims for t in x))


SHAPES: dict[str, Callable[[Node, list[Tensor]], Dims]] = {
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
    "Transpose": lambda n, x: tuple(x[0].dims[i] for i in ints(x[1])),
    "BroadcastTo": _shape_value(1),
    "Fill": _shape_value(0),
    "Tile": lambda n, x: tuple(d * m for d, m in zip(x[0].dims, ints(x[1]), strict=True)),
    "Conv2DBackpropInput": _shape_value(0),
    "Conv3DBackpropInputV2": _shape_value(0),
    "DepthwiseConv2dNativeBackpropInput": _shape_value(0),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), windows.convolution),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), windows.pool),
    "SpaceToBatchND": windows.space_to_batch,
    "BatchToSpaceND": windows.batch_to_space,
    **dict.fromkeys(
        ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeNearestNeighborGrad"), windows.resized
    ),
    "ResizeBilinearGrad": _like(1),
    "AvgPoolGrad": _shape_value(0),
    "AvgPool3DGrad": _shape_value(0),
    "StatelessRandomUniformV2": _shape_value(0),
    "StatelessRandomNormalV2": _shape_value(0),
    "StatelessTruncatedNormalV2": _shape_value(0),
    "RandomUniform": _shape_value(0),
    "RandomStandardNormal": _shape_value(0),
    "UnsortedSegmentSum": lambda n, x: (ints(x[2])[0], *x[0].dims[len(x[1].dims) :]),
    "MaxPoolGrad": _like(0),
    "MaxPool3DGrad": _like(0),
    "BiasAdd": _like(0),
    "Cumsum": _like(0),
    **dict.fromkeys(
        ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "ArgMax", "ArgMin"), _reduce
    ),
}
"""For each operation, from the node and its inputs to the dimensions of its output."""

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
