"""Owns the worker: starts it, asks it, ends it when it takes too long, starts it again.

    with Runner(ModelSpec("model.keras"), limit_bytes=2 * GIB) as runner:
        trial = runner.run(batch_size=32, trace=True)

An out-of-memory error inside the worker is an outcome, and so is its death (the kernel kills
what takes all of a machine's memory). One worker serves many trials. The allocator's history is
part of the truth: chunks freed by one trial are reused by the next, so peaks of a warm worker can
differ by a few per cent from those of a fresh one; `restart()` gives a fresh one.

An out-of-memory error takes ten seconds: TensorFlow's allocator waits that long for memory to be
returned, and no setting shortens it on a CPU. In a recurrent network every op that is ready waits
in its turn, for minutes; so once the first has failed the worker is given a few seconds to
answer, and is then ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from oomdoctor.errors import InputError, OomDoctorError, UsageError
from oomdoctor.measure.spec import KINDS, ModelSpec, Outcome, Trial
from oomdoctor.units import MIB

LOG_BYTES = 64 * 1024
"""How much of what the worker writes is kept; an allocator's dump can be megabytes."""

SECONDS_AFTER_OOM = 5
"""How long a worker may take to answer after TensorFlow wrote that an op had no memory."""

_FAILURE = re.compile(rb"RESOURCE_EXHAUSTED: (OOM when allocating [^\n]*)\n")


