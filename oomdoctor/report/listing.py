"""What other programs are told: a flat list of problems, each with a place and a fingerprint.

Code scanners, test reports and merge requests want one entry per problem, in a file, at a line.
The formats for them (`sarif`, `junit`, `github`, `gitlab`) draw this list, as `text` and `html`
draw a view. What is not about a line of code stands at the first line of the configuration.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from oomdoctor.findings import Finding, Outcome, Report, Severity
from oomdoctor.report.escape import printable
from oomdoctor.report.headline import headline_of
from oomdoctor.report.of_gate import part_name

DEFAULT_ANCHOR = "pyproject.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """What a format can say of a rule."""

    id: str
    name: str
    summary: str
    page: str
    """Markdown: why, an example, what to use instead."""
    severity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding, in one place."""

    rule: str
    name: str
    severity: Severity
    message: str
    title: str
    code: str
    file: str
    """Relative to the repository, with slashes."""
    line: int
    column: int | None
    fingerprint: str
    """The same in every run and on every machine, also when lines move."""
    fails: bool
    is_known: bool
    is_repeated: bool = False
    """Whether the same was said of the same line of code under another target."""

    @property
    def advice(self) -> str:
        """The message and what to do about it, in one text."""
        return f"{self.message} {self.title}." if self.title else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What was examined, compared with one target."""

    name: str
    headline: str
    problems: tuple[Problem, ...]
    passed: tuple[str, ...]
    """Rules that found nothing."""
    undecided: tuple[tuple[str, str], ...]
    """Rules that lacked a fact, and what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that is told to another program."""

    suites: tuple[Suite, ...]
    rules: tuple[RuleText, ...] = ()
    """Of the problems, by id."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All of them, the worst first; what is said of a line of code is said once."""
        found = [p for suite in self.suites for p in suite.problems if not p.is_repeated]
        return tuple(sorted(found, key=lambda problem: (problem.is_known, problem.severity.rank)))


def list_problems(
    report: Report,
    *,
    root: str = ".",
    anchor: str = DEFAULT_ANCHOR,
    fail_on: str = "error",
    rules: Mapping[str, RuleText] | None = None,
) -> Listing:
    """Return a report as a list of problems.

    Args:
        report: One report, or one with parts.
        root: The folder that files are told relative to.
        anchor: The file that stands for what is not about a line of code.
        fail_on: The mildest severity that fails.
        rules: What to say of each rule, by id.
    """
    names, place = _Fingerprints(), _Place(root, anchor)
    suites: list[Suite] = []
    said: set[tuple[object, ...]] = set()
    for part in report.parts or (report,):
        suites.append(_suite(part, place, names, fail_on, said))
        said |= {_said(finding) for finding in part.findings if finding.location is not None}
    used = sorted({problem.rule for suite in suites for problem in suite.problems})
    known = rules or {}
    return Listing(suites=tuple(suites), rules=tuple(known[rule] for rule in used if rule in known))


def fingerprints_of(report: Report, root: str) -> Iterator[tuple[Finding, str]]:
    """Yield what fired in one report, each with its fingerprint."""
    names, place = _Fingerprints(), _Place(root, DEFAULT_ANCHOR)
    for finding in report.fired:
        yield finding, names.of(report, finding, place)


class _Place:
    def __init__(self, root: str, anchor: str) -> None:
        self.root, self.anchor = root, anchor

    def of(self, finding: Finding) -> tuple[str, int, int | None]:
        location = finding.location
        if location is None:
            return self.anchor, 1, None
        if location.cell is not None:
            return self.relative(location.file), 1, None  # its lines are not those of the file
        column = location.column if location.column > 0 else None
        return self.relative(location.file), max(location.line, 1), column

    def relative(self, file: str) -> str:
        path = os.path.abspath(file)
        inside = os.path.relpath(path, os.path.abspath(self.root))
        shown = path if inside.startswith("..") else inside
        return shown.replace(os.sep, "/")


class _Fingerprints:
    """Names problems by what stays when lines move and memory differs."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, report: Report, finding: Finding, place: _Place) -> str:
        words: Iterable[str | None]
        if finding.location is not None:
            words = (finding.rule, place.of(finding)[0], finding.message)
        else:
            # The message holds figures that differ from run to run.
            words = (finding.rule, report.subject, report.target)
        key = "\0".join(word or "" for word in words)
        self._seen[key] = self._seen.get(key, 0) + 1
        numbered = f"{key}\0{self._seen[key]}"
        return hashlib.sha256(numbered.encode(errors="surrogatepass")).hexdigest()[:32]


def _said(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.location, finding.severity, finding.message


def _suite(
    report: Report,
    place: _Place,
    names: _Fingerprints,
    fail_on: str,
    said: set[tuple[object, ...]],
) -> Suite:
    problems = [
        replace(
            _problem(finding, place, names.of(report, finding, place), fail_on),
            is_repeated=_said(finding) in said,
        )
        for finding in report.fired
    ]
    unknown = [f for f in report.findings if f.outcome is Outcome.UNKNOWN]
    return Suite(
        name=part_name(report),
        headline=printable(headline_of(report).sentence),
        problems=tuple(problems),
        passed=tuple(
            f"{finding.rule} {finding.name}"
            for finding in report.findings
            if finding.outcome is Outcome.PASSED
        ),
        undecided=tuple((f"{f.rule} {f.name}", printable(f.message)) for f in unknown),
    )


def _in_cell(finding: Finding) -> str:
    """Return the message, after the cell and the line of a notebook: files have no line for it."""
    at = finding.location
    if at is None or at.cell is None:
        return finding.message
    return f"Cell {at.cell}, line {at.line}: {finding.message}"


def _problem(finding: Finding, place: _Place, fingerprint: str, fail_on: str) -> Problem:
    file, line, column = place.of(finding)
    return Problem(
        rule=finding.rule,
        name=finding.name,
        severity=finding.severity,
        message=printable(_in_cell(finding)),
        title=printable(finding.fix.title) if finding.fix else "",
        code="\n".join(printable(row) for row in finding.fix.code.splitlines())
        if finding.fix
        else "",
        file=file,
        line=line,
        column=column,
        fingerprint=fingerprint,
        fails=finding.fails(fail_on),
        is_known=finding.is_known,
    )
