"""What is recorded of a project, and what is new since: peaks by layer, and known findings.

A baseline is a JSON file that a project commits. Peaks are recorded for each model and batch size,
findings by their fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from oomdoctor._files import read_small, write_whole
from oomdoctor.errors import InputError
from oomdoctor.facts import Estimate, Growth, LayerGrowth
from oomdoctor.findings import Finding, Report

TOLERANCE = 0.05
VERSION = 1
MAX_BYTES = 64 * 1024**2

Bytes = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=2**16)]


class Peak(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The peak of one model with one batch size, as one program."""

    subject: str
    peak_bytes: Bytes
    threads: Threads
    """Threads inside an operation that it was simulated with: some workspaces depend on it."""
    layers: dict[str, Bytes]
    program: Literal["xla", "executor"] = "executor"
    device: str | None = None
    """The card it was compiled for: XLA's program differs from card to card."""


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One finding that was there already."""

    fingerprint: str
    rule: str
    subject: str | None = None
    target: str | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the file holds."""

    tool: Literal["oomdoctor"]
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    peaks: tuple[Peak, ...] = ()
    findings: tuple[Known, ...] = ()

    def peak(self, subject: str, estimate: Estimate) -> Peak | None:
        """Return what is recorded of a model with a batch size, as the same program."""
        wanted = (subject, estimate.program, estimate.device)
        return next((peak for peak in self.peaks if _key(peak) == wanted), None)

    def threads(self, subject: str) -> int | None:
        """Return the threads that a model with a batch size was simulated with."""
        found = (peak for peak in self.peaks if peak.subject == subject)
        return next((peak.threads for peak in found if peak.program == "executor"), None)


def _key(peak: Peak) -> tuple[str, str, str | None]:
    return peak.subject, peak.program, peak.device


EMPTY = Baseline(tool="oomdoctor", version=VERSION)


def read_baseline(path: str) -> Baseline:
    """Return the baseline in a file, or raise one sentence that says what to do."""
    anew = "record it with --update-baseline"
    try:
        content = read_small(path, most=MAX_BYTES)
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
    if not _may_be_replaced(path):
        raise InputError(
            f"{path} is not a baseline of oomdoctor and is left as it is: give another --baseline."
        )
    try:
        write_whole(path, text.encode("ascii"))
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}).") from error


def _may_be_replaced(path: str) -> bool:
    """Return whether a path is free, or holds a baseline, be it old, empty or in conflict.

    It may be named by a configuration, and that by a stranger.
    """
    try:
        content = read_small(path, most=MAX_BYTES)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}).") from error
    return not content.strip() or b'"tool": "oomdoctor"' in content[:4096]


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
    peaks = {_key(peak): peak for peak in before.peaks}
    reports = tuple(reports)
    places = {(report.subject, report.target) for report in reports}
    findings = [f for f in before.findings if (f.subject, f.target) not in places]
    for report in reports:
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
            peak = _peak(report.subject, estimate, threads)
            peaks[_key(peak)] = peak
    return Baseline(
        tool="oomdoctor",
        version=VERSION,
        peaks=tuple(
            peaks[key] for key in sorted(peaks, key=lambda key: (key[0], key[1], key[2] or ""))
        ),
        findings=tuple(sorted(findings, key=_order)),
    )


def _peak(subject: str, estimate: Estimate, threads: int) -> Peak:
    return Peak(
        subject=subject,
        peak_bytes=estimate.peak_bytes,
        threads=threads,
        layers={layer.name: layer.bytes_at_peak for layer in estimate.layers},
        program="xla" if estimate.program == "xla" else "executor",
        device=estimate.device,
    )


def _order(known: Known) -> tuple[Any, ...]:
    return (known.subject or "", known.target or "", known.rule, known.fingerprint)


def _named(report: Report, root: str) -> list[tuple[Finding, str]]:
    from oomdoctor.report.listing import fingerprints_of

    return list(fingerprints_of(report, root))


def _fingerprints(report: Report, root: str) -> dict[int, str]:
    return {id(finding): fingerprint for finding, fingerprint in _named(report, root)}
