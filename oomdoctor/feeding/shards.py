"""Folders that oomdoctor wrote: a manifest, and shards that it lists.

`store_features` writes `.npy` shards with a checksum for each block of rows, which is checked
whenever the block is read. `convert` writes TFRecord shards, whose checksums are in the format.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.feeding.arrays import ArrayFile, open_npy
from oomdoctor.feeding.durable import read_json
from oomdoctor.feeding.source import Column, Source, bytes_of

MANIFEST = "oomdoctor.json"
ARRAYS, RECORDS = "arrays", "tfrecord"


def read_manifest(folder: str) -> dict[str, Any] | None:
    """Return what was written to a folder so far; None if it is not one of oomdoctor's."""
    path = os.path.join(folder, MANIFEST)
    return read_json(path) if os.path.isfile(path) else None


def shard_path(folder: str, name: Any) -> str:
    """Return the path of a shard; its name must not lead out of the folder."""
    if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
        raise InputError(f"{os.path.join(folder, MANIFEST)} names a file outside of its folder.")
    return os.path.join(folder, name)


def checksum(values: Any) -> int:
    """Return the CRC-32 of an array's bytes."""
    import numpy as np

    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def open_arrays(folder: str, manifest: dict[str, Any]) -> Source:
    """Return stored arrays as a source; its blocks are the batches they were written in."""
    if not manifest.get("complete"):
        raise InputError(
            f"{folder} is not complete: run oomdoctor.store_features again, which goes on where "
            "it stopped."
        )
    blocks: list[tuple[list[ArrayFile], int, int, Sequence[int]]] = []
    try:
        columns = tuple(
            Column(str(c["name"]), tuple(c["shape"]), str(c["dtype"])) for c in manifest["columns"]
        )
        has_labels = bool(manifest["has_labels"])
        for shard in manifest["shards"]:
            files = [open_npy(shard_path(folder, name)) for name in shard["files"]]
            rows = sum(shard["sizes"])
            if [f.rows for f in files] != [rows] * len(columns):
                raise InputError(f"{folder} does not hold the rows that its manifest lists.")
            start = 0
            for number, size in enumerate(shard["sizes"]):
                sums = [each[number] for each in shard["checksums"]]
                blocks.append((files, start, start + size, sums))
                start += size
    except (KeyError, TypeError, IndexError, ValueError):
        raise InputError(f"{os.path.join(folder, MANIFEST)} is damaged.") from None
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None
    if not blocks:
        raise InputError(f"{folder} holds no samples.")

    def read(block: int) -> list[Any]:
        files, start, stop, sums = blocks[block]
        found = []
        for file, expected in zip(files, sums, strict=True):
            values = file.read(start, stop)
            if checksum(values) != expected:
                raise InputError(
                    f"{file.path} is damaged: its checksum differs. Delete {folder} and store "
                    "the features again."
                )
            found.append(values)
        return found

    sizes = [stop - start for _, start, stop, _ in blocks]
    return Source(columns, sizes, read, bytes_of(columns), has_labels)
