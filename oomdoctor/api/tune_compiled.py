"""Which batch size, on a card that is named: compiled for it, not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.api.conclude import conclude, installed
from oomdoctor.api.model import estimating, jit_of
from oomdoctor.errors import OomDoctorError
from oomdoctor.facts import Facts, Machine, SizeTrial, Tuning
from oomdoctor.findings import Report
from oomdoctor.tune.compiled import NotCompiled, tune_by_compiling
from oomdoctor.tune.tuner import Failed, Wanted
from oomdoctor.units import format_bytes
from oomdoctor.xla.plugin import plugin_or_reason

if TYPE_CHECKING:
    from oomdoctor.api.tune import TuneOptions

FIRST_BATCH = 32
"""What the executor is simulated with, to know where to compile first."""


def compile_sizes(
    model: Any,
    machine: Machine,
    wanted: Wanted,
    options: TuneOptions,
    deadline: float | None,
    watch: Callable[[SizeTrial], None] | None,
) -> Report | Failed | tuple[str, ...]:
    """Return the search as a report, what was compiled if nothing fits, or why sizes are run."""
    plugin, missing = plugin_or_reason()
    if plugin is None:
        return (missing,)
    jit = jit_of(options.jit)
    usable = machine.usable_vram_bytes
    if options.memory is None and usable is not None:
        wanted = replace(wanted, budget_bytes=usable)  # a named card's does not change
    with estimating(model, kind="train", **options.how_trained) as estimated:
        executor, workload = estimated(FIRST_BATCH)
        try:
            found = tune_by_compiling(
                lambda size: estimated(size, jit=jit, machine=machine, brief=True)[0],
                # Intervals cover what a compiler does not see: a margin only where asked for.
                replace(wanted, margin=options.margin or 0.0),
                compiler=f"XLA {plugin.version}",
                guess=executor.largest_batch(wanted.budget_bytes),
                deadline=deadline,
                watch=watch,
            )
        except NotCompiled as other:
            return tuple(filter(None, (other.estimate.reason, *other.estimate.notes[:1])))
    if isinstance(found, Failed):
        return found
    facts = Facts(machine=machine, workload=workload, tuning=found, versions=installed())
    return conclude("tune", facts, rules=())


def compare_with_compiler(
    model: Any, machine: Machine, tuning: Tuning, options: TuneOptions
) -> str | None:
    """Return what a GPU took and what XLA's compiler says of the same step, in one line.

    Nothing else says how far the compiler is from real cards. The line names the card, figures and
    versions, and nothing of the model, so that it can be shown to others. None without a compiler,
    or if the step is not XLA's.
    """
    plugin, _ = plugin_or_reason()
    if plugin is None:
        return None
    try:
        with estimating(model, kind="train", **options.how_trained) as estimated:
            estimate, workload = estimated(
                tuning.batch_size, jit=jit_of(options.jit), machine=machine, brief=True
            )
    except OomDoctorError:  # the answer is there; this line is beside it
        return None
    if estimate.program != "xla":
        return None
    measured, compiled = tuning.peak_bytes, estimate.peak_bytes
    versions = (f"{name} {version}" for name, version in installed() if name != "python")
    words = (
        f"batch {tuning.batch_size} measured {format_bytes(measured)} on {tuning.device}",
        f"XLA {plugin.version} for the {estimate.device} says {format_bytes(compiled)}"
        f" ({compiled / max(measured, 1):.2f} of it)",
        f"{machine.gpus[0].name}",
        workload.precision or "float32",
        *versions,
    )
    return "; ".join(words)
