"""What a frozen backbone computes, once, in shards on disk."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.durable import write_durably, write_json
from oomdoctor.feeding.shards import ARRAYS, MANIFEST, checksum, read_manifest
from oomdoctor.units import MIB

SHARD_BYTES = 64 * MIB
"""A shard is held in memory until it is written, and lost if the run dies before."""

Report = Callable[[int], None]
"""Called with the samples that are stored so far."""


def store_features(backbone: Any, dataset: Any, folder: str, *, report: Report) -> None:
    """Write what a model makes of a dataset; see `oomdoctor.store_features`."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, MANIFEST)
    fingerprint = _fingerprint(backbone)
    manifest = read_manifest(folder) or {
        "format": ARRAYS,
        "backbone": fingerprint,
        "columns": [],
        "has_labels": False,
        "shards": [],
        "complete": False,
    }
    if manifest.get("format") != ARRAYS:
        raise UsageError(f"{folder} holds other data: give a folder of its own.")
    if manifest.get("backbone") != fingerprint:
        raise UsageError(
            f"{folder} holds features of another model: delete it, or give another folder."
        )
    _drop_missing(folder, manifest)
    done = sum(len(shard["sizes"]) for shard in manifest["shards"])
    samples = sum(sum(shard["sizes"]) for shard in manifest["shards"])
    report(samples)
    if manifest["complete"]:
        return
    for batches in _by_shard(_features(backbone, dataset.skip(done))):
        _write_shard(folder, manifest, batches)
        write_json(path, manifest)
        samples += sum(len(batch[0]) for batch in batches)
        report(samples)
    if not manifest["shards"]:
        raise InputError("The dataset is empty: there are no features to store.")
    manifest["complete"] = True
    write_json(path, manifest)


def _features(backbone: Any, dataset: Any) -> Iterator[tuple[list[str], list[Any], bool]]:
    """Yield names and arrays of each batch, and whether the last one is its labels."""
    import keras
    import numpy as np

    for batch in dataset:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        if weight is not None:
            raise UsageError("Sample weights cannot be stored: map them away first.")
        result = backbone.predict_on_batch(x)
        if isinstance(result, dict):
            names, values = list(result), list(result.values())
        else:
            values = list(result) if isinstance(result, (list, tuple)) else [result]
            names = ["x"] if len(values) == 1 else [f"x{i}" for i in range(len(values))]
        arrays = [np.asarray(value) for value in values]
        # NumPy's files have no bfloat16.
        arrays = [a.astype(np.float32) if a.dtype.kind == "V" else a for a in arrays]
        if y is not None:
            if not hasattr(y, "shape"):
                raise UsageError("Only labels that are one array can be stored.")
            names, arrays = [*names, "y"], [*arrays, np.asarray(y)]
        yield names, arrays, y is not None


def _by_shard(batches: Iterator[Any]) -> Iterator[list[Any]]:
    held: list[Any] = []
    size = 0
    for names, arrays, has_labels in batches:
        held.append((arrays[0], names, arrays, has_labels))
        size += sum(array.nbytes for array in arrays)
        if size >= SHARD_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _write_shard(folder: str, manifest: dict[str, Any], batches: list[Any]) -> None:
    _, names, arrays, has_labels = batches[0]
    columns = [
        {"name": name, "shape": list(a.shape[1:]), "dtype": a.dtype.name}
        for name, a in zip(names, arrays, strict=True)
    ]
    if manifest["columns"] and columns != manifest["columns"]:
        raise UsageError("The features change their shape from batch to batch: fix it first.")
    manifest["columns"], manifest["has_labels"] = columns, has_labels
    number = len(manifest["shards"])
    sizes = [len(first) for first, *_ in batches]
    files, sums = [], []
    for index, name in enumerate(names):
        column = [values[index] for _, _, values, _ in batches]
        if any(list(part.shape[1:]) != columns[index]["shape"] for part in column):
            raise UsageError("The features change their shape from batch to batch: fix it first.")
        file = f"{number:05}-{'y' if name == 'y' else index}.npy"
        write_durably(os.path.join(folder, file), _writer(column, sum(sizes)))
        files.append(file)
        sums.append([checksum(part) for part in column])
    manifest["shards"].append({"files": files, "sizes": sizes, "checksums": sums})


def _writer(parts: list[Any], rows: int) -> Callable[[BinaryIO], None]:
    """Return what writes batches as one `.npy` array, without joining them in memory."""
    import numpy as np

    def write(file: BinaryIO) -> None:
        first = parts[0]
        descr = np.lib.format.dtype_to_descr(first.dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (rows, *first.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)

    return write


def _drop_missing(folder: str, manifest: dict[str, Any]) -> None:
    """Forget shards from the first on whose files are not there."""
    shards = manifest["shards"]
    for number, shard in enumerate(shards):
        if not all(os.path.isfile(os.path.join(folder, str(name))) for name in shard["files"]):
            del shards[number:]
            manifest["complete"] = False
            return


def _fingerprint(backbone: Any) -> int:
    """Return a number that changes with the model's weights."""
    found = 0
    for variable in backbone.weights:
        values = variable.numpy()
        found = zlib.crc32(f"{values.shape}{values.dtype}".encode(), found)
        found = zlib.crc32(values.tobytes(), found)
    return found
