"""The memory of a process and all it started, seen from outside.

Resident memory comes from `/proc/PID/statm`, which costs microseconds, so that it can be read a
hundred times a second. Who belongs to the tree is looked up less often where that is slow, as on
a server with thousands of processes. Memory that processes share is counted once for each.
"""

from __future__ import annotations

import os
import time

_LOOK_UP_SHARE = 0.02
"""Of the time, at most this much goes into looking for new processes."""


class ProcessTree:
    """A process and its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pids: tuple[int, ...] = (pid,)
        self._next_look_up = 0.0
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes, as they were looked up last."""
        return self._pids

    def rss_bytes(self) -> int | None:
        """Return the resident memory of all of them; None where the process is gone."""
        self._look_up()
        sizes = [self.rss_of(pid) for pid in self._pids]
        known = [size for size in sizes if size is not None]
        return sum(known) if sum(known) else None

    def uss_bytes(self) -> int | None:
        """Return what would be free without them. Costly: milliseconds per gigabyte."""
        import psutil

        total = 0
        for pid in self._pids:
            try:
                total += int(psutil.Process(pid).memory_full_info().uss)
            except (OSError, AttributeError, psutil.Error):
                continue
        return total or None

    def swap_bytes(self) -> int | None:
        """Return what of them lies in swap; None where the system does not tell."""
        total, is_known = 0, False
        for pid in self._pids:
            try:
                with open(f"/proc/{pid}/status", "rb") as status:
                    lines = status.read(8192).split(b"\n")
            except OSError:
                continue
            for line in lines:
                if line.startswith(b"VmSwap:"):
                    total += int(line.split()[1]) * 1024
                    is_known = True
        return total if is_known else None

    def _look_up(self) -> None:
        now = time.monotonic()
        if now < self._next_look_up:
            return
        import psutil

        try:
            below = psutil.Process(self.pid).children(recursive=True)
        except (OSError, psutil.Error):
            below = []
        self._pids = (self.pid, *sorted(process.pid for process in below))
        took = time.monotonic() - now
        self._next_look_up = now + max(0.05, took / _LOOK_UP_SHARE)

    def rss_of(self, pid: int) -> int | None:
        """Return the resident memory of one process; None where it is gone."""
        try:
            file = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None if os.path.exists("/proc/self/statm") else _rss_elsewhere(pid)
        except OSError:
            return None
        try:
            return int(os.read(file, 200).split()[1]) * self._page_bytes
        except (OSError, IndexError, ValueError):
            return None
        finally:
            os.close(file)


def _rss_elsewhere(pid: int) -> int | None:
    """Where there is no /proc, as on macOS."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, psutil.Error):
        return None
