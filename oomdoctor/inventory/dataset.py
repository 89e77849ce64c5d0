"""The stages of a `tf.data.Dataset`, from its source to its end, and what each one keeps.

`element_bytes` is one element as it enters a stage. Two exceptions, because of what is kept:
a source has no input, so it is one element it gives; `map` and `interleave` keep results, so it
is one result. An axis that `batch` left unknown (the last batch may be smaller) counts as the
batch size. Strings, ragged and sparse tensors have no fixed size: their bytes are None.

`elements` is 0 for stages that keep nothing, and None where tf.data decides (AUTOTUNE) or where
nobody can tell; `footprint.pipeline` puts in what is assumed for AUTOTUNE. What functions keep
that are called inside (`map`, `interleave`, a generator's own variables) is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from oomdoctor.facts import Stage
from oomdoctor.inventory.dataset_graph import from_graph
from oomdoctor.inventory.dataset_labels import label
from oomdoctor.inventory.dataset_nodes import AUTOTUNE, Component, Node, from_objects, product
from oomdoctor.units import DTYPE_BYTES, MIB, element_count

MAX_SERIALIZED_BYTES = 64 * MIB
"""Data beyond this is not serialized: the graph would copy it."""

PATH_BYTES = 256
"""A file name that only the file system knows yet: longer than most."""

_PASSES_THROUGH = (
    "options", "restructured", "assert_cardinality", "assert_next", "model", "finalize",
    "per_worker", "distributed", "auto_shard", "dataset",
)  # fmt: skip
_KEEPS_NOTHING = (
    "zip", "concatenate", "repeat", "take", "skip", "filter", "take_while", "shard", "range",
    "random", "ignore_errors", "directed_interleave", "unbatch", "enumerate", "flat_map",
    "snapshot", "save", "scan", "matching_files", "global_shuffle", "interleave", "map",
    "rebatch", "legacy_rebatch", "load", "list_snapshot_chunks", "snapshot_chunk",
)  # fmt: skip
_READERS = ("tf_record", "text_line", "csv", "fixed_length_record", "sql")
_BATCHES = ("batch", "parallel_batch", "padded_batch", "map_and_batch")
_KEEPS_SAMPLES = (
    "shuffle", "cache", "prefetch", "map", "parallel_map", "repeat", "unbatch", "snapshot",
    *_BATCHES,
)  # fmt: skip
_FORGETS_BATCH = (
    "flat_map", "interleave", "parallel_interleave", "legacy_parallel_interleave", "window",
    "group_by_window", "rebatch", "legacy_rebatch",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A dataset told in plain values."""

    stages: tuple[Stage, ...]
    spec: tuple[Component, ...]
    """Of one element at the end."""
    leading: tuple[int, ...]
    """Sizes of the axes that batching put in front, the outermost first."""
    samples: int | None
    """Samples of one pass, before batching and repeating."""
    is_infinite: bool


def read_stages(dataset: Any) -> tuple[Stage, ...]:
    """Return the stages of a `tf.data.Dataset` in the order data flows through them.

    Args:
        dataset: A `tf.data.Dataset`. It is neither run nor changed.
    """
    return read_pipeline(dataset).stages


def read_pipeline(dataset: Any) -> Pipeline:
    """Return the stages of a `tf.data.Dataset`, what it gives, and how many samples."""
    return describe(_see_through(from_objects(dataset), dataset))


def serialized_tree(dataset: Any) -> Node | None:
    """Return the tree told by the serialized graph; None where TensorFlow cannot serialize it.

    Args:
        dataset: A `tf.data.Dataset` that holds little: its arrays are copied.
    """
    try:
        serialized = dataset._as_serialized_graph().numpy()
    except Exception:  # TensorFlow raises a dozen kinds here, and none is ours to mend
        return None
    return from_graph(bytes(serialized))


def describe(tree: Node) -> Pipeline:
    """Return the pipeline a tree of nodes stands for."""
    stages: list[Stage] = []
    seen: set[int] = set()
    _walk(tree, stages, seen)
    return Pipeline(
        stages=tuple(stages),
        spec=tree.spec,
        leading=_leading(tree),
        samples=_samples(tree),
        is_infinite=tree.is_infinite,
    )


