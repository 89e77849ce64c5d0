"""What this process holds now: resident memory, and TensorFlow's allocator where it tells.

TensorFlow is only asked once the program has loaded it and has run a step, and never made to
start a device. A CPU keeps no figures unless its allocator is the one a GPU has (`--vram`).
"""

from __future__ import annotations

import os
import sys
from typing import Any


class Meter:
    """Reads this process; microseconds a call."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # no /proc, as on macOS
            self._file = -1
        self._device: str | None = None
        self._ask: Any = None
        self._is_silent = False

    def rss_bytes(self) -> int | None:
        """Return the resident memory of this process; None where the system has no /proc."""
        if self._file < 0:
            return None
        return int(os.pread(self._file, 200, 0).split()[1]) * self._page_bytes

    def allocator(self) -> tuple[int | None, int | None]:
        """Return what TensorFlow's allocator holds now, and the most it ever held."""
        if self._is_silent:
            return None, None
        try:
            if self._ask is None:
                self._find()
            figures = self._ask(self._device)
            return int(figures["current"]), int(figures["peak"])
        except Exception:  # no TensorFlow, a CPU without figures: nothing to wait for
            self._is_silent = True
            return None, None

    def _find(self) -> None:
        config = sys.modules["tensorflow"].config
        self._device = "GPU:0" if config.list_physical_devices("GPU") else "CPU:0"
        self._ask = config.experimental.get_memory_info
