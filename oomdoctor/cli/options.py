"""Options that several commands share, and the types their values have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from oomdoctor.errors import UsageError
from oomdoctor.units import parse_size

Function = TypeVar("Function", bound=Callable[..., Any])


class SizeType(click.ParamType):
    """A size such as `2.7GiB`, as whole bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes, or fail with one sentence."""
        try:
            return parse_size(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class ImageSizeType(click.ParamType):
    """Height, width and perhaps channels, such as `150x150x3`."""

    name = "HxW[xC]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, or fail with one sentence."""
        if isinstance(value, tuple):
            return value
        sizes = str(value).lower().replace("×", "x").split("x")
        if len(sizes) not in (2, 3) or not all(s.isascii() and s.isdigit() for s in sizes):
            self.fail(f"{value!r} is not an image size: write 150x150 or 150x150x3.", param, ctx)
        return tuple(int(size) for size in sizes)


class SampleType(click.ParamType):
    """A number of files, or `all`."""

    name = "N|all"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Return the number, or None for all."""
        if value is None or value == "all":
            return None
        if not str(value).isascii() or not str(value).isdigit() or int(value) == 0:
            self.fail(f"{value!r} is not a number of files: write 1000, or all.", param, ctx)
        return int(value)


def machine_options(function: Function) -> Function:
    """Add what a command compares with: `--machine`, `--ram` and `--vram`."""
    for option in (
        click.option("--vram", type=SizeType(), help="GPU memory to compare with, such as 2.7GiB."),
        click.option("--ram", type=SizeType(), help="System memory to compare with, such as 16GB."),
        click.option(
            "--machine",
            metavar="NAME",
            help="A machine to compare with, such as colab-t4 (probe --list-machines).",
        ),
    ):
        function = option(function)
    return function


def output_options(function: Function) -> Function:
    """Add how a command shows its result: `--format`, `--output` and `-v`."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Show every finding and note."),
        click.option(
            "-o",
            "--output",
            metavar="FILE",
            type=click.Path(dir_okay=False, writable=True),
            help="Write there instead of to the terminal.",
        ),
        click.option(
            "--format",
            "format_",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="How to show the result.",
        ),
    ):
        function = option(function)
    return function
