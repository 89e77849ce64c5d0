"""From facts to a report: the last step of every function."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.facts import Diagnosis, Estimate, Facts, Footprint, Machine, Tuning, verdict_of
from oomdoctor.findings import Report
from oomdoctor.units import format_bytes


def conclude(
    command: str, facts: Facts, *, rules: Iterable[Any], subject: str | None = None, **how: Any
) -> Report:
    """Return what the rules make of the facts, with the verdict."""
    from oomdoctor.advise.evaluate import advise

    return Report(
        command=command,
        verdict=verdict_on(facts),
        facts=facts,
        findings=advise(facts, read_rules(rules), **how),
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


def verdict_on(facts: Facts) -> str:
    """Return whether what was asked about fits, as far as the facts say."""
    deciding, machine = facts.deciding, facts.machine
    if isinstance(deciding, Diagnosis):
        from oomdoctor.diagnose.run import verdict_of

        return verdict_of(deciding)
    if isinstance(deciding, Tuning):
        return "fits"
    if isinstance(deciding, Estimate) and machine is not None:
        return _verdict_of_step(deciding, machine)
    if isinstance(deciding, Footprint):
        return _verdict_of_data(deciding, facts)
    return "unknown"


def _verdict_of_data(footprint: Footprint, facts: Facts) -> str:
    from oomdoctor.footprint.feeding import verdict_of

    assert footprint.chosen is not None
    verdict = verdict_of(footprint.chosen, has_gpu=bool(facts.machine and facts.machine.gpus))
    is_partial = facts.inventory is not None and not facts.inventory.is_complete
    # What was not seen may be what does not fit.
    return "unknown" if is_partial and verdict == "fits" else verdict


def _verdict_of_step(estimate: Estimate, machine: Machine) -> str:
    """Compare with the GPU, or with RAM where none is known: then the CPU trains."""
    budget = machine.usable_vram_bytes if machine.gpus else machine.ram.available_bytes
    return verdict_of(estimate.low_bytes, estimate.high_bytes, budget)


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
