"""`oomdoctor check`."""

from __future__ import annotations

from typing import Any

import click

from oomdoctor.cli import config
from oomdoctor.cli.options import (
    ImageSizeType,
    SampleType,
    also_option,
    machine_options,
    output_options,
    rule_options,
)
from oomdoctor.cli.output import show
from oomdoctor.cli.progress import ScanProgress
from oomdoctor.findings import Report
from oomdoctor.units import DTYPE_BYTES


@click.command(cls=config.ConfiguredCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@machine_options
@click.option("--image-size", type=ImageSizeType(), help="What pictures are resized to.")
@click.option(
    "--dtype",
    type=click.Choice(list(DTYPE_BYTES)),
    metavar="DTYPE",
    help="What the loading code makes of the data, such as float32 or uint8.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Samples per batch.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="GPUs that share each batch (MirroredStrategy).",
)
@click.option(
    "--load",
    type=click.Choice(["auto", "memory", "stream"]),
    default="auto",
    show_default=True,
    help="How the data is fed; auto: arrays and tables whole, the rest streamed.",
)
@click.option("--sample", type=SampleType(), help="Read N files of each group, at random.")
@rule_options
@also_option
@output_options
def command(
    paths: tuple[str, ...],
    fail_on: str,
    format_: str,
    output: str | None,
    verbose: bool,
    also: tuple[tuple[str, str], ...],
    **options: Any,
) -> int:
    """Tell whether a dataset fits in memory, and what to change if not.

    \b
    oomdoctor check data/
    oomdoctor check data/ --vram 2.7GiB
    oomdoctor check data/ --machine colab-t4 --image-size 512x512x3
    """
    from oomdoctor.api import check

    with ScanProgress() as progress:
        report = check(list(paths), progress=progress, keep_partial=True, **options)
    show(
        report,
        format_=format_,
        output=output,
        verbose=verbose,
        fail_on=fail_on,
        also=also,
        rules=options["rules"],
    )
    inventory = report.facts.inventory
    if inventory is not None and not inventory.is_complete:
        raise KeyboardInterrupt
    return exit_code(report, fail_on)


def exit_code(report: Report, fail_on: str) -> int:
    """Return 1 when something was found that is at least as bad as `fail_on`, and new."""
    from oomdoctor.report.listing import list_problems

    listing = list_problems(report, fail_on=fail_on)
    return int(any(problem.fails for problem in listing.problems))
