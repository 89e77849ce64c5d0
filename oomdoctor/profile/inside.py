"""The recording inside the program: phases, steps, what may be kept, and its last words.

Started by `hook/sitecustomize.py` before the program. Nothing here raises into the program, and
a process that the program forks records nothing: the file belongs to one process.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import time
import traceback
from typing import Any

import msgspec

from oomdoctor.profile import records
from oomdoctor.profile.importing import ImportWatch
from oomdoctor.profile.meter import Meter
from oomdoctor.profile.spawn import SETTINGS, Settings
from oomdoctor.profile.store import INSIDE, Appender

LEAST_SECONDS_BETWEEN_STEPS = 0.02
"""Steps that follow faster are counted and not all written."""
ALL_STEPS_UNTIL = 30


class Inside:
    """What the program's side knows and writes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.meter = Meter()
        self.step = 0
        self.epoch = 0
        self.is_paused = False
        """Whether nothing is counted for now; the benchmark compares with and without."""
        self._began = settings.began
        self._lines: Appender | None = Appender(os.path.join(settings.folder, INSIDE))
        self._open: set[str] = set()
        self._last_step_at = 0.0
        self._noted: set[str] = set()
        os.register_at_fork(after_in_child=self._forget)

    def now(self) -> float:
        """Return the seconds since the recording began."""
        return round(max(0.0, time.monotonic() - self._began), 4)

    def write(self, line: records.AnyLine) -> None:
        """Append a line, unless this is a forked process."""
        if self._lines is not None:
            self._lines.write(line)

    def note(self, text: str) -> None:
        """Write a note, once."""
        if text not in self._noted:
            self._noted.add(text)
            self.write(records.Note(text=text[:1000]))

    def begin(self, phase: str, label: str | None = None, number: int | None = None) -> None:
        """Say that a phase begins."""
        self._open.add(phase)
        self.write(records.Begin(t=self.now(), phase=phase, label=label or phase, number=number))

    def finish(self, phase: str) -> None:
        """Say that a phase ends, if it had begun."""
        if phase in self._open:
            self._open.discard(phase)
            self.write(records.Finish(t=self.now(), phase=phase))

    def is_in(self, phase: str) -> bool:
        """Return whether a phase has begun and not ended."""
        return phase in self._open

    def stepped(self, batches: int = 1) -> None:
        """Say that so many batches were trained on."""
        self.step += max(1, batches)
        now = self.now()
        if self.step > ALL_STEPS_UNTIL and now - self._last_step_at < LEAST_SECONDS_BETWEEN_STEPS:
            return
        self._last_step_at = now
        held, peak = self.meter.allocator()
        self.write(
            records.B(
                t=now,
                step=self.step,
                epoch=self.epoch,
                rss=self.meter.rss_bytes(),
                now=held,
                peak=peak,
            )
        )

    def last_words(self) -> None:
        """Write the exception that ended the program, if one did. Runs when Python exits."""
        # Python sets this before any hook prints the traceback, whoever has put one there.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if isinstance(error, BaseException) and not isinstance(error, KeyboardInterrupt):
            self.write(records.Failure(t=self.now(), text=text_of(error)))

    def _forget(self) -> None:
        self._lines = None


def text_of(error: BaseException) -> str:
    """Return an exception and where it came from, the end first cut where it is too long."""
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception:  # an exception whose own text cannot be had
        lines = [type(error).__name__]
    return "".join(lines)[-records.MOST_TEXT // 2 :]


def start() -> None:
    """Start recording, if the environment says so, and leave the environment as it was."""
    found = os.environ.pop(SETTINGS, None)
    if found is None:
        return
    settings = msgspec.json.decode(found, type=Settings)
    if settings.pythonpath is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = settings.pythonpath
    inside = Inside(settings)
    atexit.register(inside.last_words)
    inside.begin("start")
    _watch_imports(inside)


def _watch_imports(inside: Inside) -> None:
    depth = 0

    def begin() -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            inside.finish("start")
            inside.finish("build")
            inside.begin("import")

    def end(module: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            inside.finish("import")
            if inside.step == 0:
                inside.begin("build")

    def tensorflow_loaded(module: Any) -> None:
        end(module)
        from oomdoctor.profile.census import count_now_and_then
        from oomdoctor.profile.devices import limit_gpus

        limit_gpus(module, inside)
        count_now_and_then(inside)

    def patch(name: str, hooks: str = "keras_hooks") -> Any:
        def loaded(module: Any) -> None:
            found = importlib.import_module(f"oomdoctor.profile.{hooks}")
            getattr(found, name)(module, inside)

        return loaded

    ImportWatch(
        begins={"tensorflow": begin, "keras": begin},
        ends={
            "tensorflow": tensorflow_loaded,
            "keras": end,
            "keras.src.callbacks.callback_list": patch("watch_callbacks"),
            "keras.src.trainers.epoch_iterator": patch("watch_data"),
            "keras.src.models.model": patch("watch_saving"),
            "keras.src.optimizers.base_optimizer": patch("watch_optimizers", "own_loops"),
        },
    ).install()
