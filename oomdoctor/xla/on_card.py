"""The peak of a step on a card: the program that Keras would run there, compiled for it.

Where XLA has no answer, the estimate of TensorFlow's executor stands in, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from oomdoctor.errors import OomDoctorError
from oomdoctor.estimate.kernels import CUDNN, CUDNN_MOST, CUDNN_SHARE
from oomdoctor.facts import Estimate, OtherProgram
from oomdoctor.probe.versions import installed_versions
from oomdoctor.units import MIB, format_bytes
from oomdoctor.xla.buffers import Assignment
from oomdoctor.xla.cache import compile_or_recall
from oomdoctor.xla.cards import Card
from oomdoctor.xla.compiler import Compiled
from oomdoctor.xla.errors import PluginMissing, XlaError
from oomdoctor.xla.held import Held, held_at_peak
from oomdoctor.xla.lowering import Lowered
from oomdoctor.xla.many import compile_for_cards
from oomdoctor.xla.plugin import Plugin, note_on_tensorflow
from oomdoctor.xla.program import Jit, Program, choose_program

HIGH = 1.03
"""A program never takes less than XLA plans for it: its arguments, results and temporaries are
allocated before it starts. Measured was at most 1.5 % more: fourteen models in two precisions on
XLA for CPUs, where both can be had (`tests/benchmarks/xla_formula.py`)."""

SMALL_BYTES = 4 * MIB
"""The allocator rounds each block, and a step brings its random state and its counters."""

CLOSE = 0.8
"""Part of a card from which on the executor's step may not fit, so that XLA is worth a look."""

NEXT_BATCH = "the next batch"

INSTEAD = "XLA's memory is not known: the figure is that of the same step without XLA."

_CONVOLUTION = b"\x12\x0bconvolution"
"""An instruction's opcode, the second field, in a serialised program."""


def estimate_on_card(
    model: Any,
    card: Card,
    executor: Estimate,
    *,
    lower: Callable[[], Lowered],
    jit: Jit = "auto",
    plugin: Plugin | None = None,
    missing: str = "",
    brief: bool = False,
) -> Estimate:
    """Return the estimate of the program that Keras would run on a card.

    Args:
        model: The compiled model.
        card: The card; it need not be there.
        executor: The estimate of the same step without XLA.
        lower: Translates the step for XLA; called only where it is needed.
        jit: As for `choose_program`.
        plugin: The compiler; None where there is none.
        missing: Why there is none, in one sentence.
        brief: Whether to compile once at most: what recomputing saves takes a second time.
    """
    program = choose_program(model, jit=jit)
    executor = replace(executor, reason=program.reason)
    if not program.is_xla:
        is_close = executor.high_bytes > CLOSE * card.memory_bytes
        if program.has_choice and is_close and plugin is not None and not brief:
            return _with_other(card, executor, lower, plugin)
        return executor
    try:
        if plugin is None:
            raise PluginMissing(missing)
        lowered = lower()
        compiled = compile_or_recall(lowered.hlo, card, plugin=plugin)
        estimate = _compiled(card, executor, program, lowered, compiled)
        without = None if brief else _without_recomputation(compiled, lowered, card, plugin)
        return replace(
            estimate, without_recomputation_bytes=without, notes=_notes(compiled, without)
        )
    except OomDoctorError as error:
        return _instead(executor, error)


def estimate_on_cards(
    model: Any,
    cards: Sequence[Card],
    executor: Estimate,
    *,
    lower: Callable[[], Lowered],
    jit: Jit = "auto",
    plugin: Plugin | None = None,
    missing: str = "",
) -> tuple[Estimate, ...]:
    """Return the estimates of one step on several cards, as `estimate_on_card` does for one.

    Cards share compilations where that is honest (`many.compile_for_cards`). What recomputation
    saves is not compiled for.
    """
    program = choose_program(model, jit=jit)
    executor = replace(executor, reason=program.reason)
    if not program.is_xla:
        return tuple(executor for _ in cards)
    try:
        if plugin is None:
            raise PluginMissing(missing)
        lowered = lower()
        found = compile_for_cards(lowered.hlo, cards, plugin=plugin)
    except OomDoctorError as error:
        return tuple(_instead(executor, error) for _ in cards)
    return tuple(
        _instead(executor, answer)
        if isinstance(answer, XlaError)
        else _compiled(card, executor, program, lowered, answer)
        for card in cards
        for answer in (found[card.name],)
    )


