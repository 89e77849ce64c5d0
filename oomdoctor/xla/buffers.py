"""Where XLA put every buffer of a program → what is in memory at its peak.

*Peak* is what the program needs while it runs: its arguments, the results that do not take an
argument's place, and the block that holds all temporaries. XLA decides the layout of that block
when it compiles, so the peak does not depend on the run. The buffers at the peak are those in the
block at the moment when most of it is in use.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from oomdoctor.errors import InputError
from oomdoctor.xla.module import Module, Origin
from oomdoctor.xla.wire import Torn, fields, numbers

Kind = Literal["argument", "output", "temporary", "constant"]

_ALLOCATE, _FREE, _SHARE = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One buffer that is in memory at the peak."""

    bytes: int
    kind: Kind
    op_name: str = ""
    """The TensorFlow operation, with its scopes; empty for an argument."""
    argument: int | None = None
    """The argument that it holds, or holds a copy of."""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    is_scratch: bool = False
    """Whether it is the workspace of a library call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The memory of a compiled program."""

    argument_bytes: int
    output_bytes: int
    aliased_bytes: int
    """Results that take the place of an argument: the variables that the step updates."""
    temporary_bytes: int
    constant_bytes: int
    idle_bytes: int
    """What no buffer uses at the peak, in the block of temporaries."""
    buffers: tuple[Buffer, ...]
    """At the peak, the largest first."""
    recomputed: int
    """How many instructions recompute a value to save memory."""

    @property
    def peak_bytes(self) -> int:
        """Arguments, results that take no argument's place, and temporaries."""
        outputs = self.output_bytes - self.aliased_bytes
        return self.argument_bytes + outputs + self.temporary_bytes


@dataclass(slots=True)
class _Allocation:
    size: int = 0
    is_thread_local: bool = False
    is_argument: bool = False
    argument: int = 0
    is_constant: bool = False
    is_output: bool = False
    holds: tuple[tuple[int, int], ...] = ()
    """Buffers that it holds at one time or another, with their sizes."""


def is_complete(program: bytes | memoryview) -> bool:
    """Return whether a dumped program is whole, buffers included."""
    try:
        return any(number == 3 for number, _, _ in list(fields(memoryview(program))))
    except Torn:
        return False


def read_assignment(program: bytes) -> Assignment:
    """Return the memory of a program that XLA dumped as `HloProto`."""
    sections = {number: inner for number, _, inner in fields(memoryview(program))}
    if 1 not in sections or 3 not in sections:
        raise InputError("XLA did not say where it puts the buffers of this program.")
    return _Reader(Module(sections[1]), sections[3]).assignment()


