"""A dataset → TFRecord shards, in constant memory."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.durable import PART, name_durably, write_json
from oomdoctor.feeding.opening import Options, open_source
from oomdoctor.feeding.records import Field
from oomdoctor.feeding.shards import MANIFEST, RECORDS, read_manifest
from oomdoctor.feeding.source import BLOCK_BYTES, Column, Source, source_of
from oomdoctor.units import MIB

SHARD_BYTES = 128 * MIB
"""TensorFlow's guide advises shards of 100 MB and more."""

Report = Callable[[int, int], None]
"""Called with the samples that are written so far, and all of them."""


def convert(path: Any, folder: str, options: Options, *, report: Report) -> None:
    """Write a dataset as TFRecord shards; see `oomdoctor.convert`."""
    with ExitStack() as stack:
        source = _open(path, options, stack)
        fields = _fields(source)
        os.makedirs(folder, exist_ok=True)
        manifest_path = os.path.join(folder, MANIFEST)
        manifest = read_manifest(folder)
        fresh: dict[str, Any] = {
            "format": RECORDS,
            "samples": source.rows,
            "fields": [
                {"name": f.name, "kind": f.kind, "shape": list(f.shape), "dtype": f.dtype}
                for f in fields
            ],
            "class_names": None if source.class_names is None else list(source.class_names),
            "shards": [],
            "complete": False,
        }
        if manifest is None:
            manifest = fresh
        elif {**manifest, "shards": [], "complete": False} != fresh:
            raise UsageError(f"{folder} holds other data: delete it, or give another folder.")
        done = sum(shard["samples"] for shard in manifest["shards"])
        report(done, source.rows)
        if manifest["complete"]:
            return
        rows = _rows(source, fields, skip=done)
        while done < source.rows:
            name = f"{len(manifest['shards']):05}.tfrecord"
            count = _write_shard(os.path.join(folder, name), rows)
            if not count:
                raise InputError(f"{path} ended early: it was changed while it was read.")
            done += count
            manifest["shards"].append({"file": name, "samples": count})
            write_json(manifest_path, manifest)
            report(done, source.rows)
        manifest["complete"] = True
        write_json(manifest_path, manifest)


def _write_shard(path: str, rows: Iterator[bytes]) -> int:
    """Write rows until a shard is full; return how many."""
    import tensorflow as tf

    count = size = 0
    with tf.io.TFRecordWriter(path + PART) as writer:
        for row in rows:
            writer.write(row)
            count += 1
            size += len(row)
            if size >= SHARD_BYTES:
                break
    handle = os.open(path + PART, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    name_durably(path + PART, path)
    return count


def _fields(source: Source) -> list[Field]:
    """Return how each column is written."""
    found = []
    for index, column in enumerate(source.columns):
        is_label = source.has_labels and index == len(source.columns) - 1
        if source.name_of is not None and index == 0:
            assert source.image_shape is not None
            found.append(Field("image", "image", source.image_shape, "uint8"))
        elif column.dtype == "string":
            raise UsageError("Text cannot be converted: name columns of numbers with inputs=[...].")
        elif is_label and not column.shape and "int" in column.dtype:
            found.append(Field("label", "int64", (1,), "int64"))
        else:
            shape = tuple(size or 1 for size in column.shape)
            found.append(Field("label" if is_label else column.name, "raw", shape, column.dtype))
    return found


def _rows(source: Source, fields: list[Field], *, skip: int) -> Iterator[bytes]:
    """Yield each row as a serialized `tf.train.Example`."""
    import tensorflow as tf

    passed = 0
    for block, size in enumerate(source.sizes):
        if passed + size <= skip:
            passed += size
            continue
        values = source.read(block)
        for row in range(max(0, skip - passed), size):
            features = {}
            for field, column in zip(fields, values, strict=True):
                features[field.name] = _feature(field, column[row])
            example = tf.train.Example(features=tf.train.Features(feature=features))
            yield example.SerializeToString()
        passed += size


def _feature(field: Field, value: Any) -> Any:
    import tensorflow as tf

    if field.kind == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
    if field.kind == "image":
        with open(value, "rb") as file:
            content = file.read()
    else:
        content = value.tobytes()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))


def _open(path: Any, options: Options, stack: ExitStack) -> Source:
    try:
        return open_source(path, options)
    except InputError as error:
        if not str(path).lower().endswith(".npz") or "is compressed" not in str(error):
            raise
    return _packed(os.fspath(path), options, stack)


class _PackedArray:
    """An array of a compressed `.npz`, read from its start to its end, once."""

    def __init__(self, path: str, name: str, stack: ExitStack) -> None:
        import numpy as np

        archive = stack.enter_context(zipfile.ZipFile(path))
        self._file = stack.enter_context(archive.open(f"{name}.npy"))
        version = np.lib.format.read_magic(self._file)
        one = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(self._file)
        if dtype.kind not in "biufc" or not shape or (is_fortran and len(shape) > 1):
            raise InputError(f"{path} holds arrays that cannot be converted: {dtype}, {shape}.")
        self.column = Column(name, tuple(shape[1:]), dtype.newbyteorder("=").name)
        self.rows, self._dtype, self._at = shape[0], dtype, 0
        self._row_bytes = dtype.itemsize * math.prod(shape[1:])

    def read(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, not included; those before are passed over."""
        import numpy as np

        row_bytes = self._row_bytes
        while self._at < start:
            step = min(start - self._at, max(1, BLOCK_BYTES // max(1, row_bytes)))
            self._file.read(step * row_bytes)
            self._at += step
        content = self._file.read((stop - start) * row_bytes)
        self._at = stop
        if len(content) < (stop - start) * row_bytes:
            raise InputError("The compressed array ends early: the file is damaged.")
        found = np.frombuffer(content, self._dtype).reshape(-1, *self.column.shape)
        return found.astype(self.column.dtype, copy=False)


def _packed(path: str, options: Options, stack: ExitStack) -> Source:
    from oomdoctor.feeding.arrays import choose, sized
    from oomdoctor.inventory import arrays

    names = [part.name for part in sized(arrays, path) if part.dtype is not None]
    found = {name: _PackedArray(path, name, stack) for name in names}
    chosen = choose(found, path, options.inputs, options.labels)
    return source_of(chosen, has_labels=len(chosen) > 1)
