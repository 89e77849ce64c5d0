"""The words and rows that tell of the peak of a training step."""

from __future__ import annotations

from oomdoctor.facts import Estimate
from oomdoctor.report.escape import printable, shorten
from oomdoctor.report.view import Line, Table, View
from oomdoctor.units import format_bytes

MAX_LAYERS = 10
MAX_NAME = 40

_STEPS = {"train": "training", "evaluate": "evaluation", "predict": "prediction"}


def view_estimate(estimate: Estimate, *, verbose: bool = False) -> View:
    """Return the peak, its interval, what it consists of, and how it grows."""
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
        f"A {_STEPS[estimate.kind]} step with a batch of {estimate.batch_size} peaks at about "
        f"{format_bytes(estimate.peak_bytes)}."
    )


def estimate_lines(estimate: Estimate) -> list[Line]:
    """Return the interval and the line that other batches follow."""
    low, high = format_bytes(estimate.low_bytes), format_bytes(estimate.high_bytes)
    lines = [
        Line(
            state="info",
            category="Interval",
            text=f"between {low} and {high}, {estimate.origin}, nothing was run",
        )
    ]
    if estimate.fixed_bytes is not None and estimate.per_sample_bytes is not None:
        text = (
            f"{format_bytes(estimate.fixed_bytes)} and {format_bytes(estimate.per_sample_bytes)} "
            "more for each sample"
        )
        if estimate.line_from_batch is not None:
            text += f", from a batch of {estimate.line_from_batch} on"
        lines.append(Line(state="info", category="Batches", text=text))
    return lines


def estimate_tables(estimate: Estimate, *, verbose: bool = False) -> tuple[Table, ...]:
    """Return what holds the memory at the peak, by part and by layer."""

    def share(size: int) -> str:
        return f"{100 * size / estimate.peak_bytes:.0f} %" if estimate.peak_bytes else "–"

    parts = Table(
        title="At the peak, by part",
        headers=("part", "holds", "share"),
        rows=tuple((part, format_bytes(size), share(size)) for part, size in estimate.parts),
    )
    shown = estimate.layers if verbose else estimate.layers[:MAX_LAYERS]
    rows = [
        (
            shorten(printable(layer.name), MAX_NAME),
            format_bytes(layer.bytes_at_peak),
            share(layer.bytes_at_peak),
        )
        for layer in shown
    ]
    hidden = estimate.layers[len(shown) :]
    if hidden:
        rest = sum(layer.bytes_at_peak for layer in hidden)
        rows.append((f"{len(hidden)} more (-v)", format_bytes(rest), share(rest)))
    layers = Table(
        title="At the peak, by layer", headers=("layer", "holds", "share"), rows=tuple(rows)
    )
    return tuple(table for table in (parts, layers) if table.rows)


def estimate_notes(estimate: Estimate) -> list[str]:
    """Return what the estimate assumes, and what it does not know."""
    notes = [f"assumed: {text}" for text in estimate.assumptions]
    for op, size in estimate.unknown_ops:
        notes.append(f"{op} is not an operation oomdoctor knows; {format_bytes(size)} at stake")
    return notes
