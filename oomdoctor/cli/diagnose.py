"""`oomdoctor diagnose`."""

from __future__ import annotations

import sys
from typing import Any

import click

from oomdoctor.cli import config
from oomdoctor.cli.check import exit_code
from oomdoctor.cli.options import machine_options, output_options, rule_options
from oomdoctor.cli.output import show
from oomdoctor.errors import UsageError


@click.command(cls=config.ConfiguredCommand)
@click.argument("logs", nargs=-1, metavar="[LOG...|-]")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Batch size of the run, to recognize it in tensor shapes.",
)
@machine_options
@click.option(
    "--redact",
    is_flag=True,
    help="Remove folders, host and user names, addresses, passwords, keys and tokens, as far as "
    "they can be recognized. Names of files, layers and variables stay: read the report before "
    "you share it.",
)
@rule_options
@output_options
def command(
    logs: tuple[str, ...],
    fail_on: str,
    format_: str,
    output: str | None,
    verbose: bool,
    **options: Any,
) -> int:
    """Find out from its log why a run failed, and what to change.

    LOG is a log file (also gzipped), a folder of job logs, a notebook, or - for standard
    input.

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
    show(report, format_=format_, output=output, verbose=verbose, fail_on=fail_on)
    failed = fail_on != "never" and report.verdict == "does_not_fit"
    return int(failed) or exit_code(report, fail_on)