def _see_through(tree: Node, dataset: Any) -> Node:
    """Return the tree with variants, which hide their inputs, read from the graph instead."""
    if not any(node.op == "variant" for node in _nodes(tree)):
        return tree
    held = 0
    for node in _nodes(tree):
        held += node.tensor_bytes or 0
        if node.op == "variant":
            element = spec_bytes(node.spec, ())
            if node.count is None or element is None:
                return tree
            held += node.count * element
    if held > MAX_SERIALIZED_BYTES:
        return tree
    seen = serialized_tree(dataset)
    # The graph does not say where a tensor stands in a nested element; the object does.
    return tree if seen is None else replace(seen, spec=tree.spec, count=tree.count)


def _nodes(tree: Node) -> Iterator[Node]:
    for node in tree.inputs:
        yield from _nodes(node)
    yield tree


def _walk(node: Node, stages: list[Stage], seen: set[int]) -> None:
    """Append the stages up to and with a node."""
    for each in node.inputs:
        _walk(each, stages, seen)
    is_shared = not node.inputs and node.identity in seen
    if node.identity is not None:
        seen.add(node.identity)
    if node.op not in _PASSES_THROUGH and not is_shared:
        stages.append(_stage(node))


def _leading(node: Node) -> tuple[int, ...]:
    """Return the sizes of the axes that batching put in front of what a node gives."""
    before = _entering(node)
    if node.op in _BATCHES:
        size = node.numbers.get("batch_size")
        return () if size is None else (size, *before)
    if node.op == "unbatch":
        return before[1:]
    return () if node.op in _FORGETS_BATCH else before


def _entering(node: Node) -> tuple[int, ...]:
    # `zip` of a counter and batches: only the batches have an axis to fill.
    return max((_leading(each) for each in node.inputs), key=len, default=())


