"""How large one sample is, as far as the code says, and how a size is put into words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oomdoctor.units import DTYPE_BYTES, GIB, format_bytes

Dims = tuple[int | None, ...]
LARGEST_BYTES = 2**60
"""Products beyond this are no sizes of anything."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape and the dtype of one sample; None where the code does not say."""

    dims: Dims | None = None
    dtype: str | None = None

    @property
    def size_bytes(self) -> int | None:
        """What one sample takes."""
        return bytes_of(self.dims, self.dtype)


def bytes_of(dims: Dims | None, dtype: str | None) -> int | None:
    """Return what an array takes, or None.

    Example:
        >>> bytes_of((84, 84, 4), "uint8")
        28224
    """
    width = DTYPE_BYTES.get(dtype or "")
    if dims is None or width is None:
        return None
    for size in dims:
        if size is None or size < 0:
            return None
        width *= size
        if width > LARGEST_BYTES:
            return None
    return width


def product(*factors: int | None) -> int | None:
    """Return a product, or None where a factor is not known or the product is no size."""
    result = 1
    for factor in factors:
        if factor is None:
            return None
        result *= factor
        if result > LARGEST_BYTES:
            return None
    return result


def computed(factors: Iterable[int], each: int) -> str:
    """Return a sentence that says how a size is computed.

    Example:
        >>> computed((100_000, 2), 28_224)
        'That takes 5.26 GiB: 100,000 × 2 × 27.6 KiB.'
    """
    factors = [factor for factor in factors if factor != 1]
    total = product(each, *factors) or 0
    if not factors:
        return f"That takes {format_bytes(total)}."
    shown = " × ".join(f"{factor:,}" for factor in factors)
    return f"That takes {format_bytes(total)}: {shown} × {format_bytes(each)}."


def for_each(each: int) -> str:
    """Return a sentence on a size whose number of samples is not known.

    Example:
        >>> for_each(150_528)
        'Each takes 147 KiB: 7,134 of them take 1.00 GiB.'
    """
    return f"Each takes {format_bytes(each)}: {-(-GIB // max(1, each)):,} of them take 1.00 GiB."
