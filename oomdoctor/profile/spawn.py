"""Starts the program unchanged: the same interpreter, terminal, files and arguments.

What is added lies in the environment: a folder at the front of PYTHONPATH whose `sitecustomize`
Python runs before the program (it takes the folder away again), and, for `--vram`, the variables
that put TensorFlow's GPU allocator under the CPU. The program and all it starts die with the
profiler.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.profile.guard import Guarded, start_guarded

SETTINGS = "OOMDOCTOR_PROFILE_SETTINGS"
HOOK_FOLDER = Path(__file__).parent / "hook"


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


def start(plan: Plan, began: float, mask: set[signal.Signals]) -> Guarded:
    """Start the program.

    Args:
        plan: What to run.
        began: The clock when the recording began.
        mask: The signals to block in the program: those that were blocked before ours.

    Raises:
        UsageError: It cannot be started.
    """
    environ = environment(plan, began, os.environ)
    return start_guarded([sys.executable, *plan.arguments], environ, mask)


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
