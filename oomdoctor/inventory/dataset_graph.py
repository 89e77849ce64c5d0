"""A tf.data pipeline as a tree of plain nodes, read from its serialized graph.

The graph shows what Python hides: `enumerate`, `snapshot` and `ragged_batch` hand on a dataset
rebuilt from a variant tensor, whose Python object knows no inputs. But serializing copies every
array that the dataset holds, and a graph ends at 2 GiB, so callers ask for it only where the
data is known to be small. Counts of elements are not in the graph; they are worked out here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oomdoctor.inventory.dataset_nodes import STRING_BYTES, Component, Node, plain_name, product
from oomdoctor.units import DTYPE_BYTES

# Which input of an op holds which argument, as the op definitions list them.
_ARGUMENTS = {
    "shuffle": {"buffer_size": 1},
    "batch": {"batch_size": 1},
    "parallel_batch": {"batch_size": 1, "num_parallel_calls": 2},
    "padded_batch": {"batch_size": 1},
    "prefetch": {"buffer_size": 1},
    "repeat": {"count": 1},
    "take": {"count": 1},
    "skip": {"count": 1},
    "shard": {"num_shards": 1},
    "window": {"size": 1},
    "parallel_map": {"num_parallel_calls": -1},
    "interleave": {"cycle_length": -2, "block_length": -1},
    "parallel_interleave": {"cycle_length": -5, "block_length": -4, "num_parallel_calls": -1},
}
_SOURCES = ("tensor_slice", "tensor")


def from_graph(serialized: bytes) -> Node:
    """Return the tree of a serialized dataset graph.

    Args:
        serialized: A `GraphDef` as `Dataset._as_serialized_graph()` gives it.
    """
    tensorflow = sys.modules["tensorflow"]
    graph = tensorflow.compat.v1.GraphDef.FromString(serialized)
    nodes = {node.name: node for node in graph.node}
    end = next(node for node in graph.node if node.op == "_Retval")
    generators = {
        function.signature.name
        for function in graph.library.function
        if any(node.op == "GeneratorDataset" for node in function.node_def)
    }
    return _graph_node(_source_name(end.input[0]), nodes, generators)


def _graph_node(name: str, nodes: Mapping[str, Any], generators: set[str]) -> Node:
    node = nodes[name]
    op = plain_name(node.op)
    if op == "flat_map" and node.attr["f"].func.name in generators:
        op = "generator"
    arguments = [nodes[_source_name(each)] for each in node.input if not each.startswith("^")]
    datasets = [each for each in arguments if "Dataset" in each.op]
    if op == "directed_interleave":
        datasets = datasets[1:]
    numbers = {
        key: _constant_int(arguments[place])
        for key, place in _ARGUMENTS.get(op, {}).items()
        if -len(arguments) <= place < len(arguments)
    }
    inputs = () if op == "generator" else tuple(datasets)
    built = Node(
        op=op,
        inputs=tuple(_graph_node(each.name, nodes, generators) for each in inputs),
        spec=_graph_spec(node),
        numbers=numbers,
        filename=_constant_text(arguments[1]) if op == "cache" else None,
        tensor_bytes=_constants_bytes(arguments) if op in _SOURCES else None,
    )
    count, is_infinite = _counted(built, arguments)
    return replace(built, count=count, is_infinite=is_infinite)


def _source_name(text: str) -> str:
    return text.lstrip("^").partition(":")[0]


def _graph_spec(node: Any) -> tuple[Component, ...]:
    dtypes = sys.modules["tensorflow"].dtypes
    shapes = node.attr["output_shapes"].list.shape
    types = node.attr["output_types"].list.type or node.attr["Toutput_types"].list.type
    found = []
    for place, (shape, code) in enumerate(zip(shapes, types, strict=False)):
        sizes = tuple(None if dim.size < 0 else int(dim.size) for dim in shape.dim)
        name = dtypes.as_dtype(code).name
        found.append(
            Component(
                shape=None if shape.unknown_rank else sizes,
                dtype=name if name in DTYPE_BYTES else None,
                path=(place,) if len(shapes) > 1 else (),
            )
        )
    return tuple(found)


def _constant_int(node: Any) -> int | None:
    if node.op != "Const":
        return None
    return int(sys.modules["tensorflow"].make_ndarray(node.attr["value"].tensor))


def _constant_text(node: Any) -> str | None:
    values = node.attr["value"].tensor.string_val if node.op == "Const" else ()
    return values[0].decode(errors="replace") if values else None


def _constants_bytes(arguments: list[Any]) -> int | None:
    total = 0
    for node in arguments:
        tensor = node.attr["value"].tensor
        shape = tuple(int(dim.size) for dim in tensor.tensor_shape.dim)
        name = sys.modules["tensorflow"].dtypes.as_dtype(tensor.dtype).name
        count = product(shape)
        if node.op != "Const" or count is None:
            return None
        if name == "string":
            total += count * STRING_BYTES + _letters(tensor, count)
        elif name in DTYPE_BYTES:
            total += count * DTYPE_BYTES[name]
        else:
            return None
    return total


def _letters(tensor: Any, count: int) -> int:
    """Return how many bytes the strings of a constant have together."""
    packed = tensor.tensor_content
    if not packed:
        return sum(len(text) for text in tensor.string_val)
    # First the length of each string as a varint, whose last byte has no high bit; then all texts.
    lengths, ended = 0, 0
    while ended < count:
        ended += packed[lengths] < 128
        lengths += 1
    return len(packed) - lengths


_KEEPS_COUNT = (
    "shuffle", "cache", "prefetch", "map", "parallel_map", "options", "snapshot", "scan",
)  # fmt: skip


def _counted(node: Node, arguments: list[Any]) -> tuple[int | None, bool]:
    """Return how many elements a node of the graph gives, and whether it never ends."""
    if not node.inputs:
        return _source_count(node.op, arguments), False
    if len(node.inputs) > 1:
        return _joined_count(node)
    before, endless = node.inputs[0].count, node.inputs[0].is_infinite
    wanted = node.numbers.get("count")
    if node.op == "repeat" and wanted is not None and wanted < 0:
        return None, True
    if node.op == "take" and wanted is not None and wanted >= 0:
        if before is None:
            return (wanted if endless else None), False
        return min(before, wanted), False
    if endless:
        return None, True
    if before is None:
        return None, False
    if node.op == "repeat" and wanted is not None:
        return before * wanted, False
    if node.op == "skip" and wanted is not None:
        return (max(0, before - wanted) if wanted >= 0 else 0), False
    size = node.numbers.get("batch_size")
    if size:
        return -(-before // size), False
    return (before if node.op in _KEEPS_COUNT or node.op == "take" else None), False


def _source_count(op: str, arguments: list[Any]) -> int | None:
    if op == "tensor":
        return 1
    if op == "tensor_slice" and arguments and arguments[0].op == "Const":
        dims = arguments[0].attr["value"].tensor.tensor_shape.dim
        return int(dims[0].size) if dims else None
    if op == "range" and len(arguments) >= 3:
        start, stop, step = (_constant_int(each) for each in arguments[:3])
        if start is not None and stop is not None and step:
            return len(range(start, stop, step))
    return None


def _joined_count(node: Node) -> tuple[int | None, bool]:
    ends = [each.count for each in node.inputs if not each.is_infinite]
    known = [count for count in ends if count is not None]
    if node.op == "zip":
        return (min(known) if ends and len(known) == len(ends) else None), not ends
    if node.op == "concatenate":
        return (sum(known) if len(known) == len(node.inputs) else None), len(ends) < len(
            node.inputs
        )
    return None, False
