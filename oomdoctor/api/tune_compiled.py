"""Which batch size, on a card that is named: compiled for it, not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.api.conclude import conclude, installed
from oomdoctor.api.model import estimating, jit_of
from oomdoctor.facts import Facts, Machine, SizeTrial
from oomdoctor.findings import Report
from oomdoctor.tune.compiled import NotCompiled, tune_by_compiling
from oomdoctor.tune.tuner import Failed, Wanted
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
