"""The dimensions of what slides a window over images, or cuts and resizes them."""

from __future__ import annotations

from oomdoctor.estimate.nodes import Node
from oomdoctor.estimate.tensors import Dims, Tensor, count, ints


def _known(node: Node, x: list[Tensor]) -> Dims | None:
    """Return the output where the trace left nothing open but the batch."""
    shape = node.outputs[0].shape
    if shape is None or None in shape[1:]:
        return None
    return (x[0].dims[0], *(size for size in shape[1:] if size is not None))


def _window(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Return how many places a window takes along one dimension.

    Example:
        >>> _window(10, 3, 2, 1, "SAME"), _window(10, 3, 2, 1, "VALID")
        (5, 4)
    """
    covered = 0 if padding == "SAME" else (kernel - 1) * dilation
    return -(-(size - covered) // stride)


def _slid(node: Node, dims: Dims, kernel: list[int], channels: int) -> Dims:
    """Return the output of a window that slides over all dimensions but batch and channels."""
    rank, given = len(dims), node.attrs.get
    at_end = not str(given("data_format") or "NHWC").startswith("NC")
    inner = range(1, rank - 1) if at_end else range(2, rank)
    ones = [1] * rank
    strides, dilations = given("strides") or ones, given("dilations") or ones
    padding, pads = str(given("padding") or "VALID"), given("explicit_paddings") or []
    out = list(dims)
    out[rank - 1 if at_end else 1] = channels
    for place, i in enumerate(inner):
        size = dims[i] + (sum(pads[2 * i : 2 * i + 2]) if padding == "EXPLICIT" else 0)
        out[i] = _window(size, kernel[place], strides[i], dilations[i], padding)
    return tuple(out)


def convolution(node: Node, x: list[Tensor]) -> Dims:
    """Return the output of a convolution."""
    known = _known(node, x)
    if known is not None:
        return known
    filters = x[1].dims
    # Filters of a depthwise convolution are (..., channels, multiplier).
    depthwise = node.op.startswith("Depthwise")
    channels = filters[-2] * filters[-1] if depthwise else filters[-1]
    return _slid(node, x[0].dims, list(filters[:-2]), channels)


def pool(node: Node, x: list[Tensor]) -> Dims:
    """Return the output of a pooling."""
    known = _known(node, x)
    if known is not None:
        return known
    dims, size = x[0].dims, node.attrs["ksize"]
    at_end = not str(node.attrs.get("data_format") or "NHWC").startswith("NC")
    inner = size[1:-1] if at_end else size[2:]
    return _slid(node, dims, inner, dims[-1 if at_end else 1])


def space_to_batch(node: Node, x: list[Tensor]) -> Dims:
    """Return what cutting space into blocks gives: a larger batch of smaller images."""
    block, pads, dims = ints(x[1]), ints(x[2]), x[0].dims
    space = [(dims[i + 1] + pads[2 * i] + pads[2 * i + 1]) // size for i, size in enumerate(block)]
    return (dims[0] * count(block), *space, *dims[len(block) + 1 :])


def batch_to_space(node: Node, x: list[Tensor]) -> Dims:
    """Return what putting the blocks together again gives."""
    block, crops, dims = ints(x[1]), ints(x[2]), x[0].dims
    space = [dims[i + 1] * size - crops[2 * i] - crops[2 * i + 1] for i, size in enumerate(block)]
    return (dims[0] // count(block), *space, *dims[len(block) + 1 :])


def resized(node: Node, x: list[Tensor]) -> Dims:
    """Return the output of a resizing of images."""
    return (x[0].dims[0], *ints(x[1]), x[0].dims[-1])
