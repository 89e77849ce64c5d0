"""`oomdoctor profile`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from oomdoctor.cli.check import exit_code
from oomdoctor.cli.options import CommandLineOption, SizeType, fail_on_option
from oomdoctor.cli.output import show, tell, tell_lines, wants_colour, write
from oomdoctor.errors import InputError, OomDoctorError, UsageError

if TYPE_CHECKING:
    from oomdoctor.findings import Report

REPORTS = {"report.json": "json", "report.txt": "text", "report.html": "html"}


class _Passing(click.Command):
    """A command whose options end where the program's command line begins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split our options from the program: a script, `-m module` or `-c code`."""
        takes = {
            name: 0 if param.is_flag or param.count else param.nargs
            for param in self.params
            if isinstance(param, click.Option)
            for name in param.opts
        }
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] not in _STARTS:
            name, equals, _ = args[index].partition("=")
            index += 1 if equals else 1 + takes.get(name, 0)
        program = args[index:]
        if program[:1] == ["--"]:
            program = program[1:]
        ctx.meta["oomdoctor.program"] = tuple(program)
        return super().parse_args(ctx, args[:index])


_STARTS = ("-", "-m", "-c", "--")


@click.command(cls=_Passing, options_metavar="[OPTIONS] SCRIPT [ARG]...")
@click.option("--ram", type=SizeType(), help="Limit the script's RAM; it is killed above that.")
@click.option(
    "--vram", type=SizeType(), help="Limit TensorFlow's GPU memory; on a CPU, emulate such a GPU."
)
@click.option(
    "-o",
    "--output",
    cls=CommandLineOption,
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Folder for the recording and the report.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 100),
    default=10.0,
    show_default=True,
    metavar="HZ",
    help="Samples per second.",
)
@click.option(
    "--trace-step",
    type=click.IntRange(min=1),
    metavar="N",
    help="Trace step N: memory at its peak by layer and tensor.",
)
@click.option(
    "--timeline",
    cls=CommandLineOption,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Also write the samples as .csv or .parquet.",
)
@click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Report on the recording in DIR, without running anything.",
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    type=click.Path(file_okay=False),
    help="Compare the recordings in A and B, without running anything.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@fail_on_option
@click.option("-v", "--verbose", is_flag=True, help="Show all findings, phases and notes.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str | None,
    compare: tuple[str, str] | None,
    timeline: str | None,
    format_: str,
    fail_on: str,
    verbose: bool,
    **options: Any,
) -> int:
    """Run a script, record its memory, and report what grew and how it ended.

    The script runs unchanged, with its own output and exit code. The report goes to
    standard error and to a folder, also if the script is killed.

    \b
    oomdoctor profile train.py --epochs 3
    oomdoctor profile --ram 8GiB --vram 6GiB -m mypackage.train
    oomdoctor profile --from oomdoctor-train-20260801-120000
    oomdoctor profile --compare before/ after/
    """
    program = ctx.meta["oomdoctor.program"]
    _check_timeline(timeline)
    if compare:
        if program or source or timeline or _is_any(options, "ram", "vram", "trace_step"):
            raise UsageError(
                "--compare A B does not run a script: pass it alone, or with --output DIR."
            )
        _compare(*compare, options["output"], format_=format_, verbose=verbose)
        return 0
    if source is not None:
        if program or _is_any(options, "ram", "vram", "output", "trace_step"):
            raise UsageError("--from DIR does not run a script: pass it alone.")
        report = _reported(Path(source), timeline)
        show(report, format_=format_, output=None, verbose=verbose)
        return exit_code(report, fail_on)
    folder, code = _record(program, **options)
    try:
        report = _reported(folder, timeline)
        _tell(report, folder, format_=format_, verbose=verbose)
    except (OomDoctorError, OSError) as error:
        tell(f"oomdoctor: {error} The recording is in {folder}.")
    return code


def _is_any(options: dict[str, Any], *names: str) -> bool:
    return any(options[name] for name in names)


