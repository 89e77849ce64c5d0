"""TFRecord files: an index of blocks of records, read in place, parsed by TensorFlow."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.images import image_decoder
from oomdoctor.feeding.source import BLOCK_BYTES, Column, Source
from oomdoctor.inventory import records
from oomdoctor.inventory.example import NotAnExample, parse_example
from oomdoctor.inventory.parts import Unreadable

LABEL_NAMES = ("label", "labels", "target", "class", "y", "image/class/label", "image/label")
_LOOK_BYTES = 1024 * 1024
_FRAME_BYTES = 16
_NEAR_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Field:
    """One feature of the examples in a file."""

    name: str
    kind: str
    """`int64`, `float32`, `image` (encoded), or `raw` (the bytes of an array)."""
    shape: tuple[int, ...]
    dtype: str


def open_records(
    paths: Sequence[str],
    *,
    fields: Sequence[Field] | None,
    inputs: str | None,
    labels: str | None,
    image_size: tuple[int, ...] | None,
    dtype: str,
) -> Source:
    """Return the records of files as one source.

    Args:
        paths: The files, in order.
        fields: What `convert` wrote down; found in the first record if None.
        inputs: The feature to feed; all but the labels if None.
        labels: A feature; "auto" looks for one, None is none.
        image_size: Of encoded images; that of the first one if None.
        dtype: Of decoded images.
    """
    starts: list[tuple[str, int, int]] = []
    sizes: list[int] = []
    for path in paths:
        for start, stop, count in _blocks(path):
            starts.append((path, start, stop))
            sizes.append(count)
    if not sizes:
        raise InputError(f"{paths[0]} holds no records.")
    found = list(fields) if fields is not None else _fields_of(starts[0])
    chosen, label = _chosen(found, paths[0], inputs, labels)
    images = [field for field in chosen if field.kind == "image"]
    row_bytes = sum(os.path.getsize(path) for path in paths) // sum(sizes)
    parse = _parser(chosen, label, image_size, dtype)
    return Source(
        columns=(Column("record", (), "string"),),
        sizes=sizes,
        read=lambda block: [_read(*starts[block], sizes[block])],
        row_bytes=max(1, row_bytes),
        has_labels=label is not None,
        decode=(lambda record: parse(record, False)) if images else None,
        parse=None if images else (lambda batch: parse(batch, True)),
    )


def _blocks(path: str) -> list[tuple[int, int, int]]:
    """Return start, end and records of stretches of a file of about `BLOCK_BYTES`."""
    size_bytes = os.path.getsize(path)
    with open(path, "rb", buffering=0) as file:
        head = file.read(12)
        if not records.is_frame(head):
            packed = head[:2] == b"\x1f\x8b" or path.endswith(".gz")
            if packed:
                raise InputError(
                    f"{path} is compressed, so its records cannot be read in place: unpack it "
                    "first (gunzip)."
                )
            raise InputError(f"{path} is not a TFRecord file, or is damaged.")
        found: list[tuple[int, int, int]] = []
        begin = position = count = 0
        near, near_from = b"", 0
        while position + 12 <= size_bytes:
            at = position - near_from
            if at + 8 > len(near):
                near = os.pread(file.fileno(), _NEAR_BYTES, position)
                near_from, at = position, 0
            (length,) = struct.unpack_from("<Q", near, at)
            if position + _FRAME_BYTES + length > size_bytes:
                raise InputError(f"{path} ends inside a record: it was not written to its end.")
            position += _FRAME_BYTES + length
            count += 1
            if position - begin >= BLOCK_BYTES:
                found.append((begin, position, count))
                begin, count = position, 0
    if count:
        found.append((begin, position, count))
    return found


def _read(path: str, start: int, stop: int, count: int) -> Any:
    import numpy as np

    with open(path, "rb", buffering=0) as file:
        content = os.pread(file.fileno(), stop - start, start)
    found = np.empty(count, object)
    at = 0
    for row in range(count):
        (length,) = struct.unpack_from("<Q", content, at)
        found[row] = content[at + 12 : at + 12 + length]
        at += _FRAME_BYTES + length
    return found


def _fields_of(block: tuple[str, int, int]) -> list[Field]:
    path, start, _ = block
    with open(path, "rb", buffering=0) as file:
        (length,) = struct.unpack("<Q", os.pread(file.fileno(), 8, start))
        data = os.pread(file.fileno(), min(length, _LOOK_BYTES), start + 12)
    try:
        features = parse_example(data, length)
    except (NotAnExample, Unreadable, UnicodeDecodeError):
        raise InputError(f"The records of {path} are not tf.train.Example.") from None
    found = []
    for feature in features:
        kind = feature.dtype if feature.dtype in ("int64", "float32") else "raw"
        if kind == "raw" and len(feature.shape) == 3:
            kind = "image"
        found.append(Field(feature.name, kind, feature.shape, feature.dtype))
    return sorted(found, key=lambda field: field.name)


def _chosen(
    found: Sequence[Field], path: str, inputs: str | None, labels: str | None
) -> tuple[list[Field], Field | None]:
    by_name = {field.name: field for field in found}
    for name, option in ((inputs, "inputs"), (None if labels == "auto" else labels, "labels")):
        if name is not None and name not in by_name:
            names = ", ".join(sorted(by_name))
            raise UsageError(f"{path} has no feature {name!r}: {option}= is one of {names}.")
    label = None
    if labels == "auto":
        label = next((by_name[name] for name in LABEL_NAMES if name in by_name), None)
    elif labels is not None:
        label = by_name[labels]
    if inputs is not None:
        return [by_name[inputs]], label
    chosen = [field for field in found if field is not label]
    images = [field for field in chosen if field.kind == "image"]
    # Beside an encoded image its height, format and file name are noted as a rule.
    chosen = images if len(images) == 1 else chosen
    if not chosen:
        raise UsageError(f"{path} has no features beside {', '.join(by_name)}.")
    return chosen, label


def _parser(
    chosen: Sequence[Field], label: Field | None, image_size: tuple[int, ...] | None, dtype: str
) -> Callable[[Any, bool], Any]:
    """Return a TensorFlow function from a record, or a batch of them, to x or (x, y)."""
    import tensorflow as tf

    used = [*chosen, *([label] if label is not None else [])]
    wanted: Mapping[str, Any] = {field.name: _feature(field) for field in used}
    decoders = {}
    for field in chosen:
        if field.kind == "image":
            target = (*image_size, 3)[:3] if image_size else (*field.shape[:2], 3)
            decoders[field.name] = image_decoder(target, dtype, is_sized=False)

    def value(field: Field, parsed: Any, is_batch: bool) -> Any:
        tensor = parsed[field.name]
        if field.kind == "image":
            return decoders[field.name](tensor)
        if field.kind == "raw":
            tensor = tf.io.decode_raw(tensor, tf.as_dtype(field.dtype))
            return tf.reshape(tensor, [*([-1] if is_batch else []), *field.shape])
        return tensor

    def parse(record: Any, is_batch: bool) -> Any:
        read = tf.io.parse_example if is_batch else tf.io.parse_single_example
        parsed = read(record, wanted)
        values = {field.name: value(field, parsed, is_batch) for field in used}
        x = values[chosen[0].name] if len(chosen) == 1 else {f.name: values[f.name] for f in chosen}
        return (x, values[label.name]) if label is not None else x

    return parse


def _feature(field: Field) -> Any:
    import tensorflow as tf

    if field.kind in ("image", "raw"):
        return tf.io.FixedLenFeature([], tf.string)
    # A single number, such as a label, is a scalar.
    shape = [] if field.shape == (1,) else list(field.shape)
    return tf.io.FixedLenFeature(shape, tf.as_dtype(field.kind))
