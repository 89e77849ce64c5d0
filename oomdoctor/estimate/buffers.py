"""Memory of a simulated step: who holds which buffer, and when it is let go.

A *buffer* is counted by the tensors and variables that hold it and released with the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oomdoctor.estimate.nodes import Node
from oomdoctor.estimate.tensors import Tensor, count
from oomdoctor.units import DTYPE_BYTES

TINY_BYTES = 512
"""Smaller buffers (shapes, scalars) are not followed: together they are a few hundred KiB."""


class Buffer:
    """A piece of memory and how many hold it."""

    __slots__ = ("children", "number", "refs")

    def __init__(self, number: int | None, children: list[Tensor] | None = None) -> None:
        self.number = number
        """None where it is too small to be followed, or a list of other tensors."""
        self.refs = 1
        self.children = children


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a buffer came from."""

    node: str
    op: str
    dims: tuple[int, ...]
    dtype: str
    kind: str
    """`output`, `temp` or `variable`."""
    variable: int | None = None
    caller: str = ""
    """The node of the step that ran it, where it is inside of a loop or a function."""


@dataclass(slots=True)
class Run:
    """The allocations of one simulated step."""

    events: list[tuple[int, int]] = field(default_factory=list)
    """An allocation is (buffer, bytes), a release is (buffer, -1)."""
    origins: list[Origin] = field(default_factory=list)
    """By number of the buffer."""
    before: list[tuple[int, int]] = field(default_factory=list)
    """Buffers that live before the step: variables and arguments."""
    after: dict[int, int] = field(default_factory=dict)
    """For each variable, the buffer it lies in after the step."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Operations whose shape could not be told, with the bytes assumed for them."""
    order: list[str] = field(default_factory=list)
    convolved_bytes: int = 0
    """The largest tensor that a convolution reads or writes."""


class Memory:
    """Hands out buffers and keeps the list of what happened."""

    def __init__(self) -> None:
        self.run = Run()
        self.caller = ""

    def new(self, size_bytes: int, origin: Origin) -> Buffer:
        """Return a new buffer; a tiny one is not followed."""
        if size_bytes < TINY_BYTES:
            return Buffer(None)
        number = len(self.run.origins)
        self.run.origins.append(origin)
        self.run.events.append((number, size_bytes))
        return Buffer(number)

    def drop(self, tensor: Tensor) -> None:
        """Let go of what a tensor holds; the last one to do so releases it."""
        buffer = tensor.buffer
        if buffer is None:
            return
        buffer.refs -= 1
        if buffer.refs:
            return
        if buffer.number is not None:
            self.run.events.append((buffer.number, -1))
        if buffer.children is not None:
            for child in buffer.children:
                self.drop(child)

    def allocated(self, node: Node, tensor: Tensor) -> Tensor:
        """Return the tensor in memory of its own."""
        size = count(tensor.dims) * DTYPE_BYTES.get(tensor.dtype, 0)
        if size < TINY_BYTES:
            return tensor
        origin = Origin(node.name, node.op, tensor.dims, tensor.dtype, "output", None, self.caller)
        return tensor._replace(buffer=self.new(size, origin))

    def share(self, tensor: Tensor) -> Tensor:
        """Return the tensor for one more holder."""
        if tensor.buffer is not None:
            tensor.buffer.refs += 1
        return tensor
