"""A model and how it is trained, without any framework object."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.units import MIB

TENSORFLOW_RAM_BYTES = 600 * MIB
"""A process that imported TensorFlow and trained a tiny model: 589 MiB, 14 MiB of it Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and how it is trained, without any framework object."""

    model: str | None = None
    weights_bytes: int | None = None
    trainable_bytes: int | None = None
    optimizer: str | None = None
    optimizer_bytes: int | None = None
    precision: str | None = None
    """The dtype policy, such as `float32` or `mixed_float16`."""
    input_shape: tuple[int, ...] | None = None
    has_batch_norm: bool | None = None
    replicas: int = 1
    batch_size: int | None = None
    """The global batch, over all replicas."""
