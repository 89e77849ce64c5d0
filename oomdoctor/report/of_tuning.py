"""The words and rows that tell of a search for a batch size."""

from __future__ import annotations

from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.report.escape import printable
from oomdoctor.report.view import SYMBOLS, Line, Table, View
from oomdoctor.units import format_bytes

_RAN = {"fits": "trains", "oom": "out of memory", "died": "died"}
_COMPILED = {"fits": "fits", "oom": "does not fit"}
_LIMITS = {
    "memory": "VRAM; a slightly larger batch may fit: the search ends within about a tenth",
    "max_batch_size": "the largest size that was allowed",
    "default_cap": "the default cap; max_batch_size= (--max-batch-size) allows more",
    "samples": "the data: it has no more samples",
    "host RAM": "host RAM: a larger batch does not fit there",
    "speed": "speed: a larger batch trains no more samples per second",
    "time": "time: a larger batch may fit; allow more with max_seconds= (--time)",
}


def view_tuning(tuning: Tuning, *, verbose: bool = False) -> View:
    """Return the batch size, why not more, and what was run."""
    del verbose
    return View(
        title="oomdoctor tune",
        state="fits",
        headline=headline(tuning),
        lines=tuple(tuning_lines(tuning)),
        tables=(trials_table(tuning),),
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
    target = format_bytes(tuning.target_bytes)
    by_running = (
        f"trained with fit in a fresh process, in {target}; a margin of {_left(tuning)} is left"
    )
    lines = [
        Line(state="info", category="Limit", text=_limit(tuning)),
        Line(state="info", category="Verified", text=_compiled(tuning) or by_running),
        Line(state="info", category="Larger", text=_advice(tuning)),
    ]
    if tuning.comparison is not None:
        text = f"{printable(tuning.comparison)} (worth a line in an issue)"
        lines.append(Line(state="info", category="Compiler", text=text))
    if tuning.replicas > 1:
        each = tuning.batch_size // tuning.replicas
        text = f"{tuning.replicas} with {each} samples each; larger batches: multiples of "
        lines.append(Line(state="info", category="Replicas", text=f"{text}{tuning.replicas}"))
    return lines


def _limit(tuning: Tuning) -> str:
    """Return why the size is not larger."""
    above = tuning.does_not_fit
    if tuning.limited_by != "memory" or above is None:
        return _LIMITS[tuning.limited_by]
    if tuning.is_proved:
        return f"VRAM: the next size, {above:,}, was compiled too and does not fit"
    return f"VRAM: {above:,} does not fit; sizes between were not compiled"


def _compiled(tuning: Tuning) -> str | None:
    """Return how it is known where nothing was run."""
    if tuning.compiled_by is None:
        return None
    upper = format_bytes(tuning.target_bytes)
    return (
        f"compiled for the {printable(tuning.device or 'GPU')} by {tuning.compiled_by}; with what "
        f"a compiler does not see, up to {upper}"
    )


def _left(tuning: Tuning) -> str:
    return format_bytes(max(0, tuning.budget_bytes - tuning.target_bytes))


def _advice(tuning: Tuning) -> str:
    """Return how to train as with a larger batch: gradients summed over several."""
    size = tuning.batch_size
    return (
        f"gradient_accumulation_steps=4 in the optimizer trains as with {4 * size:,}, for one "
        "more copy of the trained weights"
    )


def trials_table(tuning: Tuning) -> Table:
    """Return a row for each size that was run or compiled, in order."""
    is_compiled = tuning.compiled_by is not None
    words = _COMPILED if is_compiled else _RAN

    def row(trial: SizeTrial) -> tuple[str, ...]:
        fits = trial.outcome == "fits"
        speed = trial.samples_per_second
        upper = format_bytes(trial.upper_bytes, unknown="–")
        return (
            f"{trial.batch_size:,}",
            f"{SYMBOLS['fits' if fits else 'does_not_fit']} {words[trial.outcome]}",
            format_bytes(trial.peak_bytes, unknown="–"),
            upper if is_compiled else "–" if speed is None else f"{speed:,.0f}",
            "–" if trial.seconds is None else f"{trial.seconds:.1f} s",
        )

    return Table(
        title="What was compiled" if is_compiled else "What was run",
        headers=("batch", "outcome", "peak", "up to" if is_compiled else "samples/s", "took"),
        rows=tuple(row(trial) for trial in tuning.trials),
    )