def _compare(one: str, other: str, output: str | None, *, format_: str, verbose: bool) -> None:
    """Show what changed, after writing its page to the folder named, or beside the second run."""
    from oomdoctor.api.run import compare_runs, report_on

    report = compare_runs(report_on(one), report_on(other))
    folder = Path(output or other)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}): give another --output."
        ) from error
    page = folder / "comparison.html"
    _show_beside(report, page, format_="html")
    show(report, format_=format_, output=None, verbose=verbose)
    tell(f"The page is {page}.")


def _record(
    program: tuple[str, ...],
    *,
    ram: str | None,
    vram: str | None,
    output: str | None,
    rate: float,
    trace_step: int | None,
) -> tuple[Path, int]:
    from oomdoctor.api.run import record
    from oomdoctor.profile.spawn import Plan
    from oomdoctor.units import parse_size

    _check_program(program)
    folder = Path(output) if output else Path(_folder_name(program))
    if (folder / "outside.jsonl").exists():
        raise UsageError(f"{folder} holds a recording already: give another --output.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({error.strerror}): give another --output."
        ) from error
    plan = Plan(
        arguments=program,
        folder=folder,
        rate_hz=rate,
        ram_bytes=None if ram is None else parse_size(ram),
        vram_bytes=None if vram is None else parse_size(vram),
        trace_step=trace_step,
    )
    return folder, record(plan)


def _check_program(program: tuple[str, ...]) -> None:
    if not program:
        raise UsageError("Give a script to run: oomdoctor profile train.py ARGS...")
    if program[0] in ("-m", "-c"):
        if len(program) < 2:
            what = "a module" if program[0] == "-m" else "code"
            raise UsageError(f"{program[0]} needs {what} after it.")
    elif program[0] != "-" and not os.path.exists(program[0]):
        raise UsageError(f"{program[0]} does not exist: give the path of a Python script.")


def _folder_name(program: tuple[str, ...]) -> str:
    name = program[1] if program[0] == "-m" else Path(program[0]).stem
    plain = "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in name)
    stem = "code" if program[0] in ("-c", "-") else plain.strip("-")[:60] or "run"
    return f"oomdoctor-{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_timeline(timeline: str | None) -> None:
    if timeline is not None and not timeline.endswith((".csv", ".parquet")):
        raise UsageError(f"{timeline} must end in .csv or .parquet.")


def _reported(folder: Path, timeline: str | None) -> Report:
    """Return the report on a recording, after writing it beside the recording."""
    from oomdoctor.api.run import report_on

    report = report_on(folder)
    for name, format_ in REPORTS.items():
        _show_beside(report, folder / name, format_=format_)
    if timeline is not None:
        _write_timeline(report, timeline)
    return report


def _show_beside(report: Report, path: Path, *, format_: str) -> None:
    """Write a report beside a recording, which may be a stranger's: links are not followed."""
    from oomdoctor.profile.store import replacing

    try:
        with replacing(path) as new:
            show(report, format_=format_, output=new, verbose=True)
    except (OSError, InputError) as error:
        why = getattr(error, "strerror", None) or getattr(error.__cause__, "strerror", None)
        raise InputError(f"{path} cannot be written ({why or error}).") from error


def _write_timeline(report: Report, timeline: str) -> None:
    assert report.facts.profile is not None
    frame = report.facts.profile.recording.to_frame()
    if timeline.endswith(".csv"):
        write(frame.to_csv(index=False), timeline, format_="exact")
        return
    try:
        frame.to_parquet(timeline, index=False)
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: pip install pyarrow, or write .csv.") from error


def _tell(report: Report, folder: Path, *, format_: str, verbose: bool) -> None:
    """Show the report on standard error: standard output is the program's."""
    from oomdoctor.report import json, markdown, text
    from oomdoctor.report.views import view_of

    view = view_of(report, verbose=verbose)
    colour = format_ == "text" and wants_colour(sys.stderr)
    drawn = {
        "json": lambda: json.render(report),
        "markdown": lambda: markdown.render(view),
        "text": lambda: text.render(view, colour=colour),
    }[format_]()
    tell_lines(drawn, format_=format_, colour=colour)
    tell(f"The recording is in {folder}; its page is {folder / 'report.html'}.")
