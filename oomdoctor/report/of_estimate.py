"""The text and tables on the peak memory of a training step."""

from __future__ import annotations

from oomdoctor.facts import Estimate, Machine, verdict_of
from oomdoctor.report.escape import printable, shorten
from oomdoctor.report.view import Line, Table, View
from oomdoctor.units import format_bytes

MAX_LAYERS = 10
MAX_NAME = 40

_SAID = {"fits": "fits", "does_not_fit": "does not fit", "unknown": "may fit"}
_DEVICES = {
    "cpu": "a CPU, whose kernels take scratch memory; --machine or --vram asks about a GPU",
    "gpu": "a GPU, without the scratch memory of CPU kernels",
}
_STEPS = {"train": "training", "evaluate": "evaluation", "predict": "prediction"}


def view_estimate(estimate: Estimate, *, verbose: bool = False) -> View:
    """Return the peak, its interval, its parts, and how it grows."""
    return View(
        title="oomdoctor estimate",
        state="info",
        headline=headline(estimate),
        lines=tuple(estimate_lines(estimate)),
        tables=estimate_tables(estimate, verbose=verbose),
        notes=tuple(printable(note) for note in estimate_notes(estimate)),
    )


def headline(estimate: Estimate) -> str:
    """Return the peak in one sentence."""
    return (
        f"Peak memory of a {_STEPS[estimate.kind]} step with batch size {estimate.batch_size} is "
        f"about {format_bytes(estimate.peak_bytes)}."
    )


def estimate_lines(estimate: Estimate) -> list[Line]:
    """Return the interval, and how the peak grows with the batch size."""
    low, high = format_bytes(estimate.low_bytes), format_bytes(estimate.high_bytes)
    lines = [
        Line(
            state="info",
            category="Interval",
            text=f"{low} to {high} ({_origin(estimate)})",
        )
    ]
    if estimate.program == "executor" and estimate.target is not None:
        lines.insert(0, Line(state="info", category="Device", text=_DEVICES[estimate.target]))
    if estimate.reason is not None:
        lines.insert(0, Line(state="info", category="Program", text=_program(estimate)))
    if estimate.fixed_bytes is not None and estimate.per_sample_bytes is not None:
        text = (
            f"{format_bytes(estimate.fixed_bytes)}, plus {format_bytes(estimate.per_sample_bytes)} "
            "per sample"
        )
        if estimate.line_from_batch is not None:
            text += f" (from batch size {estimate.line_from_batch})"
        lines.append(Line(state="info", category="Batches", text=text))
    return lines


def _origin(estimate: Estimate) -> str:
    """Return what the figures rest on."""
    if not estimate.recorded_sizes:
        return f"{estimate.origin}, nothing was run"
    sizes = " and ".join(str(size) for size in estimate.recorded_sizes)
    return f"from recorded steps with batches of {sizes}, scaled"


def _program(estimate: Estimate) -> str:
    """Return which program it is, and why, in one line."""
    reason = printable(estimate.reason or "")
    if estimate.program == "xla":
        return f"XLA, compiled for the {printable(estimate.device or 'GPU')}. {reason}"
    # A note says why there is no figure of XLA.
    instead = " instead of XLA" if estimate.notes else ""
    return f"TensorFlow's executor{instead}. {reason}"


def program_lines(estimate: Estimate, machine: Machine | None) -> list[Line]:
    """Return one line where the two programs differ in what fits."""
    other = estimate.other
    budget = machine.usable_vram_bytes if machine is not None else None
    if other is None or budget is None:
        return []
    title = f"the {printable(estimate.device)}" if estimate.device else "this GPU"
    said = {}
    for known in (estimate, other):
        verdict = verdict_of(known.low_bytes, known.high_bytes, budget)
        said[known.program] = (verdict, format_bytes(known.peak_bytes))
    (here, xla), (there, executor) = said["xla"], said["executor"]
    if here == there:
        return []
    with_it = f"with XLA it {_SAID[here]} {title}: {xla} of {format_bytes(budget)}"
    text = f"{with_it}; without it {executor}, which {_SAID[there]}"
    return [Line(state="info", category="XLA", text=text)]


