"""Everything a project names, compared with every machine it must run on: the gate in CI.

Data is scanned once and a model is traced once, whatever the number of machines and batch sizes.
Without models TensorFlow is not needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oomdoctor.api.baseline import TOLERANCE, Baseline, grown
from oomdoctor.api.conclude import conclude, installed, read_rules
from oomdoctor.api.data import check
from oomdoctor.facts import Estimate, Facts, Machine, Scripts, Sharding
from oomdoctor.findings import Finding, Location, Outcome, Report, Severity

if TYPE_CHECKING:
    from oomdoctor.api.model import Estimating
    from oomdoctor.xla.program import Jit

NO_RULE = "does-not-fit"
"""Stands in a rule's place where the verdict is bad and no rule has spoken."""

_JIT_WORDS: dict[str, list[str]] = {"auto": [], "on": ["XLA"], "off": ["without XLA"]}
_WORST_FIRST = ("does_not_fit", "unknown", "fits")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A model and the batch sizes it is to train with."""

    model: str
    batch_sizes: tuple[int, ...] = (32,)
    kind: str = "train"
    jit: Jit = "auto"
    """Whether XLA compiles the step on a GPU."""
    verify: bool = False
    """Whether a step of a small batch is run, so that the estimate rests on what was seen."""
    how_trained: Mapping[str, Any] = field(default_factory=dict)
    """What overrides the model's own, as for `estimate_memory`."""
    folder: str | None = None
    """Where its module is looked for first."""
    name: str | None = None
    """What it is called in reports; None is `model`."""

    def subject(self, batch_size: int) -> str:
        """Return the model and how it is trained, in a few words."""
        words = [self.name or self.model, f"batch {batch_size}"]
        given = (_word(name, value) for name, value in self.how_trained.items() if value)
        words += [word for word in given if word]
        words += [self.kind] if self.kind != "train" else []
        words += _JIT_WORDS[self.jit]
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlan:
    """Data, and how it is fed."""

    name: str | None
    """What it is called in reports; None is what the scan calls it."""
    paths: tuple[str, ...]
    how_fed: Mapping[str, Any] = field(default_factory=dict)
    """As for `check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be compared with what."""

    machines: tuple[Machine, ...]
    models: tuple[ModelPlan, ...] = ()
    datasets: tuple[DataPlan, ...] = ()
    scripts: tuple[DataPlan, ...] = ()
    """Code, which no machine changes."""
    judged: Mapping[str, Any] = field(default_factory=dict)
    """Which rules are run and how bad they are, as for `check`."""
    baseline: Baseline | None = None
    tolerance: float = TOLERANCE


def run_plan(command: str, plan: Plan, *, progress: Any = None) -> tuple[Report, ...]:
    """Return a report for each thing that is named and each machine, machine by machine."""
    # Reading the rules takes longer than applying them.
    plan = replace(plan, judged={**plan.judged, "rules": read_rules(plan.judged.get("rules", ()))})
    on: list[list[Report]] = [[] for _ in plan.machines]
    for data in plan.datasets:
        for reports, report in zip(on, _data_reports(data, plan, progress), strict=False):
            reports.append(report)
    for number, report in _reports_of_models(command, plan):
        on[number].append(report)
    # Which of several datasets a script reads is not known.
    known = [reports[0].facts for reports in on if reports and len(plan.datasets) == 1]
    scripts = [_code_report(code, plan, known) for code in plan.scripts]
    return tuple(report for reports in [*on, scripts] for report in reports)


def combined(command: str, reports: tuple[Report, ...]) -> Report:
    """Return one report of several; the worst verdict is its verdict."""
    judged = [report.verdict for report in reports if report.target is not None]
    verdict = min(judged, key=_WORST_FIRST.index, default="unknown")
    parts = tuple(_with_verdict(report) for report in reports)
    # Why a figure is not XLA's is news for the whole, and mostly the same for every model.
    estimates = [part.facts.estimate for part in parts if part.facts.estimate is not None]
    notes = [note for known in estimates if known.program == "executor" for note in known.notes]
    return Report(
        command=command,
        verdict=verdict,
        facts=Facts(),
        parts=parts,
        notes=tuple(dict.fromkeys(notes)),
    )


def _data_reports(data: DataPlan, plan: Plan, progress: Any) -> Iterator[Report]:
    seen: Any = list(data.paths)
    scripts: Scripts | None = None
    for machine in plan.machines:
        report = check(
            seen,
            machine=machine,
            progress=progress,
            keep_partial=len(plan.machines) == 1,
            **data.how_fed,
            **plan.judged,
        )
        seen = report.facts.inventory
        if seen is None:  # code alone, which no machine changes
            report = _on_every_machine(report, plan, ())
            yield replace(report, subject=data.name or ", ".join(data.paths), target=None)
            return
        if scripts is not None:  # the code beside the data was read for the first machine
            facts = replace(report.facts, scripts=scripts)
            report = conclude("check", facts, subject=report.subject, **plan.judged)
        scripts = report.facts.scripts
        yield replace(report, subject=data.name or report.subject)


