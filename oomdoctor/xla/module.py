"""The program that XLA wrote after its last pass: its instructions and what each was made from.

An instruction's *origin* is the TensorFlow operation it was made from, with the scopes of Keras
(`gradient_tape/functional/conv2d_1/Relu`). What XLA adds has no such name, a transpose of an
argument for example. Then the nearest instruction that it reads decides, or the nearest that
reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from oomdoctor.xla.wire import fields, numbers, text

OUTSIDE = frozenset({"", "XLA_Args", "XLA_Retvals"})
"""What TensorFlow names arguments and results, which says nothing about the operation."""

NEAR = 8
"""How many instructions away a name is looked for; further away other layers begin."""

RECOMPUTED = ".remat"
"""Part of the name of an instruction that XLA added to recompute a value."""

_DTYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16",
    8: "uint32", 9: "uint64", 10: "float16", 11: "float32", 12: "float64", 15: "complex64",
    16: "bfloat16", 18: "complex128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of the program."""

    name: str
    opcode: str
    op_name: str
    """The TensorFlow operation; empty where XLA added the instruction."""
    shape: memoryview
    operands: tuple[int, ...]
    called: tuple[int, ...]
    """Computations it runs: the inside of a fusion, the body of a loop."""
    parameter: int

    def tensor(self, index: Iterable[int]) -> tuple[str, tuple[int, ...]]:
        """Return the dtype and the dimensions of its result, or of one part of a tuple."""
        shape = self.shape
        for place in index:
            parts = [inner for number, _, inner in fields(shape) if number == 4]
            if place >= len(parts):
                return "", ()
            shape = parts[place]
        dtype, dims = "", []
        for number, value, inner in fields(shape):
            if number == 2:
                dtype = _DTYPES.get(value, "")
            elif number == 3:
                dims += numbers(value, inner)
        return dtype, tuple(dims)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a buffer holds: the result of an operation, or an argument of the program."""

    op_name: str = ""
    argument: int | None = None


class Module:
    """Instructions by their id.

    Args:
        message: A serialized `HloModuleProto`.
    """

    def __init__(self, message: memoryview) -> None:
        self.instructions: dict[int, Instruction] = {}
        self._bodies: dict[int, list[int]] = {}
        """The instructions of a computation, its result first."""
        entry = 0
        for number, value, inner in fields(message):
            if number == 3:
                self._add_computation(inner)
            elif number == 6:
                entry = value
        self._arguments = {
            at: self.instructions[at].parameter
            for at in self._bodies.get(entry, ())
            if self.instructions[at].opcode == "parameter"
        }
        self._users: dict[int, list[int]] = {}
        for at, instruction in self.instructions.items():
            for operand in instruction.operands:
                self._users.setdefault(operand, []).append(at)

    @property
    def recomputed(self) -> int:
        """How many instructions recompute a value to save memory."""
        return sum(RECOMPUTED in known.name for known in self.instructions.values())

    def origin(self, number: int) -> Origin:
        """Return what an instruction was made from.

        TensorFlow sums the gradients of two branches outside every scope (`AddN_3`), so a name
        with a scope that is near comes before one without.
        """
        ways: tuple[Callable[[int], Iterable[int]], ...] = (
            lambda at: self.instructions[at].operands,
            lambda at: self._users.get(at, ()),
        )
        for has_scope in (True, False):
            for way in ways:
                found = self._search(number, way, has_scope=has_scope)
                if found is not None:
                    return found
        return Origin()

    def _search(
        self, start: int, following: Callable[[int], Iterable[int]], *, has_scope: bool
    ) -> Origin | None:
        wave, seen, is_named = [start], {start}, False
        for _ in range(NEAR):
            for name in filter(None, map(self._name, wave)):
                if "/" in name or not has_scope:
                    return Origin(name)
                is_named = True
            argument = next((a for at in wave if (a := self._arguments.get(at)) is not None), None)
            if argument is not None:
                return None if is_named else Origin(argument=argument)
            wave = [
                n for at in wave for n in following(at) if n in self.instructions and n not in seen
            ]
            seen.update(wave)
        return None

    def _name(self, number: int) -> str | None:
        instruction = self.instructions[number]
        if instruction.op_name not in OUTSIDE:
            return instruction.op_name
        for called in instruction.called:
            for at in self._bodies.get(called, ()):
                if self.instructions[at].op_name not in OUTSIDE:
                    return self.instructions[at].op_name
        return None

    def _add_computation(self, message: memoryview) -> None:
        body, computation, root = [], 0, 0
        for number, value, inner in fields(message):
            if number == 2:
                body.append(self._add_instruction(inner))
            elif number == 5:
                computation = value
            elif number == 6:
                root = value
        ordered = [root, *reversed(body)]
        self._bodies[computation] = [at for at in ordered if at in self.instructions]

    def _add_instruction(self, message: memoryview) -> int:
        name = opcode = op_name = ""
        shape = memoryview(b"")
        operands: list[int] = []
        called: list[int] = []
        parameter = identity = 0
        for number, value, inner in fields(message):
            if number == 1:
                name = text(inner)
            elif number == 2:
                opcode = text(inner)
            elif number == 3:
                shape = inner
            elif number == 7:
                op_name = next((text(part) for key, _, part in fields(inner) if key == 2), "")
            elif number == 9:
                parameter = value
            elif number == 35:
                identity = value
            elif number == 36:
                operands += numbers(value, inner)
            elif number == 38:
                called += numbers(value, inner)
        self.instructions[identity] = Instruction(
            name, opcode, op_name, shape, tuple(operands), tuple(called), parameter
        )
        return identity
