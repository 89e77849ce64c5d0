"""A line on the terminal for work that takes more than a second."""

from __future__ import annotations

import sys
import time
from typing import Any

PATIENCE_SECONDS = 1.0


class ScanProgress:
    """Shows how many files were seen, once that has taken a while and someone is watching."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bar: Any = None
        self._watched = sys.stderr.isatty()

    def __enter__(self) -> ScanProgress:
        return self

    def __call__(self, files: int) -> None:
        """Tell that so many files were seen."""
        if not self._watched:
            return
        if self._bar is None:
            if time.monotonic() - self._started < PATIENCE_SECONDS:
                return
            self._start()
        self._bar.update(0, completed=files)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.completed:,} files seen (Ctrl-C reports what was seen so far)"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task("scan", total=None)
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
