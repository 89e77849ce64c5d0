"""Which card? A model or a dataset compared with every machine of the catalogue, in one table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oomdoctor.api.conclude import RuleSet, verdict_on
from oomdoctor.api.data import check
from oomdoctor.api.gate import DataPlan, ModelPlan, no_rule
from oomdoctor.errors import UsageError
from oomdoctor.facts import Facts, Machine
from oomdoctor.findings import Report

if TYPE_CHECKING:
    from oomdoctor.api.model import Estimating
    from oomdoctor.xla.program import Jit

_NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""`module:callable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Machines that a run cannot tell apart, and what they are called."""

    machine: Machine
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """The shortest name, and the others behind it."""
        first, *others = sorted(self.names, key=lambda name: (len(name), name))
        return f"{first} ({', '.join(others)})" if others else first


def machines_alike(*, with_ram: bool) -> list[Alike]:
    """Return the machines of the catalogue, those with the least GPU memory first.

    Args:
        with_ram: Whether RAM matters, as for data; otherwise machines with the same card are one,
            and those without a card are left out.
    """
    from oomdoctor.probe.catalogue import list_machines

    found: dict[Any, list[Machine]] = {}
    for entry in list_machines():
        machine = entry.to_machine()
        gpus = tuple((gpu.name, gpu.usable_bytes) for gpu in machine.gpus[:1])
        if with_ram:
            if machine.ram.available_bytes is not None:
                found[machine.name] = [machine]
        elif gpus:
            found.setdefault(gpus, []).append(machine)
    alike = [
        Alike(machine=machines[0], names=tuple(machine.name or "" for machine in machines))
        for machines in found.values()
    ]
    return sorted(alike, key=_size)


def _size(one: Alike) -> tuple[int, int, str]:
    machine = one.machine
    return machine.usable_vram_bytes or 0, machine.ram.available_bytes or 0, one.title


def suggest_machine(
    target: Any, *, batch_size: int = 32, jit: Jit | bool = "auto", **how: Any
) -> Report:
    """Return on which machines of the catalogue a model trains, or data fits: one table.

    Example:
        >>> import oomdoctor
        >>> report = oomdoctor.suggest_machine("fixtures/datasets/shapes")
        >>> report.verdict
        'fits'
        >>> oomdoctor.suggest_machine(model, batch_size=64)  # doctest: +SKIP

    Args:
        target: A Keras model, a `.keras` file or `module:callable`; or data, as for `check`.
        batch_size: Samples per batch.
        jit: As for `estimate_memory`; only for a model.
        **how: The other arguments of `estimate_memory` or of `check`.
    """
    if not _is_model(target):
        return _combined("check", tuple(_on_every_machine(target, batch_size=batch_size, **how)))
    from oomdoctor.api.model import estimating, jit_of

    kind = how.pop("kind", "train")
    with estimating(target, kind=kind, **how) as estimated:
        name = target if isinstance(target, str) else getattr(target, "name", None)
        subject = f"{name}, batch {batch_size}"
        parts = _on_every_card("estimate", estimated, batch_size, jit=jit_of(jit), subject=subject)
        return _combined("estimate", tuple(parts))


def _is_model(target: Any) -> bool:
    if isinstance(target, str):
        return target.endswith(".keras") or _NAMED.fullmatch(target) is not None
    return hasattr(target, "train_step")


def survey(
    command: str,
    *,
    models: Sequence[ModelPlan] = (),
    datasets: Sequence[DataPlan] = (),
    progress: Any = None,
) -> Report:
    """Return one report with a part for each model or dataset and each kind of machine.

    No rules are run: the question is which machine, not what to change.
    """
    return _combined(command, (*_models(command, models), *_datasets(datasets, progress)))


def _combined(command: str, parts: tuple[Report, ...]) -> Report:
    verdict = min((part.verdict for part in parts), key=_BEST_FIRST.index, default="unknown")
    if verdict == "does_not_fit":
        parts = (*parts[:-1], no_rule(parts[-1]))
    estimates = [part.facts.estimate for part in parts if part.facts.estimate is not None]
    notes = [note for known in estimates if known.program == "executor" for note in known.notes]
    return Report(
        command=command,
        verdict=verdict,
        facts=Facts(),
        parts=parts,
        notes=tuple(dict.fromkeys([*notes, *_limits(parts)])),
        subject=parts[0].subject if len({part.subject for part in parts}) == 1 else None,
        is_survey=True,
    )


def _limits(parts: Sequence[Report]) -> list[str]:
    """Return what the predicted sizes do not know."""
    estimates = [part.facts.estimate for part in parts if part.facts.estimate is not None]
    if not any(estimate.program == "xla" for estimate in estimates):
        return []
    return [
        "Max batch is predicted from one compiled batch size; above about 70 % of a card XLA "
        "recomputes activations, so a larger one may fit. `oomdoctor tune MODEL --machine NAME` "
        "compiles the sizes around it."
    ]


_BEST_FIRST = ("fits", "unknown", "does_not_fit")


def _models(command: str, models: Sequence[ModelPlan]) -> Iterator[Report]:
    if not models:
        return
    from oomdoctor.api.model import estimating, ram_to_build_in
    from oomdoctor.runner.estimator import Estimator

    with Estimator(ram_bytes=ram_to_build_in()) as estimator:
        for model in models:
            with estimating(
                model.model,
                kind=model.kind,
                folder=model.folder,
                estimator=estimator,
                **model.how_trained,
            ) as estimated:
                for size in model.batch_sizes:
                    yield from _on_every_card(
                        command, estimated, size, jit=model.jit, subject=model.subject(size)
                    )


def _on_every_card(
    command: str, estimated: Estimating, batch_size: int, *, jit: Jit, subject: str | None
) -> Iterator[Report]:
    machines = machines_alike(with_ram=False)
    beside = [one.machine for one in machines]
    for one in machines:
        estimate, workload = estimated(batch_size, jit=jit, machine=one.machine, beside=beside)
        facts = Facts(machine=one.machine, workload=workload, estimate=estimate)
        yield Report(
            command=command,
            verdict=verdict_on(facts),
            facts=facts,
            subject=subject,
            target=one.title,
        )


def _datasets(datasets: Sequence[DataPlan], progress: Any) -> Iterator[Report]:
    for data in datasets:
        how = {**data.how_fed, "progress": progress}
        for report in _on_every_machine(list(data.paths), **how):
            yield replace(report, subject=data.name or report.subject)


def _on_every_machine(seen: Any, **how: Any) -> Iterator[Report]:
    """Yield what each machine makes of data, which is read once."""
    subject = None
    for one in machines_alike(with_ram=True):
        report = check(seen, machine=one.machine, rules=RuleSet(), **how)
        if report.facts.inventory is None:
            raise UsageError("No machine changes what is found in code: pass data or a model.")
        if not report.facts.footprint or not report.facts.footprint.stages:
            seen = report.facts.inventory
        subject = subject or report.subject
        facts = replace(report.facts, scripts=None)
        yield replace(report, facts=facts, subject=subject, target=one.title)