class Runner:
    """A worker process that measures steps of one model."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        limit_bytes: int | None = None,
        threads: int = 1,
        seconds_per_trial: float = 120,
    ) -> None:
        """Describe the worker; it is started by the first trial.

        Args:
            spec: The model.
            limit_bytes: What the device's allocator may hand out, in whole MiB (rounded down).
                None is TensorFlow's own limit: 64 GiB on a CPU, the card on a GPU.
            threads: Ops that may run at once. One makes peaks repeatable; 0 leaves it to
                TensorFlow.
            seconds_per_trial: After so long a trial counts as died. Starting and loading the
                model may take as long again.
        """
        if limit_bytes is not None and limit_bytes < MIB:
            raise UsageError(f"A limit of {limit_bytes} bytes is less than the least, 1 MiB.")
        self.spec = spec
        self.limit_bytes = limit_bytes
        self.threads = threads
        self.seconds_per_trial = seconds_per_trial
        self._worker: _Worker | None = None
        self._cannot_load: str | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None while there is none."""
        return None if self._worker is None else self._worker.process.pid

    def run(
        self, batch_size: int, *, steps: int = 3, trace: bool = False, kind: str = "train"
    ) -> Trial:
        """Run one batch size and return what it held.

        Args:
            batch_size: Samples in a batch, over all replicas.
            steps: How many steps to run, at least two: the first creates what later ones keep.
            trace: Whether to record the allocations of three more steps.
            kind: `train`, `evaluate` or `predict`.

        Raises:
            InputError: The model cannot be loaded or its step cannot be run.
            UsageError: An argument does not suit the model.
        """
        if batch_size < 1:
            raise UsageError(f"A batch holds at least one sample, not {batch_size}.")
        if kind not in KINDS:
            raise UsageError(f"{kind!r} is no kind of step: use one of {', '.join(KINDS)}.")
        request = {"batch_size": batch_size, "steps": steps, "trace": trace, "kind": kind}
        try:
            return self._run(request)
        except OomDoctorError:
            raise
        except BaseException:
            self.close()  # Ctrl-C too: the worker is in a session of its own and would go on
            raise

    def restart(self) -> None:
        """End the worker, so that the next trial starts with an untouched allocator."""
        self.close()

    def close(self) -> None:
        """End the worker and everything it started."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _run(self, request: dict[str, Any]) -> Trial:
        batch_size, kind = request["batch_size"], request["kind"]
        began = time.monotonic()
        try:
            if self._worker is None or not self._worker.is_alive():
                self._start()
            worker = self._worker
            assert worker is not None
            if self._cannot_load is not None:
                return Trial(batch_size, "oom", kind, message=self._cannot_load, log=worker.log())
            worker.forget_log()
            answer = worker.ask(request, self.seconds_per_trial)
        except _Died as died:
            seconds = time.monotonic() - began
            self.close()
            return Trial(
                batch_size, died.outcome, kind, seconds=seconds, message=str(died), log=died.log
            )
        if "oom" in answer:
            return Trial(batch_size, "oom", kind, message=answer["oom"], log=worker.log())
        _raise_if_wrong(answer)
        trial = msgspec.convert(answer["trial"], Trial)
        log = None if trial.outcome == "fits" else worker.log()
        return replace(trial, batch_size=batch_size, log=log)

    def _start(self) -> None:
        self.close()
        self._cannot_load = None
        self._worker = _Worker(environment(self.limit_bytes))
        answer = self._worker.ask(
            {
                "spec": self.spec,
                "limit_bytes": self.limit_bytes,
                "threads": self.threads,
                "folder": self._worker.folder,
            },
            self.seconds_per_trial,
        )
        self._cannot_load = answer.get("oom")
        if "error" in answer:
            self.close()
        _raise_if_wrong(answer)


def _raise_if_wrong(answer: dict[str, Any]) -> None:
    if "error" in answer:
        raise (UsageError if answer["usage"] else InputError)(answer["error"])


def environment(limit_bytes: int | None) -> dict[str, str]:
    """Return the environment that puts TensorFlow's GPU allocator under the CPU."""
    changed = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "TF_CPU_ALLOCATOR_USE_BFC": "1",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "PYTHONUNBUFFERED": "1",
    }
    changed.pop("TF_CPU_BFC_MEM_LIMIT_IN_MB", None)
    if limit_bytes is not None:
        changed["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(limit_bytes // MIB)
    package_home = str(Path(__file__).parents[2])
    paths = [package_home, *filter(None, [os.environ.get("PYTHONPATH")])]
    changed["PYTHONPATH"] = os.pathsep.join(paths)
    return changed


class _Died(Exception):
    """The worker is gone, or was ended because it took too long."""

    def __init__(self, message: str, log: str, outcome: Outcome = "died") -> None:
        super().__init__(message)
        self.log = log
        self.outcome = outcome


class _Worker:
    """One worker process and the pipes to it."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.folder = tempfile.mkdtemp(prefix="oomdoctor-")
        theirs_in, self._requests = os.pipe()
        self._answers, theirs_out = os.pipe()
        self._waiting = b""
        self._lines: deque[bytes] = deque()
        self._log_bytes = 0
        self._failed: tuple[float, str] | None = None
        self._lock = threading.Lock()
        command = [sys.executable, "-m", "oomdoctor.measure.worker"]
        command += [str(theirs_in), str(theirs_out), str(os.getpid()), self.folder]
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
        self._finalizer = weakref.finalize(self, _end, self.process, self.folder)

    def is_alive(self) -> bool:
        """Return whether the process still runs."""
        return self.process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send one request and return the answer, or raise `_Died`."""
        with contextlib.suppress(BrokenPipeError):
            self._write(msgspec.json.encode(request) + b"\n")
        deadline = time.monotonic() + seconds
        while b"\n" not in self._waiting:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._ended(f"no answer within {seconds:g} s", "died")
            if self._failed and time.monotonic() - self._failed[0] > SECONDS_AFTER_OOM:
                raise self._ended(self._failed[1], "oom")
            if select.select([self._answers], [], [], min(left, 0.5))[0]:
                received = os.read(self._answers, 1 << 20)
                if not received:
                    raise _Died(self._why(), self.log())
                self._waiting += received
        line, _, self._waiting = self._waiting.partition(b"\n")
        answer: dict[str, Any] = msgspec.json.decode(line)
        return answer

    def _ended(self, message: str, outcome: Outcome) -> _Died:
        log = self.log()
        _end(self.process, self.folder)
        return _Died(message, log, outcome)

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
        """End the process, and close and remove what belongs to it."""
        self._finalizer()
        self._reader.join(timeout=5)
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                os.close(pipe)

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._requests, view) :]

    def _why(self) -> str:
        code = self.process.wait(timeout=10)
        self._reader.join(timeout=5)
        if code == -signal.SIGKILL:
            return "killed (SIGKILL): the machine probably ran out of memory"
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

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


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    """Kill a worker with all it started, wait for it, and remove its folder."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
