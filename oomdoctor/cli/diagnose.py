"""`oomdoctor diagnose`."""

from __future__ import annotations

import sys
from typing import Any

import click

from oomdoctor.cli import config
from oomdoctor.cli.check import exit_code
from oomdoctor.cli.options import machine_options
from oomdoctor.cli.output import show
from oomdoctor.errors import UsageError


@click.command(cls=config.ConfiguredCommand)
@click.argument("logs", nargs=-1, metavar="[LOG...|-]")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help="Of the run, to tell which dimension of a shape it is.",
)
@machine_options
@click.option("--redact", is_flag=True, help="Take out user names, paths, host names and tokens.")
@click.option(
    "--purpose",
    type=click.Choice(["prototype", "train", "production"]),
    help="What the run is for; ranks the remedies.",
)
@click.option("--select", multiple=True, metavar="RULE", help="Run only these rules (OD8, OD803).")
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave these rules out.")
@click.option(
    "--rules",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="A folder with more rules.",
)
@click.option(
    "--severity",
    "severities",
    multiple=True,
    metavar="RULE=LEVEL",
    callback=config.parse_severities,
    help="Another severity for a rule, such as OD803=warning.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    default="error",
    show_default=True,
    help="The mildest finding that makes the exit code 1.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="How to show the result; markdown is ready for an issue.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write there instead of to the terminal.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show every finding and note.")
def command(
    logs: tuple[str, ...],
    fail_on: str,
    format_: str,
    output: str | None,
    verbose: bool,
    **options: Any,
) -> int:
    """Tell why a run died, from its log, and what to change.

    LOG is a file, a folder of job logs, a notebook, gzip, or - for standard input.

    \b
    oomdoctor diagnose train.log
    python train.py 2>&1 | tee train.log | oomdoctor diagnose -
    oomdoctor diagnose train.log --redact --format markdown
    """
    from oomdoctor.api import explain_error

    if not logs:
        if sys.stdin.isatty():
            raise UsageError("Give the log of the run, or - to read it from standard input.")
        logs = ("-",)
    report = explain_error(list(logs), **options)
    show(report, format_=format_, output=output, verbose=verbose)
    failed = fail_on != "never" and report.verdict == "does_not_fit"
    return int(failed) or exit_code(report, fail_on)
