"""`oomdoctor check`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from oomdoctor.cli import config, fixing
from oomdoctor.cli.options import (
    CommandLineOption,
    ImageSizeType,
    SampleType,
    also_option,
    baseline_options,
    machines_options,
    output_options,
    rule_options,
)
from oomdoctor.cli.output import show
from oomdoctor.cli.progress import Progress
from oomdoctor.errors import UsageError
from oomdoctor.findings import Report
from oomdoctor.units import DTYPE_BYTES

JUDGED = ("purpose", "select", "ignore", "rules", "severities")
COMPARED = ("machine", "ram", "vram", "baseline", "update_baseline", "tolerance")


_SEEN = "{:,} files scanned (Ctrl-C: report on these)"


@click.command(cls=config.ConfiguredCommand)
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@machines_options
@click.option(
    "--image-size",
    type=ImageSizeType(),
    metavar="HxW[xC]",
    help="Size that images are resized to, such as 224x224.",
)
@click.option(
    "--dtype",
    type=click.Choice(list(DTYPE_BYTES)),
    metavar="DTYPE",
    help="dtype after loading, such as float32 or uint8.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    default=32,
    show_default=True,
    help="Batch size.",
)
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="GPUs that share each batch (MirroredStrategy).",
)
@click.option(
    "--load",
    type=click.Choice(["auto", "memory", "stream"]),
    default="auto",
    show_default=True,
    help="How the data is fed; auto: arrays and tables in RAM, the rest streamed.",
)
@click.option(
    "--sample", type=SampleType(), metavar="N", help="Read only N random files per group, or all."
)
@click.option(
    "--state",
    cls=CommandLineOption,
    metavar="FILE",
    help="Remember in FILE what was read: unchanged files are not opened again, and an interrupted "
    "scan continues.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    cls=CommandLineOption,
    metavar="N",
    help="Read with N workers of a Dask cluster on this machine.",
)
@click.option(
    "--scheduler",
    cls=CommandLineOption,
    metavar="ADDRESS",
    help="Read with the Dask cluster at this address, such as tcp://10.0.0.5:8786.",
)
@click.option(
    "--no-models",
    is_flag=True,
    help="Skip the models in the configuration, which import the project's code.",
)
@click.option(
    "--fix", cls=CommandLineOption, is_flag=True, help="Fix scripts in place where that is safe."
)
@click.option("--diff", is_flag=True, help="Show what --fix would change, without changing it.")
@rule_options
@baseline_options
@also_option
@output_options
def command(
    paths: tuple[str, ...],
    fail_on: str,
    format_: str,
    output: str | None,
    verbose: bool,
    also: tuple[tuple[str, str], ...],
    fix: bool,
    diff: bool,
    no_models: bool,
    **options: Any,
) -> int:
    """Check whether data fits in memory, and scripts for memory mistakes.

    Python files and notebooks are checked as code, everything else as data. Without a PATH,
    everything that [tool.oomdoctor] in pyproject.toml lists is checked.

    \b
    oomdoctor check data/
    oomdoctor check data/ --vram 2.7GiB
    oomdoctor check data/ --machine colab-t4 --image-size 512x512x3
    oomdoctor check s3://bucket/train/ --sample 1000
    oomdoctor check train.py notebook.ipynb src/
    """
    from oomdoctor.cli.gate import run_gate

    judged = taken(options, JUDGED)
    compared = taken(options, COMPARED)
    named = _named(paths, options)
    left_out = len(named.pop("models", ())) if no_models else 0
    if left_out and compared["update_baseline"]:
        raise UsageError("--update-baseline records every model: do not pass --no-models.")
    run = partial(run_gate, "check", compared=compared, judged=judged, whole=not paths, **named)
    with Progress("Checking") as line:
        report = run(progress=lambda files: line.update(_SEEN.format(files)))
    if diff:
        return fixing.show_diff(report, output)
    if fix and fixing.fix(report):
        report = run()
    if left_out:
        note = f"--no-models: {left_out} model(s) in the configuration were not checked."
        report = replace(report, notes=(*report.notes, note))
    show(
        report,
        format_=format_,
        output=output,
        verbose=verbose,
        fail_on=fail_on,
        also=also,
        rules=judged["rules"],
    )
    inventories = (part.facts.inventory for part in (report, *report.parts))
    if any(inventory is not None and not inventory.is_complete for inventory in inventories):
        raise KeyboardInterrupt
    return exit_code(report, fail_on)


def taken(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return some of the options, and take them out."""
    return {name: options.pop(name) for name in names if name in options}


def _named(paths: tuple[str, ...], how_fed: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be checked: the paths given, or what the configuration names."""
    from oomdoctor.api.gate import DataPlan

    if paths:
        return {"datasets": (DataPlan(name=None, paths=paths, how_fed=how_fed),)}
    from oomdoctor.cli.plan import names_something, read_plan

    found = config.in_use()
    if found is None or not names_something(found.settings):
        raise UsageError(
            "Give a PATH to check, or name models, datasets or scripts under [tool.oomdoctor] in "
            "pyproject.toml."
        )
    return read_plan(found, defaults=how_fed)


def exit_code(report: Report, fail_on: str) -> int:
    """Return 1 when something was found that is at least as bad as `fail_on`, and new."""
    return int(report.fails(fail_on))
