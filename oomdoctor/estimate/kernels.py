"""What TensorFlow's CPU kernels do with memory: reuse an input, alias it, or take a workspace.

Origins: the forwarding lists were read in the kernels' sources; the workspaces were read there
and checked against profiler traces of TensorFlow 2.21 without oneDNN (an x86 CPU without
AVX512-VNNI): every allocation of kind `temp` above 4 KiB of the calibration models.

On a GPU none of these workspaces exist; what cuDNN takes there is bounded by `CUDNN_SHARE`.
"""

from __future__ import annotations

from oomdoctor.estimate.nodes import Node
from oomdoctor.estimate.shapes import ELEMENTWISE
from oomdoctor.estimate.tensors import Tensor, count
from oomdoctor.units import DTYPE_BYTES

CUDNN = "cuDNN's scratch"
CUDNN_SHARE, CUDNN_MOST = 2.25, 4 * 1024**3
"""Without a card no algorithm is chosen for a convolution, so its scratch is not known, and NVIDIA
does not say what each takes. This is a guess: Winograd's algorithm for 3×3 filters holds
a transformed input of 36 numbers for each 16 (Lavin and Gray, arXiv:1509.09308). For ResNet50 with
a batch of 256 it makes 13 % of the peak. The only figure found is of the same size: with at most
512 MiB of scratch in place of 4 GiB the largest batch of ResNet50 and ResNet101 grew by about 10 %
(PaddlePaddle, pull request 19780). XLA gives no algorithm more than
`xla_gpu_redzone_scratch_max_megabytes`, 4096, while it tries them."""

_L2_BYTES = 256 * 1024
_L3_BYTES = 30 * 1024**2
_L3_BYTES_3D = 256 * 1024**2
# Constants of TensorFlow's convolution gradients, not of this machine.

ALIASES = frozenset(
    {
        "Identity", "StopGradient", "PreventGradient", "Reshape", "ExpandDims", "Squeeze",
        "Placeholder", "CheckNumerics", "EnsureShape", "Snapshot", "PlaceholderWithDefault",
    }
)  # fmt: skip
"""Operations whose output is their first input under another name."""

CHEAP = frozenset(
    {
        "Identity", "IdentityN", "Const", "Placeholder", "NoOp", "Reshape", "ExpandDims", "Squeeze",
        "Shape", "ShapeN", "Size", "Rank", "StopGradient", "PreventGradient",
        "VariableShape", "VarHandleOp", "ConcatOffset", "BroadcastGradientArgs",
        "EmptyTensorList", "TensorListLength", "TensorListElementShape", "InvertPermutation",
    }
)  # fmt: skip
"""Operations the executor runs at once instead of handing them to the thread pool."""

_NO_REUSE = frozenset(
    {"Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "IsFinite", "IsNan",
     "IsInf", "OnesLike", "ZerosLike", "Cast", "LogSoftmax"}
)  # fmt: skip

_REUSE: dict[str, tuple[int, ...]] = {
    "SelectV2": (1, 2),
    "Select": (),
    "BiasAdd": (0,),
    "Softmax": (0,),
    "LogSoftmax": (0,),
    "AddN": tuple(range(64)),
    "ClipByValue": (0,),
    "Cumsum": (),
    "TensorScatterUpdate": (0,),
    "ScatterNd": (),
    "ZerosLike": (0,),
}


def reusable(op: str) -> tuple[int, ...]:
    """Return the inputs an operation may write its first output into.

    It does so only when nobody else holds the input and dtype and element count agree.
    """
    if op in _REUSE:
        return _REUSE[op]
    if op in ELEMENTWISE and op not in _NO_REUSE:
        return (0, 1)
    return ()


def _bytes(tensor: Tensor) -> int:
    return count(tensor.dims) * DTYPE_BYTES.get(tensor.dtype, 0)