class _Reader:
    def __init__(self, module: Module, message: memoryview) -> None:
        self._module = module
        self._made_by: dict[int, tuple[int, tuple[int, ...]]] = {}
        """For a buffer, the instruction whose result it holds, and which part of that."""
        self._allocations: list[_Allocation] = []
        self._traces: list[memoryview] = []
        for number, _, inner in fields(message):
            if number == 1:
                self._add_buffer(inner)
            elif number == 3:
                self._allocations.append(_read_allocation(inner))
            elif number == 4:
                self._traces.append(inner)
        self._sizes = dict(pair for known in self._allocations for pair in known.holds)

    def assignment(self) -> Assignment:
        totals: Counter[str] = Counter()
        buffers = []
        for known in self._allocations:
            if known.is_thread_local:
                continue
            kind = _kind(known)
            totals[kind] += known.size
            if known.is_argument and known.is_output:
                totals["aliased"] += known.size
            if kind != "temporary":
                buffers.append(self._whole(known, kind))
        held = [buffer for trace in self._traces for buffer in self._at_peak(trace)]
        return Assignment(
            argument_bytes=totals["argument"],
            output_bytes=totals["output"] + totals["aliased"],
            aliased_bytes=totals["aliased"],
            temporary_bytes=totals["temporary"],
            constant_bytes=totals["constant"],
            idle_bytes=max(0, totals["temporary"] - sum(buffer.bytes for buffer in held)),
            buffers=tuple(sorted(buffers + held, key=lambda buffer: -buffer.bytes)),
            recomputed=self._module.recomputed,
        )

    def _whole(self, known: _Allocation, kind: Kind) -> Buffer:
        """Return an allocation outside the block of temporaries as one buffer."""
        # Results may take an argument's place later; the largest is what it is there for.
        ordered = sorted(known.holds, key=lambda pair: (-pair[1], not self._is_given(pair[0])))
        if not ordered:
            return Buffer(bytes=known.size, kind=kind)
        origin = Origin(argument=known.argument) if known.is_argument else None
        return self._described(ordered[0][0], known.size, kind, origin)

    def _is_given(self, buffer: int) -> bool:
        """Return whether a buffer holds an argument as it was given."""
        instruction = self._module.instructions.get(self._made_by.get(buffer, (-1, ()))[0])
        return instruction is not None and instruction.opcode == "parameter"

    def _at_peak(self, trace: memoryview) -> list[Buffer]:
        """Return the buffers that are in use when most of the block is."""
        block: dict[int, int] = {}
        sharing: dict[int, list[int]] = {}
        current = highest = 0
        at_peak: list[tuple[int, int]] = []
        rising = False
        for kind, buffer, shared in _events(trace):
            if kind == _FREE:
                if rising:
                    at_peak = [(members[-1], self._sizes[of]) for of, members in sharing.items()]
                    rising = False
                of = block.pop(buffer)
                sharing[of].remove(buffer)
                if not sharing[of]:
                    del sharing[of]
                    current -= self._sizes[of]
                continue
            of = block.get(shared, shared) if kind == _SHARE else buffer
            if of not in sharing:
                sharing[of] = []
                current += self._sizes.setdefault(of, 0)
            block[buffer] = of
            sharing[of].append(buffer)
            if current > highest:
                highest, rising = current, True
        if rising:
            at_peak = [(members[-1], self._sizes[of]) for of, members in sharing.items()]
        return [self._described(buffer, size, "temporary") for buffer, size in at_peak if size]

    def _described(
        self, buffer: int, size: int, kind: Kind, origin: Origin | None = None
    ) -> Buffer:
        number, index = self._made_by.get(buffer, (-1, ()))
        instruction = self._module.instructions.get(number)
        if instruction is None:
            return Buffer(bytes=size, kind=kind)
        origin = origin or self._module.origin(number)
        dtype, shape = instruction.tensor(index)
        return Buffer(
            bytes=size,
            kind=kind,
            op_name=origin.op_name,
            argument=origin.argument,
            dtype=dtype,
            shape=shape,
            # Libraries get their workspace as the last result of the call, in plain bytes.
            is_scratch=instruction.opcode == "custom-call"
            and bool(index)
            and index[-1] > 0
            and dtype in ("int8", "uint8"),
        )

    def _add_buffer(self, message: memoryview) -> None:
        buffer = instruction = 0
        index: list[int] = []
        for number, value, inner in fields(message):
            if number == 1:
                buffer = value
            elif number == 3:
                for key, at, part in fields(inner):
                    if key == 3:
                        index += numbers(at, part)
                    elif key == 4:
                        instruction = at
        self._made_by[buffer] = (instruction, tuple(index))


def _kind(known: _Allocation) -> Kind:
    if known.is_argument:
        return "argument"
    if known.is_constant:
        return "constant"
    return "output" if known.is_output else "temporary"


def _read_allocation(message: memoryview) -> _Allocation:
    found = _Allocation()
    holds = []
    for number, value, inner in fields(message):
        if number == 2:
            found.size = value
        elif number == 3:
            found.is_thread_local = bool(value)
        elif number == 5:
            found.is_argument = bool(value)
        elif number == 6:
            found.argument = value
        elif number == 7:
            found.is_output = bool(value)
        elif number == 12:
            found.is_constant = bool(value)
        elif number == 9:
            assigned = {key: at for key, at, _ in fields(inner)}
            holds.append((assigned.get(1, 0), assigned.get(3, 0)))
    found.holds = tuple(holds)
    return found


def _events(trace: memoryview) -> list[tuple[int, int, int]]:
    """Return what the block's layout was planned from: kind, buffer, whose place it shares."""
    found = []
    for number, _, inner in fields(trace):
        if number == 1:
            event = {key: value for key, value, _ in fields(inner)}
            found.append((event.get(1, 0), event.get(2, 0), event.get(5, 0)))
    return found
