"""A dataset on disk as blocks of rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oomdoctor.errors import InputError
from oomdoctor.feeding.order import windows
from oomdoctor.units import MIB

BLOCK_BYTES = MIB
"""What is read at once where the format does not say: above it disks gain no speed."""


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a dataset, without its first axis."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str


def bytes_of(columns: Sequence[Column]) -> int:
    """Return the bytes of a row, at least one."""
    import numpy as np

    elements = [math.prod(size or 1 for size in column.shape) for column in columns]
    widths = [np.dtype(column.dtype).itemsize for column in columns]
    return max(1, int(sum(map(operator.mul, elements, widths))))


class Reader(Protocol):
    """One array whose rows can be read from anywhere."""

    column: Column
    rows: int

    def read(self, start: int, stop: int) -> Any:
        """Return rows as a NumPy array of their own."""


@dataclass(slots=True)
class Source:
    """A dataset that is read block by block."""

    columns: tuple[Column, ...]
    sizes: Sequence[int]
    """Rows of each block."""
    read: Callable[[int], Sequence[Any]]
    """From a block's number to its arrays, one for each column."""
    row_bytes: int
    has_labels: bool
    """Whether the last column is the labels."""
    class_names: tuple[str, ...] | None = None
    bad_files: tuple[str, ...] = ()
    """Files that were left out, and why."""
    image_shape: tuple[int, ...] | None = None
    decode: Callable[..., Any] | None = None
    """A TensorFlow function from one row's tensors to x or (x, y), where decoding takes long."""
    parse: Callable[..., Any] | None = None
    """The same for a batch of rows."""
    name_of: Callable[[int], str] | None = None
    """From a row's number to what it is called in a message, where single rows may be bad."""

    @property
    def rows(self) -> int:
        """Rows of all blocks."""
        return sum(self.sizes)

    def structured(self, values: Sequence[Any]) -> Any:
        """Return a row's or a batch's values as Keras takes them: x, or (x, y)."""
        inputs = values[:-1] if self.has_labels else values
        names = [column.name for column in self.columns]
        x = inputs[0] if len(inputs) == 1 else dict(zip(names, inputs, strict=False))
        return (x, values[-1]) if self.has_labels else x


def joined(sources: Sequence[Source]) -> Source:
    """Return sources of the same columns as one."""
    first = sources[0]
    places = [(source, block) for source in sources for block in range(len(source.sizes))]
    for source in sources[1:]:
        if source.columns != first.columns:
            raise InputError("The files of the folder differ in their columns or shapes.")

    def read(number: int) -> Sequence[Any]:
        source, block = places[number]
        return source.read(block)

    sizes = [source.sizes[block] for source, block in places]
    return Source(first.columns, sizes, read, first.row_bytes, first.has_labels)


def source_of(readers: Sequence[Reader], *, has_labels: bool, multiple: int = 1) -> Source:
    """Return arrays of the same length as one source.

    Args:
        readers: One for each array, the labels last.
        has_labels: Whether there are labels.
        multiple: Blocks are made of a multiple of so many rows, as far as they stay small.
    """
    rows = readers[0].rows
    for reader in readers[1:]:
        if reader.rows != rows:
            raise InputError(
                f"{readers[0].column.name} has {rows:,} rows and {reader.column.name} has "
                f"{reader.rows:,}: inputs and labels must be of the same length."
            )
    if not rows:
        raise InputError(f"{readers[0].column.name} is empty.")
    row_bytes = bytes_of([reader.column for reader in readers])
    step = max(1, BLOCK_BYTES // row_bytes)
    step = max(multiple, step // multiple * multiple)
    starts = range(0, rows, step)

    def read(block: int) -> list[Any]:
        start = starts[block]
        return [reader.read(start, min(start + step, rows)) for reader in readers]

    sizes = [step] * (len(starts) - 1) + [rows - starts[-1]]
    return Source(tuple(r.column for r in readers), sizes, read, row_bytes, has_labels)


def batches(
    source: Source,
    batch_size: int,
    *,
    buffer_rows: int,
    seed: int | None,
    epoch: int = 0,
    skip_rows: int = 0,
) -> Iterator[tuple[Any, ...]]:
    """Yield an epoch's batches as NumPy arrays; the last may be smaller.

    At any time one window is in memory, one block that is copied into it, and a batch.
    """
    import numpy as np

    rest: list[Any] = []
    for window in windows(
        source.sizes, buffer_rows=buffer_rows, seed=seed, epoch=epoch, skip_rows=skip_rows
    ):
        held = _read_window(source, window.blocks, window.rows)
        order = window.order()
        start = 0
        if rest:
            start = batch_size - len(rest[0])
            taken = [values[order[:start]] for values in held]
            rest = [np.concatenate(pair) for pair in zip(rest, taken, strict=True)]
            if len(rest[0]) < batch_size:
                continue
            yield tuple(rest)
            rest = []
        while start + batch_size <= len(order):
            rows = order[start : start + batch_size]
            yield tuple(values[rows] for values in held)
            start += batch_size
        if start < len(order):
            rest = [values[order[start:]] for values in held]
        del held  # before the next window is read
    if rest:
        yield tuple(rest)


def _read_window(source: Source, blocks: Sequence[int], rows: int) -> list[Any]:
    import numpy as np

    held: list[Any] = []
    at = 0
    for block in blocks:
        values = source.read(block)
        if len(blocks) == 1:
            return list(values)
        if not held:
            held = [np.empty((rows, *part.shape[1:]), part.dtype) for part in values]
        for whole, part in zip(held, values, strict=True):
            whole[at : at + len(part)] = part
        at += len(values[0])
    return held
