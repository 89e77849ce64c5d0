"""Which card? A model or a dataset compared with every machine of the catalogue, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oomdoctor.api.conclude import RuleSet, verdict_on
from oomdoctor.api.data import check
from oomdoctor.api.gate import DataPlan, ModelPlan, no_rule
from oomdoctor.facts import Facts, Machine
from oomdoctor.findings import Report

ALL = "all"
"""What `machine` is called when every machine is meant."""


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
    parts = (*_models(command, models), *_datasets(datasets, progress))
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
        notes=tuple(dict.fromkeys(notes)),
        is_survey=True,
    )


_BEST_FIRST = ("fits", "unknown", "does_not_fit")


def _models(command: str, models: Sequence[ModelPlan]) -> Iterator[Report]:
    if not models:
        return
    from oomdoctor.api.model import estimating, ram_to_build_in
    from oomdoctor.runner.estimator import Estimator

    machines = machines_alike(with_ram=False)
    beside = [one.machine for one in machines]
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
                    for one in machines:
                        estimate, workload = estimated(
                            size, jit=model.jit, machine=one.machine, beside=beside
                        )
                        facts = Facts(machine=one.machine, workload=workload, estimate=estimate)
                        yield Report(
                            command=command,
                            verdict=verdict_on(facts),
                            facts=facts,
                            subject=model.subject(size),
                            target=one.title,
                        )


def _datasets(datasets: Sequence[DataPlan], progress: Any) -> Iterator[Report]:
    for data in datasets:
        seen: Any = list(data.paths)
        for one in machines_alike(with_ram=True):
            report = check(
                seen, machine=one.machine, rules=RuleSet(), progress=progress, **data.how_fed
            )
            seen = report.facts.inventory or seen
            if report.facts.inventory is None:
                return  # code alone, which no machine changes
            facts = replace(report.facts, scripts=None)
            subject = data.name or report.subject
            yield replace(report, facts=facts, subject=subject, target=one.title)