def _instead(executor: Estimate, error: OomDoctorError) -> Estimate:
    """Return the executor's estimate in place of XLA's, with the reason."""
    return replace(executor, notes=(*executor.notes, str(error), INSTEAD))


def allowances_for(lowered: Lowered, memory: Assignment, held: Held) -> tuple[tuple[str, int], ...]:
    """Return what a compiled program does not tell, at most."""
    found = []
    if _CONVOLUTION in lowered.hlo:
        largest = max((tensor.bytes for tensor in held.tensors), default=0)
        found.append((CUDNN, min(int(CUDNN_SHARE * largest), CUDNN_MOST)))
    # TensorFlow queues a step and goes on, so the next batch is copied while the step runs.
    inputs = {n for n, known in enumerate(lowered.arguments) if known.part == "inputs"}
    given = [buffer for buffer in memory.buffers if buffer.kind == "argument"]
    found.append((NEXT_BATCH, sum(buffer.bytes for buffer in given if buffer.argument in inputs)))
    return tuple((name, size) for name, size in found if size)


def _compiled(
    card: Card, executor: Estimate, program: Program, lowered: Lowered, compiled: Compiled
) -> Estimate:
    """Return a compiled step as an estimate, without what recomputation saves."""
    held = held_at_peak(compiled.memory, lowered)
    allowances = allowances_for(lowered, compiled.memory, held)
    peak = compiled.peak_bytes
    allowed = sum(size for _, size in allowances)
    return Estimate(
        batch_size=lowered.batch_size,
        peak_bytes=peak,
        low_bytes=peak,
        high_bytes=int(peak * HIGH) + SMALL_BYTES + allowed,
        parts=held.parts,
        layers=held.layers,
        largest_tensor_bytes=max((tensor.bytes for tensor in held.tensors), default=None),
        origin="compiled",
        kind=executor.kind,
        jit=True,
        assumptions=_assumptions(program, compiled),
        program="xla",
        device=card.title,
        reason=program.reason,
        allowances=allowances,
        other=_other(executor),
        notes=_notes(compiled, None),
    )


def _with_other(
    card: Card, executor: Estimate, lower: Callable[[], Lowered], plugin: Plugin
) -> Estimate:
    """Return the executor's estimate with what XLA would take, where XLA has an answer."""
    try:
        lowered = lower()
        compiled = compile_or_recall(lowered.hlo, card, plugin=plugin)
    except OomDoctorError:  # nobody asked for XLA here
        return executor
    program = Program(name="xla", reason="")
    return replace(executor, other=_other(_compiled(card, executor, program, lowered, compiled)))


def _other(estimate: Estimate) -> OtherProgram:
    return OtherProgram(
        program=estimate.program,
        peak_bytes=estimate.peak_bytes,
        low_bytes=estimate.low_bytes,
        high_bytes=estimate.high_bytes,
    )


def _without_recomputation(
    compiled: Compiled, lowered: Lowered, card: Card, plugin: Plugin
) -> int | None:
    """Return the peak without recomputation, if XLA recomputes anything on this card."""
    if not compiled.recomputes:
        return None
    try:
        plain = compile_or_recall(lowered.hlo, card, without_recomputation=True, plugin=plugin)
    except OomDoctorError:  # the answer is known; what was saved is beside it
        return None
    return plain.peak_bytes


def _assumptions(program: Program, compiled: Compiled) -> tuple[str, ...]:
    said = [
        f"compiled by XLA's GPU compiler {compiled.plugin_version} without a GPU; not seen are "
        "fragmentation and what choosing algorithms takes for a moment on the card"
    ]
    if program.is_assumed:
        said.append('jit_compile="auto", which a compiled model does not say')
    return tuple(said)


def _notes(compiled: Compiled, without: int | None) -> tuple[str, ...]:
    notes = []
    peak = compiled.peak_bytes
    if without is not None and without > peak:
        saved = f"{format_bytes(without)} → {format_bytes(peak)}"
        notes.append(f"XLA recomputes activations to fit: {saved}; each step takes longer.")
    elif without is None and compiled.recomputes:
        notes.append("XLA recomputes activations to fit; each step takes longer.")
    on_version = note_on_tensorflow(dict(installed_versions()).get("tensorflow", ""))
    return tuple(notes + ([on_version] if on_version else []))
