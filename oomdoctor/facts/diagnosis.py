"""Why a run died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCause:
    """A cause that is also plausible, and the lines that speak for it."""

    cause: str
    confidence: float
    why: str
    evidence: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMap:
    """The chunks of an allocator when it failed, from its dump."""

    runs: tuple[tuple[int, int], ...]
    """Pairs of bytes and of those in use, by address; in a long dump neighbours are summed up."""
    sizes: tuple[tuple[int, int, int], ...]
    """Chunks by size: the power of two they begin at, how many are in use, how many are free."""
    largest_free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a run died, by its log or its exception."""

    cause: str
    confidence: float
    requested_bytes: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    allocator: str | None = None
    op: str | None = None
    layer: str | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    evidence: tuple[tuple[int, str], ...] = ()
    """Pairs of line number and text."""
    summary: str = ""
    """What ran out and why, in one or two sentences."""
    is_fatal: bool = True
    """False for what did not end the run: a warning, a slow buffer, a healthy log."""
    alternatives: tuple[OtherCause, ...] = ()
    """What else it may have been, the likeliest first."""
    source_line: str | None = None
    """The user's own line that led there, such as `train.py:57`."""
    batch_dimension: int | None = None
    """Which dimension of `shape` is the batch, from 0; None where none is, or it is not known."""
    batch_size: int | None = None
    """The batch size that was given or inferred."""
    fitting_batch: int | None = None
    """The largest batch that could fit by arithmetic on what is known: an estimate."""
    holders: tuple[tuple[str, int], ...] = ()
    """Pairs of who holds the memory and bytes, the largest first."""
    memory_map: MemoryMap | None = None
    """None where the log does not show every chunk."""
    stage: str | None = None
    """`weights` where weights or optimizer state were being created, `training` where steps or
    epochs came before; None where the log shows neither."""
    epochs: int | None = None
    """The highest epoch the log shows; 0 where it shows none."""
    signs: tuple[str, ...] = ()
    """What else bears on the advice: `shuffle_buffer`, `cache`, `gpu`, `optimizer_state`,
    `large_allocations`."""
    notes: tuple[str, ...] = ()
