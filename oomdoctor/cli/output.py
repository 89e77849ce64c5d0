"""Puts a result where the user wants it, and sentences on standard error.

All that a command prints passes through here, and is escaped here: see `report.escape`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import click

from oomdoctor._files import write_whole
from oomdoctor.cli.progress import room
from oomdoctor.errors import InputError
from oomdoctor.report.escape import harmless, printable

if TYPE_CHECKING:
    from oomdoctor.facts import Machine
    from oomdoctor.findings import Report


MAX_SENTENCE = 2000


class ReaderLeft(Exception):
    """Whoever read standard output has left, as `| head` does."""


def show(
    value: Report | Machine,
    *,
    format_: str,
    output: str | None,
    verbose: bool = False,
    fail_on: str = "error",
    also: Iterable[tuple[str, str]] = (),
    rules: Iterable[str] = (),
) -> None:
    """Write a report or a machine in the format asked for.

    Args:
        value: What is shown.
        format_: One of `options.FORMATS`.
        output: A file; None is standard output.
        verbose: Whether every finding and note is shown.
        fail_on: The mildest finding that fails, which some formats tell.
        also: More formats, each with its file.
        rules: Folders with more rules, whose pages some formats quote.
    """
    format_ = _format_of(output, format_)
    draw = partial(_rendered, value, verbose=verbose, fail_on=fail_on, rules=rules)
    for extra, file in also:
        write(draw(extra, colour=False), file, format_=extra)
    colour = format_ == "text" and output is None and wants_colour(sys.stdout)
    write(draw(format_, colour=colour), output, format_=format_, colour=colour)


def _format_of(output: str | None, format_: str) -> str:
    """Return the format; a file that is named like a page is one, unless another is asked for."""
    if output is None or not output.lower().endswith((".html", ".htm")) or format_ != "text":
        return format_
    context = click.get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source("format_")
    return format_ if source is click.core.ParameterSource.COMMANDLINE else "html"


def _rendered(
    value: Report | Machine,
    format_: str,
    *,
    colour: bool,
    verbose: bool,
    fail_on: str,
    rules: Iterable[str],
) -> str:
    if format_ == "json":
        from oomdoctor.report import json

        return json.render(_as_report(value))
    if format_ in ("sarif", "junit", "github", "gitlab"):
        from oomdoctor.cli.listing import listing_of

        renderer = importlib.import_module(f"oomdoctor.report.{format_}")
        # Only SARIF quotes the rules' pages, which take a while to read.
        quoted = rules if format_ == "sarif" else None
        listing = listing_of(_as_report(value), fail_on=fail_on, rules=quoted)
        rendered: str = renderer.render(listing)
        return rendered
    if format_ == "html":
        from oomdoctor.report import page

        return page.render(_as_report(value), verbose=verbose)
    from oomdoctor.report import text
    from oomdoctor.report.views import view_of

    if format_ == "markdown":
        from oomdoctor.report import markdown
        from oomdoctor.report.of_report import part_views

        view = view_of(value, verbose=verbose)
        if getattr(value, "parts", ()) and not verbose:
            # A comment in a pull request folds them away, so what is not well can be there.
            view = replace(view, details=part_views(_as_report(value), with_good=False))
        return markdown.render(view)
    return text.render(view_of(value, verbose=verbose), colour=colour)


def write(text: str, output: str | None, *, format_: str = "text", colour: bool = False) -> None:
    """Write text to a file, or to standard output.

    Args:
        text: What is written.
        output: A file; None is standard output.
        format_: What the text is; see `harmless`. What another program reads back, `exact`, is
            escaped only where it is printed.
        colour: Whether the text has colours of ours.
    """
    if output is None:
        _print(harmless(text, format_, colour=colour))
        return
    if format_ != "exact":
        text = harmless(text, format_)
    try:
        write_whole(output, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InputError(
            f"{output} cannot be written ({error.strerror}): give another file."
        ) from error


def _print(text: str) -> None:
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


def tell(sentence: str) -> None:
    """Write a sentence to standard error, on one line; a name in it may be of any length."""
    line = printable(sentence)
    tell_lines(line if len(line) <= MAX_SENTENCE else f"{line[:MAX_SENTENCE]}…")


def tell_lines(text: str, *, format_: str = "text", colour: bool = False) -> None:
    """Write lines to standard error; where nobody can read it, that is no error."""
    with room(), contextlib.suppress(OSError, ValueError):
        click.echo(harmless(text, format_, colour=colour), err=True, color=True)


def wants_colour(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal that wants colour."""
    if stream is None or stream.closed or not stream.isatty():
        return False
    return "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _as_report(value: Any) -> Report:
    from oomdoctor.facts import Facts, Machine
    from oomdoctor.findings import Report

    if isinstance(value, Machine):
        return Report(command="probe", verdict="unknown", facts=Facts(machine=value))
    report: Report = value
    return report
