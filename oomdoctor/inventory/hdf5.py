"""Read HDF5 files in a process of their own.

The HDF5 library crashes on some damaged files (a segmentation fault, seen when changing bytes at
random), and h5py cannot prevent it. So a second process looks into the files, one after the other;
when it dies or hangs, the file at hand is unreadable and the next one gets a new process. What it
reads and what it leaves alone is told in `hdf5_worker`.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oomdoctor.inventory.address import is_address
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.isolation import clean_environment, python_command

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING = "h5py is needed to read HDF5 files: pip install 'oomdoctor[hdf5]'"
REMOTE = "HDF5 files are not read from servers: copy them to this machine"
CRASHED = "crashes or hangs the HDF5 library"
GIVEN_UP = "not opened: too many files before it hung the HDF5 library"

_TIMEOUT_SECONDS = 30.0
_MOST_HANGS = 4
"""Files that may hang the library before the others are not opened."""
_MEMORY_SECONDS = 600.0
"""How long a file that hung it is held against the others: a notebook may run for days."""
_WORKER = "oomdoctor.inventory.hdf5_worker:serve"


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield each dataset of a file."""
    if is_address(path):
        raise Unreadable(REMOTE)
    if importlib.util.find_spec("h5py") is None:
        raise Unreadable(MISSING)
    with sizing("an HDF5 file"):
        # A file that may not be opened has its own reason, which the library does not tell.
        with open(path, "rb"):
            pass
        answer = _worker.ask(os.path.abspath(path), size_bytes)
        if "reason" in answer:
            raise Unreadable(answer["reason"])
        for fields in answer["parts"]:
            yield Part(**{**fields, "shape": tuple(fields["shape"])})


class _Worker:
    """The second process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._was_killed = False
        self._hangs: deque[float] = deque(maxlen=_MOST_HANGS)
        self._lock = threading.Lock()

    def ask(self, path: str, size_bytes: int) -> dict[str, Any]:
        """Return what the process says about a file."""
        request = json.dumps([path, size_bytes]).encode() + b"\n"
        with self._lock:
            since = time.monotonic() - _MEMORY_SECONDS
            if sum(when > since for when in self._hangs) >= _MOST_HANGS:
                return {"reason": GIVEN_UP}
            # A process that was killed, by whoever, says nothing about the file: when the thread
            # that started it ends, the kernel takes its parent to have ended (`end_with_parent`).
            line = self._exchange(request) or (self._was_killed and self._exchange(request))
            if not line:
                return {"reason": CRASHED}
            answer: dict[str, Any] = json.loads(line)
            return answer

    def _exchange(self, request: bytes) -> bytes | None:
        """Return the answer to a request, or None if the process ended or took too long."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        has_taken_too_long = threading.Event()

        def give_up() -> None:
            has_taken_too_long.set()
            process.kill()

        timer = threading.Timer(_TIMEOUT_SECONDS, give_up)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:
            self._end()  # or the next file would be given this one's answer
            raise
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return line
        with suppress(subprocess.TimeoutExpired):  # its pipe closes a moment before it is gone
            process.wait(timeout=1)
        self._was_killed = process.poll() == -signal.SIGKILL and not has_taken_too_long.is_set()
        if has_taken_too_long.is_set():
            self._hangs.append(time.monotonic())
        self._end()
        return None

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            python_command(_WORKER, str(os.getpid())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Without this each thread of OpenBLAS reserves memory of its own.
            env=clean_environment(OPENBLAS_NUM_THREADS="1"),
        )
        return self._process

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # Leaving the block closes the pipes, in which a request may be stuck, and waits.
        with suppress(BrokenPipeError), process:
            pass


_worker = _Worker()
atexit.register(_worker.close)
