"""Options that several commands share, and the types their values have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from oomdoctor.errors import UsageError
from oomdoctor.units import MAX_DIGITS, Sizes, parse_image_size, parse_input_size, parse_size

Function = TypeVar("Function", bound=Callable[..., Any])

FORMATS = ("text", "json", "html", "markdown", "sarif", "junit", "github", "gitlab")


class CommandLineOption(click.Option):
    """An option that only a person may give: it writes, trusts a file or runs code."""


class SizeType(click.ParamType):
    """A size such as `2.7GiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the size as written once it is known to be one."""
        try:
            parse_size(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class ImageSizeType(click.ParamType):
    """Height, width and perhaps channels, such as `150x150x3`."""

    name = "image_size"  # the metavar is given beside it: click writes names in capitals

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return what stands for the value in help texts."""
        return "HxW[xC]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, or fail with one sentence."""
        try:
            return parse_image_size(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def input_options(function: Function) -> Function:
    """Add what a model is fed: `--data` and `--input-size`."""
    for option in (
        click.option(
            "--input-size",
            "input_shape",
            metavar="[NAME=]SIZE",
            multiple=True,
            callback=_parse_input_sizes,
            help="One sample: 224x224x3, 200 for a sequence, or NAME=SIZE for each named input.",
        ),
        click.option(
            "--data",
            cls=CommandLineOption,
            metavar="DATA",
            help="What the model is fed: a .npy or .npz file, a folder of images, or "
            "module:callable, a function that returns a dataset or arrays.",
        ),
    ):
        function = option(function)
    return function


def _parse_input_sizes(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> Sizes | None:
    """Return one sample's shape, or that of each named input."""
    try:
        return parse_input_size(value) if value else None
    except UsageError as error:
        raise click.BadParameter(str(error), ctx, param) from None


class SampleType(click.ParamType):
    """A number of files, or `all`."""

    name = "N|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number, or None for all."""
        if value is None or str(value).lower() == "all":
            return None
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS) or int(text) == 0:
            self.fail(f"{value!r:.60} is not a number of files: write 1000, or all.", param, ctx)
        return int(text)


class ToleranceType(click.ParamType):
    """A part, such as `5%` or `0.05`."""

    name = "PERCENT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the part as a number, 0.05 for 5 %."""
        text = str(value).strip()
        try:
            part = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            part = -1
        if not 0 <= part < 10:
            self.fail(f"{value!r} is not a tolerance: write 5% or 0.05.", param, ctx)
        return part


def machine_options(function: Function) -> Function:
    """Add what a command compares with: `--machine`, `--ram` and `--vram`."""
    return _machine_options(function, several=False)


def machines_options(function: Function) -> Function:
    """Add the same for a command that compares with several machines at once."""
    return _machine_options(function, several=True)


def baseline_options(function: Function) -> Function:
    """Add what was recorded before: `--baseline`, `--update-baseline` and `--tolerance`."""
    for option in (
        click.option(
            "--tolerance",
            type=ToleranceType(),
            default="5%",
            show_default=True,
            help="How much the peak may grow over the baseline.",
        ),
        click.option(
            "--update-baseline",
            cls=CommandLineOption,
            is_flag=True,
            help="Write the current results to the baseline file.",
        ),
        click.option(
            "--baseline",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help="Report only findings that are not in this baseline.",
        ),
    ):
        function = option(function)
    return function


def _machine_options(function: Function, *, several: bool) -> Function:
    for option in (
        click.option("--vram", type=SizeType(), help="GPU memory to compare with, such as 2.7GiB."),
        click.option("--ram", type=SizeType(), help="System memory to compare with, such as 16GB."),
        click.option(
            "--machine",
            metavar="NAME",
            multiple=several,
            help="Machine to compare with, such as colab-t4 (probe --list-machines)."
            + several * " May be repeated; all compares with every GPU.",
        ),
    ):
        function = option(function)
    return function


class FormatFileType(click.ParamType):
    """A format and a file, such as `sarif=oomdoctor.sarif`."""

    name = "FORMAT=FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the two, or fail with one sentence."""
        format_, _, file = str(value).partition("=")
        if format_ not in FORMATS or not file:
            known = ", ".join(FORMATS)
            self.fail(f"{value!r} is not FORMAT=FILE with a format of {known}.", param, ctx)
        return format_, file


def also_option(function: Function) -> Function:
    """Add `--also`: more formats from one run."""
    return click.option(
        "--also",
        cls=CommandLineOption,
        multiple=True,
        type=FormatFileType(),
        help="Also write another format to a file. May be repeated.",
    )(function)


def output_options(function: Function) -> Function:
    """Add how a command shows its result: `--format`, `--output` and `-v`."""
    for option in (
        click.option(
            "-v", "--verbose", is_flag=True, help="Show all findings, notes and missing facts."
        ),
        click.option(
            "-o",
            "--output",
            cls=CommandLineOption,
            metavar="FILE",
            type=click.Path(dir_okay=False, writable=True),
            help="Write to FILE; a name such as page.html selects HTML.",
        ),
        click.option(
            "--format",
            "format_",
            type=click.Choice(FORMATS),
            default="text",
            show_default=True,
            help="Output format.",
        ),
    ):
        function = option(function)
    return function


def rule_options(function: Function) -> Function:
    """Add which rules are run, how they rank, and how bad their findings are."""
    for option in (
        fail_on_option,
        click.option(
            "--severity",
            "severities",
            multiple=True,
            metavar="RULE=LEVEL",
            callback=_parse_severities,
            help="Change the severity of a rule, such as OD101=warning.",
        ),
        click.option(
            "--rules",
            multiple=True,
            metavar="DIR",
            type=click.Path(exists=True, file_okay=False),
            help="Folder with additional rules.",
        ),
        click.option(
            "--ignore", multiple=True, metavar="RULE", help="Skip these rules (OD1, OD101)."
        ),
        click.option(
            "--select", multiple=True, metavar="RULE", help="Run only these rules (OD1, OD101)."
        ),
        purpose_option,
    ):
        function = option(function)
    return function


def purpose_option(function: Function) -> Function:
    """Add `--purpose`."""
    return click.option(
        "--purpose",
        type=click.Choice(["prototype", "train", "production"]),
        help="Purpose of the run; decides which remedies come first.",
    )(function)


def fail_on_option(function: Function) -> Function:
    """Add `--fail-on`."""
    return click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "info", "never"]),
        default="error",
        show_default=True,
        help="Lowest severity that makes the command exit with 1.",
    )(function)


def _parse_severities(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    """Return `OD101=warning` pairs as a mapping."""
    pairs = {}
    for item in value:
        rule, equals, level = item.partition("=")
        if not equals:
            raise click.BadParameter(
                f"{item!r} is not RULE=LEVEL, such as OD101=warning.", ctx, param
            )
        pairs[rule] = level
    return pairs
