"""`oomdoctor estimate`."""

from __future__ import annotations

import os
from typing import Any

import click

from oomdoctor.cli.check import exit_code
from oomdoctor.cli.options import (
    ImageSizeType,
    also_option,
    fail_on_option,
    machine_options,
    output_options,
    purpose_option,
)
from oomdoctor.cli.output import show


@click.command()
@click.argument("model")
@machine_options
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Samples per batch.",
)
@click.option("--input-size", "input_shape", type=ImageSizeType(), help="One sample's shape.")
@click.option("--optimizer", help="In place of the model's own, such as sgd.")
@click.option("--loss", help="For a model that is not compiled.")
@click.option("--precision", help="A dtype policy, such as mixed_float16.")
@click.option(
    "--kind",
    type=click.Choice(["train", "evaluate", "predict"]),
    default="train",
    show_default=True,
    help="Which step.",
)
@click.option("--jit", is_flag=True, help="The step will be compiled by XLA.")
@purpose_option
@fail_on_option
@also_option
@output_options
def command(
    model: str,
    fail_on: str,
    format_: str,
    output: str | None,
    verbose: bool,
    also: tuple[tuple[str, str], ...],
    **options: Any,
) -> int:
    """Predict the peak memory of a training step, without running it.

    MODEL is a .keras file or module:callable, a function that returns the model.

    \b
    oomdoctor estimate model.keras --batch-size 64 --vram 6GiB
    oomdoctor estimate mypackage.models:build --precision mixed_float16
    """
    from oomdoctor.api.model import estimate_report

    # TensorFlow greets with a dozen lines about the CPU; errors still show.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    report = estimate_report(model, **options)
    show(report, format_=format_, output=output, verbose=verbose, fail_on=fail_on, also=also)
    return exit_code(report, fail_on)
