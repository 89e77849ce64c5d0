"""Look into HDF5 files with h5py: the shape and dtype of each dataset, and none of its data.

Links out of the file are never followed, and data that lies in other files (external storage,
virtual datasets) is noted and not opened. Keras keeps weights in HDF5 too; those are not data.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oomdoctor._optional import import_optional
from oomdoctor.errors import MissingPackageError
from oomdoctor.inventory.guard import TOO_MUCH, sizing
from oomdoctor.inventory.npy_header import dtype_name
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.isolation import end_with_parent
from oomdoctor.units import element_count

if TYPE_CHECKING:
    from collections.abc import Iterator

ELSEWHERE_NOTE = "data lies in other files, which were not opened"
TEXT_NOTE = "text of varying length: cannot be sized without reading it"
UNWRITTEN_NOTE = "more elements than were ever written; the rest is a fill value"

OBJECT_LIMIT = 10_000
_NAME_LIMIT = 1000
_KERAS = "Keras weights, not data"
_SHAPE_LIMIT_BYTES = 2**50
_MEMORY_BYTES = 1024**3
_PACKING_LIMIT = 2000
"""What deflate reaches at most, twice over."""


def serve(arguments: list[str]) -> None:
    """Answer requests, a line of JSON each, until there are no more.

    Args:
        arguments: The process id of who asks; without it nobody wants the answers.
    """
    end_with_parent(int(arguments[0]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whatever the library prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks decides when to stop
    # Loaded before the limit is set: libraries reserve much that they never use.
    with suppress(MissingPackageError):
        import_optional("h5py", extra="hdf5", purpose="to read HDF5 files")
    _limit_memory()
    for line in sys.stdin:
        path, size_bytes = json.loads(line)
        try:
            answer: dict[str, Any] = {"parts": [asdict(p) for p in parts_of(path, size_bytes)]}
        except Unreadable as error:
            answer = {"reason": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _limit_memory() -> None:
    """Keep a lying file from taking more than a GiB above what is in use."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            in_use_bytes = int(file.read().split()[0]) * resource.getpagesize()
        limit = in_use_bytes + _MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        return


def parts_of(path: str, size_bytes: int) -> list[Part]:
    """Return each dataset of a file."""
    try:
        h5py = import_optional("h5py", extra="hdf5", purpose="to read HDF5 files")
    except MissingPackageError as error:
        raise Unreadable(str(error)) from None
    # Through the open file, h5py has no path from which it could find others.
    with sizing("an HDF5 file"), open(path, "rb") as raw, h5py.File(raw, "r") as file:
        if _is_weights(file, path):
            raise Unreadable(_KERAS)
        parts = list(_parts(h5py, file, size_bytes))
    if not parts:
        raise Unreadable("an HDF5 file without datasets")
    return parts


def _is_weights(file: Any, path: str) -> bool:
    names = set(file.attrs)
    if names & {"model_config", "keras_version", "layer_names"}:
        return True
    return path.lower().endswith(".weights.h5") or ("layers" in file and "vars" in file)


def _parts(h5py: Any, file: Any, size_bytes: int) -> Iterator[Part]:
    """Yield the parts of hard-linked datasets, each once, in the order of their names."""
    found: list[tuple[str, Any]] = []
    seen = 0

    def visit(name: str, item: Any) -> bool | None:
        nonlocal seen
        seen += 1
        if isinstance(item, h5py.Dataset):
            found.append((name, item))
        return True if seen >= OBJECT_LIMIT else None  # anything but None ends the visit

    file.visititems(visit)
    note = "stopped after 10,000 objects" if seen >= OBJECT_LIMIT else None
    for name, dataset in found:
        yield _part(h5py, name[:_NAME_LIMIT], dataset, size_bytes, note)


def _part(h5py: Any, name: str, dataset: Any, size_bytes: int, note: str | None) -> Part:
    shape, dtype = dataset.shape, dataset.dtype
    if shape is None:  # an empty dataset has a type and no elements at all
        shape = (0,)
    elements = element_count(shape)
    is_varying = h5py.check_vlen_dtype(dtype) is not None or dtype.hasobject
    plain = None if is_varying else dtype_name(dtype.str) if dtype.kind != "V" else None
    memory_bytes = None if plain or is_varying else elements * dtype.itemsize
    if elements * dtype.itemsize > _SHAPE_LIMIT_BYTES:
        raise Unreadable("header claims more data than any machine holds")
    if dataset.is_virtual or dataset.external:
        note = ELSEWHERE_NOTE
    elif is_varying:
        note = TEXT_NOTE
    else:
        stored_bytes = dataset.id.get_storage_size()
        if stored_bytes > size_bytes:
            raise Unreadable(TOO_MUCH)
        if elements * dtype.itemsize > stored_bytes * _PACKING_LIMIT:
            note = UNWRITTEN_NOTE
    return Part(
        format="hdf5",
        kind="array",
        samples=(shape[0] if shape else 1) if elements else 0,
        shape=tuple(shape[1:]),
        elements=None if is_varying else elements,
        dtype=plain,
        name=name,
        memory_bytes=memory_bytes,
        # Chunks lie scattered, so only contiguous data can be memory-mapped.
        is_compressed=dataset.compression is not None or dataset.chunks is not None,
        is_exact=not is_varying,
        note=note,
    )
