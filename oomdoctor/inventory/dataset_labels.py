"""The call that makes a stage of a tf.data pipeline, as a person would write it."""

from __future__ import annotations

from oomdoctor.inventory.dataset_nodes import AUTOTUNE, Node

_CALLS = {
    "tensor_slice": "from_tensor_slices(...)",
    "tensor": "from_tensors(...)",
    "generator": "from_generator(...)",
    "tf_record": "TFRecordDataset(...)",
    "text_line": "TextLineDataset(...)",
    "csv": "CsvDataset(...)",
    "directed_interleave": "sample_from_datasets(...)",
    "dense_to_ragged": "map(...)",
}
_MAIN_NUMBER = ("buffer_size", "batch_size", "count", "size", "num_shards")


def label(node: Node, kind: str) -> str:
    """Return the call that makes a stage, such as `shuffle(1000)`."""
    if node.op == "cache":
        return f"cache({node.filename!r})" if node.filename else "cache()"
    if node.op == "repeat" and (node.numbers.get("count") or 0) < 0:
        return "repeat()"
    if node.op in _CALLS:
        return _CALLS[node.op]
    if kind == "range":
        return "range(...)"
    parts = [_number(node.numbers[name]) for name in _MAIN_NUMBER if name in node.numbers]
    if kind in ("map", "interleave"):
        parts = ["..."]
    for name in ("cycle_length", "num_parallel_calls"):
        if name in node.numbers:
            parts.append(f"{name}={_number(node.numbers[name])}")
    call = node.op.removeprefix("legacy_").removeprefix("parallel_")
    return f"{call}({', '.join(parts) or ('...' if node.op != 'unbatch' else '')})"


def _number(value: int | None) -> str:
    if value is None:
        return "?"
    return "AUTOTUNE" if value == AUTOTUNE else str(value)
