"""Rows of `.npy`, `.npz` and HDF5 arrays, read in place.

Files are read, not memory-mapped: what is mapped counts as the process's own memory, and a mapped
file that is cut short meanwhile kills the process.
"""

from __future__ import annotations

import os
from typing import Any

from oomdoctor._optional import import_optional
from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.source import Column
from oomdoctor.inventory import arrays, hdf5, zips
from oomdoctor.inventory.npy_header import HEADER_LIMIT_BYTES, parse_header
from oomdoctor.inventory.parts import Unreadable

_INPUT_NAMES = ("x", "x_train", "images", "data", "features", "inputs")
_LABEL_NAMES = ("y", "y_train", "labels", "label", "targets", "target")
_MEMBER_LIMIT = 100_000


class ArrayFile:
    """An array at some place in a file."""

    def __init__(
        self, path: str, offset: int, shape: tuple[int, ...], dtype: Any, name: str
    ) -> None:
        self.column = Column(name, shape[1:], dtype.newbyteorder("=").name)
        self.rows = shape[0]
        self.path, self._offset, self._dtype = path, offset, dtype
        self._row_shape = shape[1:]
        self._row_bytes = dtype.itemsize
        for size in shape[1:]:
            self._row_bytes *= size

    def read(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, not included."""
        import numpy as np

        found = np.empty((stop - start, *self._row_shape), self._dtype)
        room = memoryview(found.reshape(-1).view(np.uint8).data)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self._offset + start * self._row_bytes)
            at = 0
            while at < len(room):
                count = file.readinto(room[at:])
                if not count:
                    raise InputError(f"{self.path} ends early: it was changed while it was read.")
                at += count
        return found if found.dtype.isnative else found.astype(self.column.dtype)


class Held:
    """An array that is in memory already, such as labels."""

    def __init__(self, values: Any, name: str = "labels") -> None:
        self.column = Column(name, values.shape[1:], values.dtype.name)
        self.rows = len(values)
        self._values = values

    def read(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, not included."""
        return self._values[start:stop].copy()


def open_npy(path: str) -> ArrayFile:
    """Return the array of a `.npy` file."""
    sized(arrays, path)
    with open(path, "rb") as file:
        head = file.read(HEADER_LIMIT_BYTES + 12)
    return _array_in(path, head, 0, os.path.basename(path))


def open_npz(path: str) -> dict[str, ArrayFile]:
    """Return the arrays of a `.npz` file that is not compressed."""
    sized(arrays, path)
    found = {}
    with open(path, "rb") as file:
        for member in list(zips.members(file, os.path.getsize(path), limit=_MEMBER_LIMIT)):
            if not member.name.endswith(".npy"):
                continue
            if member.method != zips.STORED:
                raise InputError(
                    f"{path} is compressed, so its rows cannot be read in place: unpack it once "
                    f'with oomdoctor.convert("{path}", "shards/") and stream that.'
                )
            head = zips.head(file, member, HEADER_LIMIT_BYTES + 12)
            # The local header repeats the name, with an extra field of its own length.
            file.seek(member.offset + 26)
            lengths = file.read(4)
            start = member.offset + 30
            start += int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
            name = member.name.removesuffix(".npy")
            found[name] = _array_in(path, head, start, name)
    return found


def _array_in(path: str, head: bytes, offset: int, name: str) -> ArrayFile:
    import io

    import numpy as np

    header = parse_header(head)  # bounds what NumPy is then given to parse
    file = io.BytesIO(head)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read(file, max_header_size=HEADER_LIMIT_BYTES)
    except ValueError as error:
        raise InputError(f"{path} is not a NumPy array that can be read: {error}") from None
    if dtype.hasobject:
        raise InputError(f"{path} holds Python objects, which are never unpickled: save numbers.")
    if dtype.kind not in "biufc" or dtype.itemsize > 16:
        raise InputError(f"{path} holds {dtype}, which TensorFlow has no tensors of.")
    if is_fortran and len(shape) > 1:
        raise InputError(
            f"{path} is in Fortran order, so its rows are scattered over the file: save it with "
            "np.save(path, np.ascontiguousarray(x))."
        )
    if not shape:
        raise InputError(f"{path} holds a single number: give an array with a row for each sample.")
    return ArrayFile(path, offset + header.data_offset, tuple(shape), dtype, name)


class Hdf5Dataset:
    """One dataset of an HDF5 file."""

    def __init__(self, path: str, name: str) -> None:
        h5py = import_optional("h5py", extra="hdf5", purpose="to read HDF5 files")
        with h5py.File(path, "r") as file:
            dataset = file[name]
            self.column = Column(name, dataset.shape[1:], dataset.dtype.newbyteorder("=").name)
            self.rows = dataset.shape[0]
            self.chunk_rows = dataset.chunks[0] if dataset.chunks else 1
        self.path, self._name = path, name

    def read(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, not included."""
        h5py = import_optional("h5py", extra="hdf5", purpose="to read HDF5 files")
        with h5py.File(self.path, "r") as file:
            return file[self._name][start:stop].astype(self.column.dtype, copy=False)


def open_hdf5(path: str) -> dict[str, Hdf5Dataset]:
    """Return the numeric datasets of an HDF5 file; what leads to other files is left out."""
    h5py = import_optional("h5py", extra="hdf5", purpose="to read HDF5 files")
    # A process of its own looks into the file first: the library crashes on damaged ones.
    parts = sized(hdf5, path)
    found = {}
    with h5py.File(path, "r") as file:
        for part in parts:
            if part.dtype is None or part.shape is None or part.samples is None or part.note:
                continue
            if isinstance(file.get(part.name, getlink=True), h5py.HardLink):
                found[part.name] = Hdf5Dataset(path, part.name)
    if not found:
        raise InputError(f"{path} holds no dataset of numbers.")
    return found


def choose(found: dict[str, Any], path: str, inputs: str | None, labels: str | None) -> list[Any]:
    """Return the arrays for inputs and labels by their names, or by what names usually mean.

    Args:
        found: All arrays by name.
        path: For messages.
        inputs: A name; None looks for one.
        labels: A name; "auto" looks for one, None is none.
    """
    names = ", ".join(sorted(found))

    def pick(name: str | None, usual: tuple[str, ...], option: str) -> str | None:
        if name is not None:
            if name not in found:
                raise UsageError(f"{path} has no {name!r}: {option}= is one of {names}.")
            return name
        by_name = {key.lower().rpartition("/")[2]: key for key in found}
        return next((by_name[key] for key in usual if key in by_name), None)

    x = pick(inputs, _INPUT_NAMES, "inputs")
    if x is None:
        if len(found) > 1:
            raise UsageError(f"{path} holds several arrays: choose with inputs= from {names}.")
        x = next(iter(found))
    y = None
    if labels is not None:
        y = pick(None if labels == "auto" else labels, _LABEL_NAMES, "labels")
    return [found[x]] + ([found[y]] if y is not None and y != x else [])


def labels_beside(path: str) -> str | None:
    """Return the file of labels that belongs to a file of inputs by its name, if there is one.

    `x_train.npy` has `y_train.npy`; `images.npy` has `labels.npy`.
    """
    folder, name = os.path.split(path)
    for old in ("x", "X", *_INPUT_NAMES[2:]):
        if not name.startswith(old):
            continue
        usual = {"x": ("y",), "X": ("Y", "y")}.get(old, ("labels", "targets"))
        for new in usual:
            candidate = os.path.join(folder, new + name[len(old) :])
            if os.path.isfile(candidate):
                return candidate
    return None


def sized(reader: Any, path: str) -> list[Any]:
    """Return what an inventory's reader says of a file, which has refused what would harm."""
    try:
        return list(reader.read(path, os.path.getsize(path)))
    except Unreadable as error:
        raise InputError(f"{path} cannot be read: {error}.") from None
