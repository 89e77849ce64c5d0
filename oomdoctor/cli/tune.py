"""`oomdoctor tune`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, cast

import click

from oomdoctor.cli.options import SizeType, input_options, output_options
from oomdoctor.cli.output import show, tell
from oomdoctor.cli.progress import Progress
from oomdoctor.errors import DoesNotFitError
from oomdoctor.facts import SizeTrial
from oomdoctor.findings import Report
from oomdoctor.units import format_bytes


@click.command()
@click.argument("model")
@click.option("--vram", "memory", type=SizeType(), help="Memory limit, such as 6GiB.")
@click.option("--machine", metavar="NAME", help="Machine to emulate (see probe --list-machines).")
@input_options
@click.option("--optimizer", help="Optimizer for an uncompiled model, such as adam.")
@click.option("--loss", help="Loss for an uncompiled model.")
@click.option("--precision", help="Dtype policy, such as mixed_float16.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, max_open=True),
    help="Fraction of the memory for batches to keep free [default: 0.05].",
)
@click.option(
    "--min-batch-size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Smallest batch size to consider.",
)
@click.option(
    "--max-batch-size",
    type=click.IntRange(min=1),
    help="Largest batch size to consider [default: 8192].",
)
@click.option("--multiple-of", type=click.IntRange(min=1), help="Only consider multiples of this.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of GPUs that share each batch.",
)
@click.option(
    "--objective",
    type=click.Choice(["largest", "fastest"]),
    default="largest",
    show_default=True,
    help="Largest batch size that fits, or the smallest that trains as fast.",
)
@click.option(
    "--time",
    "max_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time budget in seconds. The answer is the largest size that trained by then.",
)
@click.option(
    "--jit",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Whether XLA compiles the step on the GPU of --machine; off trains sizes instead.",
)
@click.option("--cache/--no-cache", default=True, help="Reuse the answer of an earlier search.")
@output_options
def command(model: str, format_: str, output: str | None, verbose: bool, **options: Any) -> int:
    """Find the largest batch size that fits, by training with it.

    MODEL is a .keras file or module:callable, a function that returns the model. With --machine,
    batch sizes are compiled by XLA for its GPU instead of trained, if Keras would use XLA.

    \b
    oomdoctor tune model.keras --vram 6GiB
    oomdoctor tune mypackage.models:build --machine colab-t4
    """
    from oomdoctor.api.tune import TuneOptions, tune_report

    names = ("input_shape", "optimizer", "loss", "precision")
    how_trained = {name: options.pop(name) for name in names}
    data = options.pop("data")
    asked = TuneOptions(how_trained=how_trained, **options)
    is_watched = sys.stderr is not None and sys.stderr.isatty()
    try:
        with Progress("Building the model and tracing its training step") as line:
            watch = partial(_tell, line) if is_watched else None
            report = tune_report(model, data, asked, watch=watch)
    except DoesNotFitError as error:
        tell(str(error))
        show(cast("Report", error.report), format_=format_, output=output, verbose=verbose)
        return error.exit_code
    show(report, format_=format_, output=output, verbose=verbose)
    return 0


def _tell(line: Progress, trial: SizeTrial) -> None:
    seconds = "" if trial.seconds is None else f" ({trial.seconds:.0f} s)"
    what = {"fits": format_bytes(trial.peak_bytes), "oom": "out of memory"}.get(
        trial.outcome, "process died"
    )
    tell(f"batch size {trial.batch_size}: {what}{seconds}")
    line.update("Searching for the largest batch size")