def tight_lines(estimate: Estimate, machine: Machine | None) -> list[Line]:
    """Return what decides whether it fits, where the interval does not."""
    if machine is None:
        return []
    budget = machine.usable_vram_bytes if machine.gpus else machine.ram.available_bytes
    if budget is None or not estimate.low_bytes <= budget < estimate.high_bytes:
        return []
    if estimate.program == "xla":
        return [Line(state="unknown", category="Tight", text=_beside_xla(estimate, budget))]
    beside = [*estimate.allowances, *((op, size) for op, size in estimate.unknown_ops)]
    name, size = max(beside, key=lambda pair: pair[1], default=("", 0))
    if 2 * size > estimate.high_bytes - estimate.peak_bytes:
        decides = f"{printable(name)}, at most {format_bytes(size)}, decides"
    else:
        decides = "the order in which operations run decides"
    usual = "fits" if estimate.peak_bytes <= budget else "does not fit"
    text = f"the likely peak {usual} in {format_bytes(budget)}; {decides}. `oomdoctor tune` runs it"
    return [Line(state="unknown", category="Tight", text=text)]


def _beside_xla(estimate: Estimate, budget: int) -> str:
    """Return what decides if a compiled program fits; its own memory is planned."""
    left, above = budget - estimate.peak_bytes, estimate.high_bytes - estimate.peak_bytes
    names = [printable(name) for name, _ in estimate.allowances]
    text = (
        f"the program leaves {format_bytes(left)} of the GPU free, and up to "
        f"{format_bytes(above)} may be needed beside it"
    )
    return f"{text}: {' and '.join(names)}" if names else text


def estimate_tables(estimate: Estimate, *, verbose: bool = False) -> tuple[Table, ...]:
    """Return what holds the memory at the peak, by part and by layer."""

    def share(size: int) -> str:
        return f"{100 * size / estimate.peak_bytes:.0f} %" if estimate.peak_bytes else "–"

    by_part = [(part, format_bytes(size), share(size)) for part, size in estimate.parts]
    by_part += [(f"+ {name}, at most", format_bytes(s), "extra") for name, s in estimate.allowances]
    parts = Table(
        title="At the peak, by part",
        headers=("part", "size", "share"),
        rows=tuple(by_part),
        figure="layers",
    )
    shown = estimate.layers if verbose else estimate.layers[:MAX_LAYERS]
    told = any(layer.backward_bytes is not None for layer in estimate.layers)

    def row(name: str, size: int, backward: int | None) -> tuple[str, ...]:
        apart = (format_bytes(backward, unknown="–"),) if told else ()
        return (name, format_bytes(size), *apart, share(size))

    rows = [
        row(shorten(printable(layer.name), MAX_NAME), layer.bytes_at_peak, layer.backward_bytes)
        for layer in shown
    ]
    hidden = estimate.layers[len(shown) :]
    if hidden:
        rest = sum(layer.bytes_at_peak for layer in hidden)
        behind = sum(layer.backward_bytes or 0 for layer in hidden)
        rows.append(row(f"{len(hidden)} more (-v)", rest, behind))
    layers = Table(
        title="At the peak, by layer",
        headers=("layer", "size", *(("backward",) if told else ()), "share"),
        rows=tuple(rows),
        figure="layers",
    )
    return tuple(table for table in (parts, layers) if table.rows)


def estimate_notes(estimate: Estimate) -> list[str]:
    """Return what the estimate assumes, and what it does not know."""
    notes = [*estimate.notes, *(f"Assumed: {text}" for text in estimate.assumptions)]
    for op, size in estimate.unknown_ops:
        notes.append(
            f"The memory of the operation {op} is not known: up to {format_bytes(size)} in doubt."
        )
    return notes
