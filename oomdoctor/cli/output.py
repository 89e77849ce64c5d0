"""Puts a result where the user wants it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from oomdoctor.errors import InputError

if TYPE_CHECKING:
    from oomdoctor.facts import Machine
    from oomdoctor.findings import Report


class ReaderLeft(Exception):
    """Whoever read standard output has left, as `| head` does."""


def show(
    value: Report | Machine, *, format_: str, output: str | None, verbose: bool = False
) -> None:
    """Write a report or a machine in the format asked for."""
    if format_ == "json":
        from oomdoctor.report import json

        write(json.render(_as_report(value)), output)
        return
    from oomdoctor.report import text
    from oomdoctor.report.views import view_of

    if format_ == "markdown":
        from oomdoctor.report import markdown

        write(markdown.render(view_of(value, verbose=verbose)), output)
        return
    colour = output is None and wants_colour()
    write(text.render(view_of(value, verbose=verbose), colour=colour), output)


def write(text: str, output: str | None) -> None:
    """Write text to a file, or to standard output."""
    if output is None:
        _write_to_terminal(text)
        return
    try:
        with open(output, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise InputError(
            f"{output} cannot be written ({error.strerror}): give another --output."
        ) from error


def _write_to_terminal(text: str) -> None:
    if sys.stdout is None:
        raise InputError("Standard output is closed: give --output FILE.")
    # A name on disk may hold what this terminal cannot show; that must not end the report.
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderLeft from None
    except (OSError, ValueError) as error:
        raise InputError(f"Standard output cannot be written ({error}).") from error


def wants_colour() -> bool:
    """Return whether standard output is a terminal that wants colour."""
    if sys.stdout is None or sys.stdout.closed or not sys.stdout.isatty():
        return False
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _as_report(value: Any) -> Report:
    from oomdoctor.facts import Facts, Machine
    from oomdoctor.findings import Report

    if isinstance(value, Machine):
        return Report(command="probe", verdict="unknown", facts=Facts(machine=value))
    report: Report = value
    return report
