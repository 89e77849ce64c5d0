"""`oomdoctor estimate`."""

from __future__ import annotations

from typing import Any

import click

from oomdoctor.cli import config
from oomdoctor.cli.check import COMPARED, exit_code, taken
from oomdoctor.cli.options import (
    also_option,
    baseline_options,
    fail_on_option,
    input_options,
    machines_options,
    output_options,
    purpose_option,
)
from oomdoctor.cli.output import show
from oomdoctor.cli.progress import Progress


@click.command(cls=config.ConfiguredCommand)
@click.argument("model")
@machines_options
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Samples per batch.",
)
@input_options
@click.option("--optimizer", help="In place of the model's own, such as sgd.")
@click.option("--loss", help="For a model that is not compiled.")
@click.option("--precision", help="A dtype policy, such as mixed_float16.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="GPUs that share each batch (MirroredStrategy); the estimate is for one of them.",
)
@click.option(
    "--kind",
    type=click.Choice(["train", "evaluate", "predict"]),
    default="train",
    show_default=True,
    help="Which step.",
)
@click.option(
    "--jit",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Whether XLA compiles the step on a GPU; auto decides as Keras would.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Run a step of a small batch, and scale what it allocates.",
)
@purpose_option
@fail_on_option
@baseline_options
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
    """Predict the peak memory of a training step without running it.

    MODEL is a .keras file or module:callable, a function that returns the model. Its weights take
    no memory here, so the model may be larger than this machine.

    \b
    oomdoctor estimate model.keras --batch-size 64 --machine colab-t4
    oomdoctor estimate mypackage.models:build --precision mixed_float16
    oomdoctor estimate app:build --input-size ids=512 --input-size image=64x64x3
    oomdoctor estimate mypackage.models:build --data mypackage.data:train
    """
    from oomdoctor.api.gate import ModelPlan
    from oomdoctor.cli.gate import run_gate

    compared = taken(options, COMPARED)
    judged = taken(options, ("purpose",))
    plan = ModelPlan(
        model=model,
        batch_sizes=(options.pop("batch_size"),),
        kind=options.pop("kind"),
        jit=options.pop("jit"),
        verify=options.pop("verify"),
        how_trained={name: value for name, value in options.items() if value is not None},
    )
    with Progress("Tracing and compiling the model"):
        report = run_gate("estimate", compared=compared, judged=judged, models=(plan,))
    show(report, format_=format_, output=output, verbose=verbose, fail_on=fail_on, also=also)
    return exit_code(report, fail_on)
