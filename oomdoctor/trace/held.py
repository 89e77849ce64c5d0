"""What held the memory when a step was at its peak.

The *peak* is the most bytes the allocator had handed out at once, counted in whole chunks as the
allocator counts them (a chunk can be up to twice the tensor in it). A *part* says what a byte is
for:

- `weights`: variables of the model and of its metrics;
- `gradients`: gradients of trainable variables;
- `optimizer`: optimizer state and the temporaries of its update;
- `activations`: the batch, the outputs of layers, and the gradients that flow back through them;
- `workspace`: scratch memory of kernels, and what no op could be found for.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.model.spec import Shape

PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that was alive at the peak."""

    op: str
    layer: str | None
    part: str
    shape: Shape | None
    dtype: str | None
    requested_bytes: int
    allocated_bytes: int
    """The chunk it sat in."""


@dataclass(frozen=True)
class AllocationTrace:
    """The memory of one recorded step at its peak."""

    peak_bytes: int
    allocator_peak_bytes: int
    """The allocator's own figure for the same step: the replay must equal it."""
    start_bytes: int
    """Held when the step began: variables and the batch."""
    requested_bytes: int
    """What the tensors alive at the peak asked for; the rest is rounding and chunk slack."""
    parts: dict[str, int]
    """Bytes at the peak by part; they add up to `peak_bytes`."""
    layers: dict[str, int]
    """The same bytes by Keras layer, largest first. Names in brackets are not layers."""
    tensors: tuple[HeldTensor, ...]
    """The largest tensors at the peak."""
    curve: tuple[tuple[float, int], ...]
    """(milliseconds since the first event, bytes in use), thinned, with the peak kept."""
    events: int

    @property
    def slack_bytes(self) -> int:
        """Bytes of chunks at the peak that no tensor had asked for."""
        return self.peak_bytes - self.requested_bytes
