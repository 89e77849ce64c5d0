"""What is recorded of a project, and what is new since: peaks by layer, and known findings.

A baseline is a JSON file that a project commits. Peaks are recorded for each model and batch size,
findings by their fingerprint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import msgspec

from oomdoctor.errors import InputError
from oomdoctor.facts import Estimate, Growth, LayerGrowth
from oomdoctor.findings import Finding, Report

TOLERANCE = 0.05
VERSION = 1
MAX_BYTES = 64 * 1024**2


class Peak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The peak of one model with one batch size."""

    subject: str
    peak_bytes: int
    threads: int
    """Threads inside an operation that it was simulated with: some workspaces depend on it."""
    layers: dict[str, int]


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One finding that was there already."""

    fingerprint: str
    rule: str
    subject: str | None = None
    target: str | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds."""

    tool: Literal["oomdoctor"]
    version: int
    peaks: tuple[Peak, ...] = ()
    findings: tuple[Known, ...] = ()

    def peak(self, subject: str) -> Peak | None:
        """Return what is recorded of a model with a batch size."""
        return next((peak for peak in self.peaks if peak.subject == subject), None)


EMPTY = Baseline(tool="oomdoctor", version=VERSION)


def read_baseline(path: str) -> Baseline:
    """Return the baseline in a file, or raise one sentence that says what to do."""
    anew = "record it with --update-baseline"
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise InputError(f"{path} is too large for a baseline: {anew}.")
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: {anew}.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {anew}.") from error
    try:
        baseline = msgspec.json.decode(content, type=Baseline)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a baseline of oomdoctor ({error}): {anew}.") from None
    if baseline.version != VERSION:
        raise InputError(
            f"{path} is a baseline of version {baseline.version}, and this oomdoctor knows "
            f"version {VERSION}: {anew}, or install the oomdoctor that wrote it."
        )
    return baseline


def write_baseline(path: str, baseline: Baseline) -> None:
    """Write a baseline so that its changes read well in a diff."""
    plain = msgspec.to_builtins(baseline)
    text = json.dumps(plain, indent=1, ensure_ascii=True) + "\n"
    half = f"{path}.{os.getpid()}.part"
    try:
        with open(half, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(half, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}).") from error


def grown(estimate: Estimate, recorded: Peak | None, tolerance: float) -> Growth | None:
    """Return an estimate beside what is recorded; None where nothing is."""
    if recorded is None:
        return None
    now = {layer.name: layer.bytes_at_peak for layer in estimate.layers}
    names = sorted(now.keys() | recorded.layers.keys())
    changes = [
        LayerGrowth(
            name=name, recorded_bytes=recorded.layers.get(name), bytes_at_peak=now.get(name)
        )
        for name in names
    ]
    changes = [change for change in changes if change.growth_bytes]
    changes.sort(key=lambda change: (-abs(change.growth_bytes), change.name))
    return Growth(
        recorded_bytes=recorded.peak_bytes,
        peak_bytes=estimate.peak_bytes,
        tolerance=tolerance,
        layers=tuple(changes),
    )


def with_known(report: Report, baseline: Baseline, *, root: str) -> Report:
    """Return a report whose findings say whether the baseline has them."""
    if report.parts:
        parts = tuple(with_known(part, baseline, root=root) for part in report.parts)
        return replace(report, parts=parts)
    known = {finding.fingerprint for finding in baseline.findings}
    prints = _fingerprints(report, root)
    findings = [
        replace(finding, is_known=prints.get(id(finding)) in known) for finding in report.findings
    ]
    return replace(report, findings=tuple(findings))


def recorded(
    reports: Iterable[Report], *, root: str, threads: int, before: Baseline = EMPTY
) -> Baseline:
    """Return the baseline that makes these reports clean; what it had of others is kept."""
    peaks = {peak.subject: peak for peak in before.peaks}
    findings: list[Known] = list(before.findings)
    for report in reports:
        place = (report.subject, report.target)
        findings = [known for known in findings if (known.subject, known.target) != place]
        for finding, fingerprint in _named(report, root):
            findings.append(
                Known(
                    fingerprint=fingerprint,
                    rule=finding.rule,
                    subject=report.subject,
                    target=report.target,
                )
            )
        estimate = report.facts.estimate
        if estimate is not None and report.subject is not None:
            peaks[report.subject] = _peak(report.subject, estimate, threads)
    return Baseline(
        tool="oomdoctor",
        version=VERSION,
        peaks=tuple(sorted(peaks.values(), key=lambda peak: peak.subject)),
        findings=tuple(sorted(findings, key=_order)),
    )


def _peak(subject: str, estimate: Estimate, threads: int) -> Peak:
    return Peak(
        subject=subject,
        peak_bytes=estimate.peak_bytes,
        threads=threads,
        layers={layer.name: layer.bytes_at_peak for layer in estimate.layers},
    )


def _order(known: Known) -> tuple[Any, ...]:
    return (known.subject or "", known.target or "", known.rule, known.fingerprint)


def _named(report: Report, root: str) -> list[tuple[Finding, str]]:
    from oomdoctor.report.listing import fingerprints_of

    return list(fingerprints_of(report, root))


def _fingerprints(report: Report, root: str) -> dict[int, str]:
    return {id(finding): fingerprint for finding, fingerprint in _named(report, root)}