def _convolution_gradient(
    out_image: int,
    filter_size: int,
    depth: int,
    width: int,
    batch: int,
    threads: int,
    split: bool,
    target_bytes: int = _L3_BYTES,
) -> int:
    """Return the im2col buffer of a convolution's gradient.

    Args:
        out_image: Elements of one channel of the convolution's output.
        filter_size: Elements of the filter for one output channel.
        depth: Output channels.
        width: Bytes of an element.
        batch: Samples.
        threads: Threads inside one operation.
        split: Whether the kernel may do sample after sample, its threads sharing each.
        target_bytes: What the kernel wants to fill.
    """
    unit = out_image * filter_size + out_image * depth + filter_size * depth
    if not unit:
        return 0
    if split and (batch == 1 or unit // threads >= _L2_BYTES // width):
        shards = 1
    else:
        shards = -(-(target_bytes // width) // unit)
    return shards * out_image * filter_size * width


CONVOLUTIONS = frozenset({"Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput"})
CONVOLVING = CONVOLUTIONS | {
    "Conv3D", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropInput",
}  # fmt: skip
"""Operations for which cuDNN may want scratch memory."""
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2"})


def temporaries(node: Node, x: list[Tensor], out: list[Tensor], threads: int) -> list[int]:
    """Return the bytes of each workspace a kernel holds while it runs, all at once."""
    op = node.op
    if op == "Conv2DBackpropFilter" or op == "Conv2DBackpropInput":
        gradient = x[2]
        filters = out[0] if op == "Conv2DBackpropFilter" else x[1]
        if len(gradient.dims) != 4 or len(filters.dims) != 4:
            return []
        width = DTYPE_BYTES.get(gradient.dtype, 4)
        image = gradient.dims[1] * gradient.dims[2]
        size = count(filters.dims[:3])
        source = x[0] if op == "Conv2DBackpropFilter" else out[0]
        if source.dims[3] != filters.dims[2]:
            # Keras has XLA compile convolutions in groups; their gradient, which is one function,
            # spreads the filter over all pairs of channels, twice. Seen for 96 to 768 channels.
            spread = count(filters.dims[:2]) * source.dims[3] * filters.dims[3] * width
            return [2 * spread] if op == "Conv2DBackpropFilter" else []
        return [
            _convolution_gradient(
                image, size, filters.dims[3], width, gradient.dims[0], threads,
                op == "Conv2DBackpropInput",
            )
        ]  # fmt: skip
    if op == "Conv3DBackpropFilterV2" or op == "Conv3DBackpropInputV2":
        gradient = x[2]
        filters, source = (out[0], x[0]) if op == "Conv3DBackpropFilterV2" else (x[1], out[0])
        width = DTYPE_BYTES.get(gradient.dtype, 4)
        size = _convolution_gradient(
            count(gradient.dims[1:4]), count(filters.dims[:4]), filters.dims[4], width,
            gradient.dims[0], threads, False, _L3_BYTES_3D,
        )  # fmt: skip
        # Far beyond its inputs the kernel does without; it was seen to take 26 times, not 77.
        given = count(source.dims) + count(filters.dims) + count(gradient.dims)
        return [size] if size <= 30 * given * width else []
    if op in _PRODUCTS and x[0].dtype in ("float16", "bfloat16"):
        # Half precision is multiplied in float32: copies of both factors and of the product.
        return [count(t.dims) * 4 for t in (x[0], x[1], out[0])]
    if op == "MaxPoolGrad":
        return [count(x[1].dims) * 8]
    if op == "DepthwiseConv2dNativeBackpropFilter":
        return [x[0].dims[0] * _bytes(out[0])]
    if op == "SparseSoftmaxCrossEntropyWithLogits":
        return [_bytes(out[0])]
    if op in ("Sum", "Mean", "Max", "Prod", "Min") and x[0].dims:
        return [_bytes(out[0])] if count(x[0].dims) != count(out[0].dims) else []
    return []
