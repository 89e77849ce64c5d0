"""The command line. The only place that prints, renders or chooses an exit code.

Commands are loaded one at a time: `--help` reads their summaries from the table below.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from oomdoctor._version import __version__
from oomdoctor.cli.output import ReaderLeft, tell, tell_lines
from oomdoctor.errors import OomDoctorError, UsageError

COMMANDS = {
    "probe": "Show this machine's memory: RAM, limits, GPUs and the processes on them.",
    "check": "Check whether data fits in memory, and scripts for memory mistakes.",
    "estimate": "Predict the peak memory of a training step without running it.",
    "tune": "Find the largest batch size that fits, by training with it.",
    "diagnose": "Find out from its log why a run failed, and what to change.",
    "profile": "Run a script, record its memory, and report what grew and how it ended.",
    "rules": "List the rules, or show the page of one RULE, given by id or name.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"oomdoctor.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    no_args_is_help=True,
)
@click.version_option(__version__, prog_name="oomdoctor")
def oomdoctor() -> None:
    """The out-of-memory doctor for TensorFlow and Keras.

    Predicts whether training fits in memory, explains out-of-memory errors,
    and shows what to change.

    \b
    Exit codes: 0 no findings, 1 findings, 2 the command could not run.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        _check_words(sys.argv[1:] if args is None else args)
        code = oomdoctor.main(args, prog_name="oomdoctor", standalone_mode=False)
    except click.ClickException as error:
        _tell_misuse(error)
        code = 2
    except OomDoctorError as error:
        tell(f"oomdoctor: {error}")
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        tell("oomdoctor: interrupted")
        code = 130
    except (BrokenPipeError, ReaderLeft):
        # Nothing more can be written, not even by the interpreter when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except OSError as error:
        tell(f"oomdoctor: {error.filename or 'a file or folder'}: {error.strerror or error}.")
        code = 2
    except MemoryError:
        tell("oomdoctor: this machine has too little free memory to go on.")
        code = 2
    except Exception as error:
        if os.environ.get("OOMDOCTOR_DEBUG"):
            raise
        kind = type(error).__name__
        tell(
            f"oomdoctor: internal error ({kind}: {error}). Please report it with the output of "
            "the same command under OOMDOCTOR_DEBUG=1."
        )
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _check_words(words: Sequence[str]) -> None:
    """Refuse words that no file can be named by; most of them end up as names of files."""
    for word in words:
        try:
            is_name = b"\0" not in os.fsencode(word)
        except UnicodeEncodeError:
            is_name = False
        if not is_name:
            raise UsageError(f"{word!r:.100} holds a character that no argument can hold.")


def _tell_misuse(error: click.ClickException) -> None:
    """Say what is wrong with the command line, which is quoted there."""
    context = getattr(error, "ctx", None)
    if context is not None:
        tell_lines(context.get_usage())
        tell(f"Try '{context.command_path} -h' for help.")
        tell_lines("")
    # click lists what can be chosen below each other.
    tell(f"Error: {error.format_message()}".replace("\n\t", " "))
