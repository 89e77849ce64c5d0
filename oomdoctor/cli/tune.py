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
@click.option("--vram", "memory", type=SizeType(), help="Memory to train in, such as 6GiB.")
@click.option("--machine", metavar="NAME", help="A machine to emulate (probe --list-machines).")
@input_options
@click.option("--optimizer", help="For a model that is not compiled, such as adam.")
@click.option("--loss", help="For a model that is not compiled.")
@click.option("--precision", help="A dtype policy, such as mixed_float16.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, max_open=True),
    help="Part of the memory for batches that stays free [default: 0.05]; 0 leaves nothing.",
)
@click.option("--min-batch-size", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--max-batch-size", type=click.IntRange(min=1))
@click.option("--multiple-of", type=click.IntRange(min=1), help="Sizes are multiples of this.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="GPUs that share each batch.",
)
@click.option(
    "--objective",
    type=click.Choice(["largest", "fastest"]),
    default="largest",
    show_default=True,
    help="The largest that fits, or the smallest that is as fast.",
)
@click.option(
    "--time",
    "max_seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds after which the largest size run so far is the answer.",
)
@click.option(
    "--jit",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Whether XLA compiles the step on a named card; off runs sizes instead.",
)
@click.option("--cache/--no-cache", default=True, help="Use an answer that was found before.")
@output_options
def command(model: str, format_: str, output: str | None, verbose: bool, **options: Any) -> int:
    """Find the largest batch size that fits, by running it.

    MODEL is a .keras file or module:callable, a function that returns the model. For a card that
    --machine names, sizes are compiled by XLA in place of being run, where Keras would do so.

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
        with Progress("Loading the model and tracing its training step") as line:
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
        trial.outcome, "died"
    )
    tell(f"batch {trial.batch_size}: {what}{seconds}")
    line.update("Looking for the largest batch size")