def _stage(node: Node) -> Stage:
    kind, elements, note = _kept(node)
    is_given = kind in ("map", "interleave", "zip") or not node.inputs
    leading = _leading(node) if is_given else _entering(node)
    element_bytes = spec_bytes(node.spec if is_given else node.inputs[0].spec, leading)
    if kind == "tensors" and node.tensor_bytes is not None and elements:
        element_bytes = -(-node.tensor_bytes // elements)
    elif element_bytes is None:
        element_bytes = _traced_bytes(node if is_given else node.inputs[0])
    if element_bytes is None and elements != 0 and note is None:
        note = "the size of one element is not fixed"
    return Stage(
        kind=kind,
        label=label(node, kind),
        elements=elements,
        element_bytes=element_bytes,
        is_batched=bool(leading),
        note=note,
    )


def _traced_bytes(node: Node) -> int | None:
    """Return the bytes of one element that holds strings, where they can be traced to a source.

    File names stay what they are until a function is mapped over them.
    """
    known = spec_bytes(node.spec, _leading(node))
    if known is not None:
        return known
    if node.op == "tensor_slice" and node.tensor_bytes is not None and node.count:
        return -(-node.tensor_bytes // node.count)
    if node.op == "matching_files":
        return PATH_BYTES
    inner = [_traced_bytes(each) for each in node.inputs]
    if not inner or None in inner:
        return None
    total = sum(size for size in inner if size is not None)
    if node.op in _BATCHES:
        return _times(total, node.numbers.get("batch_size") or 1)
    same = ("zip", "shuffle", "repeat", "take", "skip", "shard", "prefetch", "cache", "filter")
    return total if node.op in (*same, *_PASSES_THROUGH) else None


def _kept(node: Node) -> tuple[str, int | None, str | None]:
    """Return the kind of a stage, the elements it keeps, and what to say about them."""
    op = node.op
    source = node.inputs[0] if node.inputs else None
    if op == "tensor_slice":
        return "tensors", node.count, None
    if op in ("tensor", "list"):
        return "tensors", 1 if op == "tensor" else node.count, None
    if op == "generator":
        return op, 1, "what the generator itself keeps is not seen"
    if op in _READERS:
        return "reader", 0, None
    if op == "shuffle":
        return op, *_shuffled(node.numbers.get("buffer_size"), source)
    if op == "cache":
        if node.filename:
            return op, 0, "written to disk"
        return op, *_everything(source)
    if op in _BATCHES:
        size = node.numbers.get("batch_size")
        return "batch", _times(size, _parallel(node) or 1), None
    if op == "prefetch":
        size = node.numbers.get("buffer_size")
        if size == AUTOTUNE:
            return op, None, "AUTOTUNE: tf.data decides"
        return op, size, None
    if op == "parallel_map":
        calls = _parallel(node)
        return "map", calls, "AUTOTUNE: tf.data decides" if calls is None else None
    if "parallel_interleave" in op:
        return "interleave", *_interleaved(node)
    if op == "window":
        return op, node.numbers.get("size"), None
    if op == "dense_to_ragged":
        return "map", 0, None
    if op == "variant":
        if node.is_infinite and spec_bytes(node.spec, ()) == DTYPE_BYTES["int64"]:
            return "range", 0, None  # the counter of `enumerate`
        return op, None, "rebuilt from a variant: what lies before it is not seen"
    if op in _KEEPS_NOTHING:
        return op, 0, None
    return op, None, "what this stage keeps is not known to oomdoctor"


def _shuffled(buffer: int | None, source: Node | None) -> tuple[int | None, str | None]:
    if buffer is None:
        return None, "the buffer size cannot be read"
    if buffer < 0:  # TensorFlow takes its own "unknown cardinality" to mean the whole dataset
        return _everything(source)
    count = source.count if source is not None else None
    return (buffer if count is None else min(buffer, count)), None


def _everything(source: Node | None) -> tuple[int | None, str | None]:
    if source is not None and source.is_infinite:
        return None, "its input never ends: it grows until memory runs out"
    count = source.count if source is not None else None
    return count, "the number of elements is not known" if count is None else None


def _parallel(node: Node) -> int | None:
    calls = node.numbers.get("num_parallel_calls")
    return None if calls is None or calls < 0 else calls


def _interleaved(node: Node) -> tuple[int | None, str | None]:
    cycle = node.numbers.get("cycle_length")
    block = node.numbers.get("block_length")
    if cycle is None or block is None or cycle < 1 or block < 1:
        return None, "AUTOTUNE: tf.data decides"
    # By default tf.data opens two more cycles ahead of time, and reads two blocks and one element
    # of each open input ahead: counted 36 and 84 for cycle 4 with blocks of 1 and 3.
    return 3 * cycle * (2 * block + 1), None


def _times(size: int | None, times: int) -> int | None:
    return None if size is None else size * times


def _samples(tree: Node) -> int | None:
    """Return the samples of one pass: batches are counted by what they are made of."""
    inner = [_samples(each) for each in tree.inputs]
    known = [count for count in inner if count is not None]
    if tree.op == "concatenate":
        return sum(known) if len(known) == len(inner) else None
    if tree.op == "zip":
        axes = _entering(tree)
        batched = [_samples(each) for each in tree.inputs if _leading(each) == axes]
        return min((count for count in batched if count is not None), default=None)
    if known and tree.op in (*_KEEPS_SAMPLES, *_PASSES_THROUGH):
        return known[0]
    return None if tree.count is None else tree.count * element_count(_leading(tree))


def spec_bytes(spec: tuple[Component, ...], leading: tuple[int, ...]) -> int | None:
    """Return the bytes of one element, with batch sizes put in for unknown leading axes."""
    if not spec:
        return None
    total = 0
    for part in spec:
        count = product(_filled(part.shape, leading))
        if count is None or part.dtype is None:
            return None
        total += count * DTYPE_BYTES[part.dtype]
    return total


def _filled(
    shape: tuple[int | None, ...] | None, leading: tuple[int, ...]
) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    return tuple(
        leading[axis] if size is None and axis < len(leading) else size
        for axis, size in enumerate(shape)
    )
