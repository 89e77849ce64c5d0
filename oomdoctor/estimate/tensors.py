"""A tensor of the simulated step: its shape, and the small whole numbers in it.

A `Value` is a number or a flat list of numbers; None where nobody needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Dims = tuple[int, ...]
Value = Any


class Tensor(NamedTuple):
    """A tensor of the simulated step."""

    dims: Dims
    dtype: str
    value: Value = None
    buffer: Any = None
    """The memory it lies in; None where it needs none."""


class Unknown(Exception):
    """The shape of an output cannot be told."""


def count(dims: Sequence[int]) -> int:
    """Return the number of elements."""
    total = 1
    for size in dims:
        total *= size
    return total


def broadcast(*shapes: Dims) -> Dims:
    """Return the shape several shapes broadcast to.

    Example:
        >>> broadcast((8, 1, 3), (5, 1))
        (8, 5, 3)
    """
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    # A dimension of 1 stretches, also to 0.
    return tuple(next((d for d in dims if d != 1), 1) for dims in zip(*padded, strict=True))


def ints(tensor: Tensor) -> list[int]:
    """Return the whole numbers in a tensor."""
    if tensor.value is None:
        raise Unknown
    return tensor.value if isinstance(tensor.value, list) else [tensor.value]


def axes_of(tensor: Tensor, rank: int) -> list[int]:
    """Return the axes a tensor lists, counted from the first."""
    return sorted({axis % rank if rank else 0 for axis in ints(tensor)})
