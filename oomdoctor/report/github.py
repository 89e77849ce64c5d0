"""A list of problems as commands of GitHub Actions, which show them beside the changed lines."""

from __future__ import annotations

from oomdoctor.report.escape import printable
from oomdoctor.report.listing import Listing, Problem

COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(listing: Listing) -> str:
    """Return one line for each problem, and one for each verdict."""
    lines = [_annotation(problem) for problem in listing.problems]
    # The first word keeps a name that begins with `::` from being a command.
    lines += [f"oomdoctor: {suite.name}: {suite.headline}" for suite in listing.suites]
    return "\n".join(lines) + "\n"


def _annotation(problem: Problem) -> str:
    command = "notice" if problem.is_known else COMMANDS[problem.severity.value]
    place = {"file": printable(problem.file), "line": str(problem.line)}
    if problem.column is not None:
        place["col"] = str(problem.column)
    place["title"] = f"{problem.rule} {problem.name}"
    properties = ",".join(f"{name}={_property(value)}" for name, value in place.items())
    return f"::{command} {properties}::{_data(problem.advice)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
