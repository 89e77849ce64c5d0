"""The words and rows that tell of a search for a batch size."""

from __future__ import annotations

from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.report.escape import printable
from oomdoctor.report.view import SYMBOLS, Line, Table, View
from oomdoctor.units import format_bytes

_LIMITS = {
    "memory": "VRAM: a larger batch would not leave the margin free",
    "max_batch_size": "the largest size that was allowed",
    "samples": "the data: it has no more samples",
    "host RAM": "host RAM: a larger batch does not fit there",
    "speed": "speed: a larger batch trains no more samples per second",
}


def view_tuning(tuning: Tuning, *, verbose: bool = False) -> View:
    """Return the batch size, why not more, and what was run."""
    del verbose
    return View(
        title="oomdoctor tune",
        state="fits",
        headline=headline(tuning),
        lines=tuple(tuning_lines(tuning)),
        tables=(trials_table(tuning.trials, tuning.target_bytes),),
        notes=tuple(printable(note) for note in tuning.notes),
    )


def headline(tuning: Tuning) -> str:
    """Return the answer in one sentence."""
    each = "" if tuning.replicas == 1 else f" ({tuning.batch_size // tuning.replicas} a replica)"
    return (
        f"Batch size {tuning.batch_size}{each}: its steps peak at "
        f"{format_bytes(tuning.peak_bytes)} of {format_bytes(tuning.budget_bytes)}."
    )


def tuning_lines(tuning: Tuning) -> list[Line]:
    """Return what limits the size, how sure that is, and what to do for a larger batch."""
    proof = (
        "the next size was run and does not fit"
        if tuning.is_proved and tuning.limited_by == "memory"
        else "it was run as in a fresh process, with "
        f"{format_bytes(tuning.target_bytes)}; {_left(tuning)} stay free"
    )
    lines = [
        Line(state="info", category="Limit", text=_limit(tuning)),
        Line(state="info", category="Proof", text=proof),
        Line(state="info", category="Larger", text=_advice(tuning)),
    ]
    if tuning.replicas > 1:
        each = tuning.batch_size // tuning.replicas
        text = f"{tuning.replicas} with {each} samples each; larger batches: multiples of "
        lines.append(Line(state="info", category="Replicas", text=f"{text}{tuning.replicas}"))
    return lines


def _limit(tuning: Tuning) -> str:
    if tuning.limited_by == "memory" and tuning.is_proved:
        return "VRAM: a larger batch does not fit"
    return _LIMITS[tuning.limited_by]


def _left(tuning: Tuning) -> str:
    return format_bytes(max(0, tuning.budget_bytes - tuning.target_bytes))


def _advice(tuning: Tuning) -> str:
    """Return how to train as with a larger batch: gradients summed over several."""
    size = tuning.batch_size
    return (
        f"gradient_accumulation_steps=4 in the optimizer trains as with {4 * size:,}, for one "
        "more copy of the trained weights"
    )


def trials_table(trials: tuple[SizeTrial, ...], target_bytes: int) -> Table:
    """Return a row for each size that was run, in order."""

    def row(trial: SizeTrial) -> tuple[str, ...]:
        fits = trial.outcome == "fits" and (trial.peak_bytes or 0) <= target_bytes
        outcome = {"fits": "ran", "oom": "out of memory", "died": "died"}[trial.outcome]
        if trial.is_probe:
            outcome = f"probe, {outcome}"
        speed = trial.samples_per_second
        return (
            f"{trial.batch_size:,}",
            f"{SYMBOLS['fits' if fits else 'does_not_fit']} {outcome}",
            format_bytes(trial.peak_bytes, unknown="–"),
            "–" if speed is None else f"{speed:,.0f}",
            "–" if trial.seconds is None else f"{trial.seconds:.1f} s",
        )

    return Table(
        title="What was run",
        headers=("batch", "outcome", "peak", "samples/s", "took"),
        rows=tuple(row(trial) for trial in trials),
    )