def _code_report(code: DataPlan, plan: Plan, data: Sequence[Facts]) -> Report:
    """Return what is found in code; what is known of the data decides how bad it is."""
    report = check(list(code.paths), machine=plan.machines[0], **plan.judged)
    return replace(_on_every_machine(report, plan, data), subject=code.name, target=None)


def _on_every_machine(report: Report, plan: Plan, data: Sequence[Facts]) -> Report:
    """Return a report on code alone in which each finding is as bad as on the worst machine.

    Args:
        report: What was found on the first machine.
        plan: Which machines there are.
        data: What is known of the data on each machine, if it is known which is read.
    """
    facts = report.facts
    if facts.scripts is None or facts.inventory is not None:
        return report
    worst: dict[tuple[str, Location | None], Finding] = {}
    for known in data or [replace(facts, machine=machine) for machine in plan.machines]:
        told = conclude("check", replace(known, scripts=facts.scripts), **plan.judged)
        for finding in told.findings:
            place = (finding.rule, finding.location)
            if place not in worst or _badness(finding) < _badness(worst[place]):
                worst[place] = finding
    located = [f for f in worst.values() if f.location is not None]
    rest = [f for f in report.findings if f.location is None]
    return replace(report, findings=(*sorted(located, key=_badness), *rest))


def _badness(finding: Finding) -> tuple[bool, int]:
    return finding.outcome is not Outcome.FIRED, finding.severity.rank


def _reports_of_models(command: str, plan: Plan) -> Iterator[tuple[int, Report]]:
    """Yield a report for each model, batch size and machine; one process builds all models."""
    if not plan.models:
        return
    from oomdoctor.api.model import estimating, ram_to_build_in
    from oomdoctor.runner.estimator import Estimator

    with Estimator(ram_bytes=ram_to_build_in()) as estimator:
        for model in plan.models:
            with estimating(
                model.model,
                kind=model.kind,
                folder=model.folder,
                estimator=estimator,
                **model.how_trained,
            ) as estimated:
                yield from _model_reports(command, model, plan, estimated)


def _model_reports(
    command: str, model: ModelPlan, plan: Plan, estimated: Estimating
) -> Iterator[tuple[int, Report]]:
    for batch_size in model.batch_sizes:
        subject = model.subject(batch_size)
        threads = plan.baseline.threads(subject) if plan.baseline else None
        for number, machine in enumerate(plan.machines):
            estimate, workload = estimated(
                batch_size,
                jit=model.jit,
                threads=threads,
                machine=machine,
                beside=plan.machines if len(plan.machines) > 1 else (),
                verify=model.verify,
            )
            recorded = plan.baseline.peak(subject, estimate) if plan.baseline else None
            growth = grown(estimate, recorded, plan.tolerance)
            facts = Facts(
                machine=machine,
                workload=workload,
                estimate=estimate,
                sharding=_sharding(estimate),
                growth=growth,
                versions=installed(),
            )
            yield number, conclude(command, facts, subject=subject, **plan.judged)


def _sharding(estimate: Estimate) -> Sharding | None:
    """Return how many of the largest cards of the catalogue a model needs."""
    from oomdoctor.footprint.sharding import split_over_cards
    from oomdoctor.probe.catalogue import list_machines

    machines = [(entry.name, entry.to_machine()) for entry in list_machines()]
    cards = [(name, gpu.usable_bytes) for name, machine in machines for gpu in machine.gpus]
    return split_over_cards(estimate, cards)


def _with_verdict(report: Report) -> Report:
    """In a gate the verdict counts, also where the rule that explains it was left out."""
    spoken = any(finding.severity is Severity.ERROR for finding in report.fired)
    if report.verdict != "does_not_fit" or spoken:
        return report
    return no_rule(report)


def no_rule(report: Report) -> Report:
    """Return a report with a finding for its verdict, which no rule has spoken of."""
    from oomdoctor.report.headline import headline_of

    bad = Finding(
        rule=NO_RULE,
        name=NO_RULE,
        outcome=Outcome.FIRED,
        severity=Severity.ERROR,
        message=headline_of(report).sentence,
        remedy="none",
    )
    return replace(report, findings=(bad, *report.findings))


def threads_here() -> int:
    """Return the threads that an operation is simulated with on this machine."""
    return os.cpu_count() or 1


def _word(name: str, value: Any) -> str:
    if name == "replicas":
        return f"{value} replicas" if value != 1 else ""
    if isinstance(value, dict):
        return " ".join(f"{key}={_word(name, size)}" for key, size in value.items())
    if name == "input_shape" and isinstance(value, tuple):
        return "x".join(str(size) for size in value)
    return str(value)
