"""From facts to a report: the last step of every function."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.facts import Estimate, Facts, Machine
from oomdoctor.findings import Report
from oomdoctor.units import format_bytes


def conclude(
    command: str, facts: Facts, *, rules: Iterable[Any], subject: str | None = None, **how: Any
) -> Report:
    """Return what the rules make of the facts, with the verdict."""
    from oomdoctor.advise.evaluate import advise
    from oomdoctor.footprint.feeding import verdict_of

    verdict = "unknown"
    if facts.footprint is not None and facts.footprint.chosen is not None and facts.machine:
        verdict = verdict_of(facts.footprint.chosen, has_gpu=bool(facts.machine.gpus))
        is_partial = facts.inventory is not None and not facts.inventory.is_complete
        if is_partial and verdict == "fits":
            verdict = "unknown"  # what was not seen may be what does not fit
    if facts.estimate is not None and facts.machine is not None:
        verdict = _verdict_of_step(facts.estimate, facts.machine)
    if facts.tuning is not None:
        verdict = "fits"
    if facts.diagnosis is not None:
        from oomdoctor.diagnose.run import verdict_of as verdict_of_diagnosis

        verdict = verdict_of_diagnosis(facts.diagnosis)
    findings = advise(facts, read_rules(rules), **how)
    return Report(
        command=command,
        verdict=verdict,
        facts=facts,
        findings=findings,
        subject=subject,
        target=None if facts.machine is None else target_name(facts.machine),
    )


class RuleSet(tuple[Any, ...]):
    """Rules that were read already, to be used for several reports."""

    __slots__ = ()


def read_rules(folders: Any) -> RuleSet:
    """Return the rules, with those of more folders; what was read already is returned as it is."""
    if isinstance(folders, RuleSet):
        return folders
    from oomdoctor.advise.load import load_rules

    places: list[Any] = [folders] if isinstance(folders, (str, os.PathLike)) else list(folders)
    return RuleSet(load_rules(places))


def target_name(machine: Machine) -> str:
    """Return what a run is compared with, in a few words that stay the same from run to run.

    Example:
        >>> from oomdoctor import probe_machine
        >>> target_name(probe_machine(machine="colab-t4")), target_name(probe_machine(vram="6GiB"))
        ('colab-t4', '6.00 GiB of GPU memory')
    """
    given = []
    if machine.ram.origin == "declared":
        given.append(f"{format_bytes(machine.ram.total_bytes)} of RAM")
    given += [
        f"{format_bytes(gpu.total_bytes)} of GPU memory"
        for gpu in machine.gpus
        if gpu.origin == "declared"
    ]
    if machine.name is None:
        return " and ".join(given) or "this machine"
    return f"{machine.name} with {' and '.join(given)}" if given else machine.name


def _verdict_of_step(estimate: Estimate, machine: Machine) -> str:
    """Compare with the GPU, or with RAM where none is known: then the CPU trains."""
    budget = machine.usable_vram_bytes if machine.gpus else machine.ram.available_bytes
    if budget is None:
        return "unknown"
    if estimate.low_bytes > budget:
        return "does_not_fit"
    return "fits" if estimate.high_bytes <= budget else "unknown"


def installed() -> tuple[tuple[str, str], ...]:
    """Return the versions of TensorFlow and Keras, without importing them."""
    from oomdoctor.probe.versions import installed_versions

    return installed_versions()


def must_be_positive(**counts: int | None) -> None:
    """Refuse counts that are not whole or below one, by name; None is no count."""
    for name, count in counts.items():
        if count is None:
            continue
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"{name} is a whole number from 1 on: {count!r} is not.")
