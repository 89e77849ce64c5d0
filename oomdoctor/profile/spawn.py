"""Starts the program unchanged: the same interpreter, terminal, files and arguments.

What is added lies in the environment: a folder at the front of PYTHONPATH whose `sitecustomize`
Python runs before the program (it takes the folder away again), and, for `--vram`, the variables
that put TensorFlow's GPU allocator under the CPU. The program dies with the profiler.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.errors import UsageError

SETTINGS = "OOMDOCTOR_PROFILE_SETTINGS"
HOOK_FOLDER = Path(__file__).parent / "hook"
_SET_PARENT_DEATH_SIGNAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run, and how to watch it."""

    arguments: tuple[str, ...]
    """What Python gets: `train.py --epochs 3`, `-m package.train` or `-c code`."""
    folder: Path
    rate_hz: float = 10.0
    ram_bytes: int | None = None
    vram_bytes: int | None = None
    trace_step: int | None = None


class Settings(msgspec.Struct, frozen=True):
    """What the program's side is told, as JSON in the environment."""

    folder: str
    began: float
    """The clock that both sides read, when the recording began."""
    pythonpath: str | None
    """As it was, to put it back."""
    vram_bytes: int | None = None
    trace_step: int | None = None


def start(plan: Plan, began: float, mask: set[signal.Signals]) -> subprocess.Popen[bytes]:
    """Start the program.

    Args:
        plan: What to run.
        began: The clock when the recording began.
        mask: The signals to block in the program: those that were blocked before ours.

    Raises:
        UsageError: It cannot be started.
    """
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    parent = os.getpid()

    def in_child() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if library is not None:
            library.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    try:
        return subprocess.Popen(
            [sys.executable, *plan.arguments],
            env=environment(plan, began, os.environ),
            close_fds=False,
            preexec_fn=in_child,  # noqa: PLW1509 - the profiler has one thread
        )
    except OSError as error:
        raise UsageError(f"{sys.executable} cannot be started ({error.strerror}).") from error


def environment(plan: Plan, began: float, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the program's environment."""
    former = environ.get("PYTHONPATH")
    settings = Settings(
        folder=str(plan.folder.resolve()),
        began=began,
        pythonpath=former,
        vram_bytes=plan.vram_bytes,
        trace_step=plan.trace_step,
    )
    changed = {
        **environ,
        SETTINGS: msgspec.json.encode(settings).decode(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOK_FOLDER), former])),
    }
    if plan.vram_bytes is not None or plan.trace_step is not None:
        changed |= settings_for_the_cpu(plan.vram_bytes)
    return changed
