"""One worker process: its environment, the pipes to it, what it wrote, and its end.

An out-of-memory error takes ten seconds: TensorFlow's allocator waits that long for memory to be
returned, and no setting shortens it on a CPU. In a recurrent network every op that is ready waits
in its turn, for minutes; so once the first has failed the worker is given a few seconds to
answer, and is then ended.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import select
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.isolation import clean_environment, python_command
from oomdoctor.worker.messages import Answer, Request

if TYPE_CHECKING:
    from typing_extensions import Self

LOG_BYTES = 64 * 1024
"""How much of what the worker writes is kept; an allocator's dump can be megabytes."""

ANSWER_BYTES = 64 * 1024 * 1024
"""No answer is longer. The user's code runs in the worker, and could write anything."""

SECONDS_AFTER_OOM = 5
"""How long a worker may take to answer after TensorFlow wrote that an op had no memory."""

_FAILURE = re.compile(rb"RESOURCE_EXHAUSTED: (OOM when allocating [^\n]*)\n")


class Ending(enum.Enum):
    """How a worker ended before it answered."""

    OUT_OF_MEMORY = "an op had no memory"
    KILLED = "killed (SIGKILL): the machine probably ran out of memory"
    TIMED_OUT = "no answer in time"
    ENDED = "it ended"


def environment(limit_bytes: int | None) -> dict[str, str]:
    """Return the environment that puts TensorFlow's GPU allocator under the CPU."""
    changed = clean_environment(
        KERAS_BACKEND="tensorflow",
        TF_FORCE_GPU_ALLOW_GROWTH="true",
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    changed.pop("TF_CPU_BFC_MEM_LIMIT_IN_MB", None)
    return changed | settings_for_the_cpu(limit_bytes)


def environment_without_pool() -> dict[str, str]:
    """Return the environment of a process that runs no step."""
    return clean_environment(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="-1")


class Died(Exception):
    """The worker is gone, or was ended because it took too long."""

    def __init__(self, message: str, log: str, ending: Ending) -> None:
        super().__init__(message)
        self.log = log
        self.ending = ending


class WorkerOwner:
    """Has a worker process, or none yet, and leaves none behind."""

    _worker: WorkerProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_started(self) -> bool:
        """Whether there is a worker; otherwise the next request starts a fresh one."""
        return self._worker is not None and self._worker.is_alive()

    def close(self) -> None:
        """End the worker and everything it started; the next request starts a fresh one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class WorkerProcess:
    """One worker process and the pipes to it."""

    def __init__(self, environ: dict[str, str]) -> None:
        """Start it in an environment."""
        theirs_in, self._requests = os.pipe()
        self._answers, theirs_out = os.pipe()
        self._waiting = b""
        self._lines: deque[bytes] = deque()
        self._log_bytes = 0
        self._failed: tuple[float, str] | None = None
        self._lock = threading.Lock()
        self._decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
        numbers = (str(number) for number in (theirs_in, theirs_out, os.getpid()))
        command = python_command("oomdoctor.worker.serve:main", *numbers)
        try:
            self.process = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs_in, theirs_out),
                start_new_session=True,
            )
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._reader = threading.Thread(target=self._keep_log, daemon=True)
        self._reader.start()
        # A runner that nobody closed must not leave its worker behind either.
        self._finalizer = weakref.finalize(self, _end, self.process)

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return self.process.poll() is None

    def ask(self, request: Request, seconds: float) -> Answer:
        """Send one request and return the answer, or raise `Died`."""
        with contextlib.suppress(BrokenPipeError):
            self._write(msgspec.json.encode(request) + b"\n")
        deadline = time.monotonic() + seconds
        while b"\n" not in self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or len(self._waiting) > ANSWER_BYTES:
                raise self._ended(f"no answer within {seconds:.0f} s", Ending.TIMED_OUT)
            if self._failed and time.monotonic() - self._failed[0] > SECONDS_AFTER_OOM:
                raise self._ended(self._failed[1], Ending.OUT_OF_MEMORY)
            if select.select([self._answers], [], [], min(left, 0.5))[0]:
                received = os.read(self._answers, 1 << 20)
                if not received:
                    raise self._gone()
                self._waiting += received
        line, _, self._waiting = self._waiting.partition(b"\n")
        return self._decoder.decode(line)

    def _ended(self, message: str, ending: Ending) -> Died:
        log = self.log()
        _end(self.process)
        return Died(message, log, ending)

    def log(self) -> str:
        """Return the end of what the process wrote."""
        with self._lock:
            return b"".join(self._lines).decode(errors="replace")

    def forget_log(self) -> None:
        """Drop what was written so far."""
        with self._lock:
            self._lines.clear()
            self._log_bytes = 0
            self._failed = None

    def close(self) -> None:
        """End the process and close its pipes."""
        self._finalizer()
        self._reader.join(timeout=5)
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                os.close(pipe)

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._requests, view) :]

    def _gone(self) -> Died:
        """Return why the process ended by itself."""
        code = self.process.wait(timeout=10)
        self._reader.join(timeout=5)
        if code == -signal.SIGKILL:
            return Died(Ending.KILLED.value, self.log(), Ending.KILLED)
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return Died(how, self.log(), Ending.ENDED)

    def _note_failure(self, chunk: bytes) -> None:
        if self._failed is None:
            before = self._lines[-1][-1000:] if self._lines else b""
            found = _FAILURE.search(before + chunk)
            if found:
                self._failed = (time.monotonic(), found[1].decode(errors="replace"))

    def _keep_log(self) -> None:
        output = self.process.stdout
        assert output is not None
        with output:
            while chunk := os.read(output.fileno(), 1 << 16):
                with self._lock:
                    self._note_failure(chunk)
                    self._lines.append(chunk)
                    self._log_bytes += len(chunk)
                    while self._log_bytes - len(self._lines[0]) > LOG_BYTES:
                        self._log_bytes -= len(self._lines.popleft())


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker with all it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
