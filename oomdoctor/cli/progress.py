"""A line on the terminal that says what is being done and for how long.

    with Progress("Tracing the model") as progress:
        ...
        progress.update("12,000 files seen")

It appears once the work has taken a second and somebody is watching, and is erased at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator

from oomdoctor.report.escape import printable

PATIENCE_SECONDS = 1.0
TICK_SECONDS = 0.2
ERASE = "\r\x1b[K"


class Progress:
    """Draws the line from a thread of its own, so that time goes on while the work is silent."""

    _shown: Progress | None = None

    def __init__(self, text: str) -> None:
        self._text = text
        self._started = time.monotonic()
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._is_drawn = False
        self._thread: threading.Thread | None = None

    def update(self, text: str) -> None:
        """Say something else from now on."""
        self._text = text

    def __enter__(self) -> Progress:
        if _is_watched():
            Progress._shown = self
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            Progress._shown = None
        with self.room():
            pass

    def _draw(self) -> None:
        wait = PATIENCE_SECONDS
        while not self._over.wait(wait):
            wait = TICK_SECONDS
            minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
            width = shutil.get_terminal_size().columns - 1
            line = f"{minutes}:{seconds:02} {printable(self._text)}"[:width]
            with self._writing:
                self._is_drawn = _write(f"{ERASE}{line}")

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Erase the line while something else is printed; it comes back by itself."""
        with self._writing:
            if self._is_drawn:
                _write(ERASE)
            self._is_drawn = False
            yield


def room() -> contextlib.AbstractContextManager[None]:
    """Make room for something else where a line is shown."""
    return contextlib.nullcontext() if Progress._shown is None else Progress._shown.room()


def _is_watched() -> bool:
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        return False
    return os.environ.get("TERM") != "dumb"


def _write(text: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
        return True
    return False
