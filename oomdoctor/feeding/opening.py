"""A path → a source, by what is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding import arrays, images, records, shards, tables
from oomdoctor.feeding.source import Source, joined, source_of
from oomdoctor.inventory import formats, walk

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to read a dataset; see `oomdoctor.stream_dataset`."""

    inputs: Any = None
    labels: Any = AUTO
    image_size: tuple[int, ...] | None = None
    dtype: str = "float32"
    on_bad: str = "error"
    as_columns: bool = False
    any_size: bool = False


def open_source(path: Any, options: Options) -> Source:
    """Return what is under a path as a source."""
    if options.on_bad not in ("error", "skip"):
        raise UsageError(f'{options.on_bad!r} is no choice for on_bad: use "error" or "skip".')
    if options.dtype not in ("float32", "uint8"):
        raise UsageError(f'{options.dtype!r} is no choice for dtype: use "float32" or "uint8".')
    if hasattr(path, "shape"):
        return _arrays(arrays.Held(path, "x"), options, beside=None)
    path = os.fspath(path)
    if os.path.isdir(path):
        return _of_folder(path, options)
    if not os.path.isfile(path):
        raise InputError(f"{path} does not exist: give a folder or a file with data.")
    return _of_file(path, options)


def _of_file(path: str, options: Options) -> Source:
    suffix = path.rpartition(".")[2].lower()
    if suffix == "npy":
        return _arrays(arrays.open_npy(path), options, beside=arrays.labels_beside(path))
    if suffix in ("npz", "h5", "hdf5", "hdf"):
        found = arrays.open_npz(path) if suffix == "npz" else arrays.open_hdf5(path)
        return _named_arrays(found, path, options)
    if opened := _opener(path):
        return opened([path], options)
    raise InputError(
        f"{path} is not of a kind that can be streamed: give a folder of images, .npy, .npz, "
        "HDF5, TFRecord, Parquet or CSV."
    )


def _of_folder(path: str, options: Options) -> Source:
    manifest = shards.read_manifest(path)
    if manifest is not None:
        return _of_manifest(path, manifest, options)
    files: list[str] = []
    for chunk in walk.walk(path):
        if chunk.images:
            return images.open_images(
                path,
                image_size=options.image_size,
                dtype=options.dtype,
                with_labels=options.labels is not None,
                on_bad=options.on_bad,
                any_size=options.any_size,
            )
        files += [os.path.join(chunk.folder, name) for name, _ in chunk.others]
    files.sort()
    openers = {_opener(file) for file in files}
    opener = openers.pop() if len(openers) == 1 else None
    if opener is not None:
        return opener(files, options)
    raise InputError(
        f"{path} holds no images, and no TFRecord, Parquet or CSV files of one kind: give the "
        "file to stream."
    )


def _of_manifest(path: str, manifest: dict[str, Any], options: Options) -> Source:
    if manifest.get("format") == shards.ARRAYS:
        return shards.open_arrays(path, manifest)
    if manifest.get("format") != shards.RECORDS or not manifest.get("complete"):
        raise InputError(f"{path} is not complete: run oomdoctor.convert again.")
    try:
        files = [shards.shard_path(path, shard["file"]) for shard in manifest["shards"]]
        fields = [
            records.Field(str(f["name"]), str(f["kind"]), tuple(f["shape"]), str(f["dtype"]))
            for f in manifest["fields"]
        ]
        names = manifest.get("class_names")
    except (KeyError, TypeError):
        raise InputError(f"{os.path.join(path, shards.MANIFEST)} is damaged.") from None
    source = _records(files, options, fields)
    source.class_names = None if names is None else tuple(map(str, names))
    return source


def _arrays(x: Any, options: Options, *, beside: str | None) -> Source:
    labels = options.labels
    if isinstance(labels, str) and labels == AUTO:
        labels = beside
    if labels is None:
        return source_of([x], has_labels=False)
    if hasattr(labels, "shape"):
        return source_of([x, arrays.Held(labels)], has_labels=True)
    if not os.path.isfile(labels):
        raise UsageError(f"{labels} does not exist: labels= is a .npy file or an array here.")
    return source_of([x, arrays.open_npy(os.fspath(labels))], has_labels=True)


def _named_arrays(found: dict[str, Any], path: str, options: Options) -> Source:
    labels = options.labels
    if hasattr(labels, "shape"):
        chosen = [*arrays.choose(found, path, options.inputs, None), arrays.Held(labels)]
    else:
        chosen = arrays.choose(found, path, options.inputs, labels)
    multiple = max(getattr(reader, "chunk_rows", 1) for reader in chosen)
    return source_of(chosen, has_labels=len(chosen) > 1, multiple=multiple)


def _opener(path: str) -> Callable[[Sequence[str], Options], Source] | None:
    reader = formats.reader_for(os.path.basename(path))
    name = os.path.basename(path).lower()
    if reader == formats.RECORDS:
        return _records
    if reader == formats.TABLES and (".csv" in name or ".tsv" in name):
        return _csv
    if reader == formats.TABLES and (".parquet" in name or name.endswith(".pq")):
        return _parquet
    return None


def _records(
    paths: Sequence[str], options: Options, fields: Sequence[records.Field] | None = None
) -> Source:
    return records.open_records(
        paths,
        fields=fields,
        inputs=options.inputs,
        labels=options.labels,
        image_size=options.image_size,
        dtype=options.dtype,
    )


def _csv(paths: Sequence[str], options: Options) -> Source:
    for path in paths:
        if path.lower().endswith((".gz", ".bz2", ".xz")):
            raise InputError(f"{path} is compressed, so it cannot be read in place: unpack it.")
    return joined([_table(tables.CsvFile(path), options) for path in paths])


def _parquet(paths: Sequence[str], options: Options) -> Source:
    return joined([_table(tables.ParquetFile(path), options) for path in paths])


def _table(table: tables.Table, options: Options) -> Source:
    return tables.open_table(
        table, inputs=options.inputs, labels=options.labels, as_columns=options.as_columns
    )
