"""From facts to a report: the last step of every function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.facts import Facts
from oomdoctor.findings import Report


def conclude(command: str, facts: Facts, *, rules: Iterable[Any], **how: Any) -> Report:
    """Return what the rules make of the facts, with the verdict."""
    from oomdoctor.advise.evaluate import advise
    from oomdoctor.advise.load import load_rules
    from oomdoctor.footprint.feeding import verdict_of

    verdict = "unknown"
    if facts.footprint is not None and facts.footprint.chosen is not None and facts.machine:
        verdict = verdict_of(facts.footprint.chosen, has_gpu=bool(facts.machine.gpus))
    if facts.diagnosis is not None:
        from oomdoctor.diagnose.run import verdict_of as verdict_of_diagnosis

        verdict = verdict_of_diagnosis(facts.diagnosis)
    findings = advise(facts, load_rules(list(rules)), **how)
    return Report(command=command, verdict=verdict, facts=facts, findings=findings)


def installed() -> tuple[tuple[str, str], ...]:
    """Return the versions of TensorFlow and Keras, without importing them."""
    from oomdoctor.probe.versions import installed_versions

    return installed_versions()


def must_be_positive(**counts: int) -> None:
    """Refuse counts below one, by name."""
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} must be at least 1: {count} is not.")
