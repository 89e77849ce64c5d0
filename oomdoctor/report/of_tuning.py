"""What a report says about a batch size search."""

from __future__ import annotations

from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.report.escape import printable
from oomdoctor.report.view import SYMBOLS, Line, Table, View
from oomdoctor.units import format_bytes

_RAN = {"fits": "trains", "oom": "out of memory", "died": "process died"}
_COMPILED = {"fits": "fits", "oom": "does not fit"}
_LIMITS = {
    "memory": "memory. The search stops within about a tenth of the largest batch that fits",
    "max_batch_size": "the maximum that was given",
    "default_cap": "the default maximum; max_batch_size= (--max-batch-size) raises it",
    "samples": "the data has no more samples",
    "host RAM": "system RAM. A larger batch would take too much of it",
    "speed": "speed. Larger batches do not train more samples per second",
    "time": "time. A larger batch may fit: allow more with max_seconds= (--time)",
}


def view_tuning(tuning: Tuning, *, verbose: bool = False) -> View:
    """Return the batch size, what limits it, and the trials."""
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
    each = "" if tuning.replicas == 1 else f" ({tuning.batch_size // tuning.replicas} per replica)"
    return (
        f"Batch size {tuning.batch_size}{each}: peak memory {format_bytes(tuning.peak_bytes)} of "
        f"{format_bytes(tuning.budget_bytes)}."
    )


def tuning_lines(tuning: Tuning) -> list[Line]:
    """Return what limits the size, how it was verified, and how to go beyond it."""
    size = tuning.batch_size
    larger = (
        f"gradient_accumulation_steps=4 in the optimizer gives an effective batch size of "
        f"{4 * size:,}, for one more copy of the trainable weights"
    )
    lines = [
        Line(state="info", category="Limit", text=_limit(tuning)),
        Line(state="info", category="Verified", text=_verified(tuning)),
        Line(state="info", category="Larger", text=larger),
    ]
    if tuning.comparison is not None:
        text = f"{printable(tuning.comparison)} (worth a line in an issue)"
        lines.append(Line(state="info", category="Compiler", text=text))
    if tuning.replicas > 1:
        text = f"{tuning.replicas}, with {size // tuning.replicas} samples each"
        lines.append(Line(state="info", category="Replicas", text=text))
    return lines


def _limit(tuning: Tuning) -> str:
    """Return why the size is not larger."""
    above = tuning.does_not_fit
    if tuning.limited_by != "memory" or above is None:
        return _LIMITS[tuning.limited_by]
    if tuning.is_proved:
        return f"memory: the next size, {above:,}, was compiled too and does not fit"
    return f"memory: {above:,} does not fit; sizes between were not compiled"


def _verified(tuning: Tuning) -> str:
    """Return how it is known that the size fits, with all of the budget accounted for."""
    target = format_bytes(tuning.target_bytes)
    if tuning.compiled_by is not None:
        return (
            f"compiled for the {printable(tuning.device or 'GPU')} by {tuning.compiled_by}; up to "
            f"{target} with what the compiler does not see"
        )
    margin = tuning.budget_bytes - tuning.target_bytes
    if margin <= 0:
        return f"trained with model.fit in a separate process, limited to {target}, no margin"
    return (
        f"trained with model.fit in a separate process, limited to {target}: "
        f"{format_bytes(tuning.budget_bytes)} less a margin of {format_bytes(margin)}"
    )


def trials_table(tuning: Tuning) -> Table:
    """Return a row for each batch size that was trained or compiled, in order."""
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
        title="Compilations" if is_compiled else "Trials",
        headers=("batch", "outcome", "peak", "up to" if is_compiled else "samples/s", "time"),
        rows=tuple(row(trial) for trial in tuning.trials),
    )
