"""Runs training steps of one model in a worker process.

    with Runner(ModelSpec("model.keras"), limit_bytes=2 * GIB) as runner:
        trial = runner.fit(Fit(batch_size=32))

An out-of-memory error inside the worker is an outcome, and so is its death: the kernel kills a
process that takes all of the machine's memory. A worker serves until a size does not fit. Then, or
after `close()`, the next request starts a new one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from oomdoctor.errors import InputError, OomDoctorError, UsageError
from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.process import Died, Ending, WorkerOwner, WorkerProcess, environment
from oomdoctor.units import GIB, MIB
from oomdoctor.worker.messages import (
    Answer,
    Digested,
    DigestModel,
    Fit,
    Guessed,
    GuessSize,
    Load,
    Outcome,
    OutOfMemory,
    Ran,
    Refused,
    Request,
    Trial,
)

SECONDS_PER_REQUEST = 120
"""Limit for one request if no deadline is given. Starting the worker and loading the model may take
as long again."""

BESIDE_THE_POOL_BYTES = 4 * GIB
"""Memory a worker may take besides TensorFlow's pool if the model is a file, which may be hostile.
Python and TensorFlow take 0.6 GiB of it."""


class Runner(WorkerOwner):
    """A worker process that trains one model."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        limit_bytes: int | None = None,
        spare_bytes: int = 0,
        deadline: float | None = None,
    ) -> None:
        """Set up the worker; the first request starts it.

        Args:
            spec: The model.
            limit_bytes: What the device's allocator may hand out, in whole MiB (rounded down).
                None is TensorFlow's own limit: 64 GiB on a CPU, the card on a GPU.
            spare_bytes: How much larger than the limit a CPU's pool is made, so that a size
                that does not fit is known at once (see `memory_limit.py`). A GPU has no spare.
            deadline: When every request must be over, by `time.monotonic()`.
        """
        if limit_bytes is not None and limit_bytes < MIB:
            raise UsageError(f"A limit of {limit_bytes} bytes is less than the least, 1 MiB.")
        self.spec = spec
        self.limit_bytes = limit_bytes
        self.spare_bytes = 0 if limit_bytes is None else spare_bytes
        self.deadline = deadline
        self._cannot_load: str | None = None

    def fit(self, request: Fit, seconds: float | None = None) -> Trial:
        """Train with one batch size and return its peak memory.

        Args:
            request: The size.
            seconds: After so long it is ended; None is at the deadline.

        Raises:
            InputError: The model cannot be loaded or its step cannot be run.
            UsageError: An argument does not suit the model.
        """
        size = request.batch_size
        if size < 1:
            raise UsageError(f"A batch holds at least one sample, not {size}.")
        began = time.monotonic()
        try:
            answer = self._ask(request, seconds)
        except Died as died:
            outcome: Outcome = "oom" if died.ending is Ending.OUT_OF_MEMORY else "died"
            return Trial(
                size,
                outcome,
                seconds=time.monotonic() - began,
                message=str(died),
                log=died.log,
                was_killed=died.ending is Ending.KILLED,
                timed_out=died.ending is Ending.TIMED_OUT,
            )
        if isinstance(answer, OutOfMemory):
            return Trial(size, "oom", message=answer.message, log=self._log(), is_hopeless=True)
        assert isinstance(answer, Ran)
        trial = replace(answer.trial, batch_size=size)
        if trial.outcome != "fits":
            trial = replace(trial, log=self._log())
            self.close()  # what it leaves in memory would disturb the next one
        return trial

    def guess(self, limit_bytes: int) -> Guessed:
        """Trace the training step and return what the estimate says near a limit."""
        try:
            answer = self._ask(GuessSize(limit_bytes))
        except Died:
            return Guessed()
        return answer if isinstance(answer, Guessed) else Guessed()

    def digest(self) -> str | None:
        """Load the model and return a digest of it and of the user's code behind it.

        None if they cannot be described.
        """
        try:
            answer = self._ask(DigestModel())
        except Died:
            return None
        return answer.digest if isinstance(answer, Digested) else None

    def _ask(self, request: Request, seconds: float | None = None) -> Answer:
        """Send a request to a worker that has loaded the model."""
        with self._closed_on_failure():
            worker = self._started()
            if self._cannot_load is not None:
                return OutOfMemory(self._cannot_load)
            worker.forget_log()
            left = self._seconds()
            return checked(worker.ask(request, left if seconds is None else min(left, seconds)))

    def _started(self) -> WorkerProcess:
        if self._worker is not None and self.is_started:
            return self._worker
        # Not in a thread of its own: the worker ends with the thread that started it.
        self.close()
        pool_bytes = None if self.limit_bytes is None else self.limit_bytes + self.spare_bytes
        self._worker = worker = WorkerProcess(environment(pool_bytes))
        load = Load(
            self.spec,
            limit_bytes=self.limit_bytes,
            spare_bytes=self.spare_bytes,
            ram_bytes=BESIDE_THE_POOL_BYTES if self.spec.is_file else None,
        )
        answer = worker.ask(load, self._seconds())
        self._cannot_load = answer.message if isinstance(answer, OutOfMemory) else None
        if isinstance(answer, Refused):
            self.close()
            checked(answer)
        return worker

    def _seconds(self) -> float:
        if self.deadline is None:
            return SECONDS_PER_REQUEST
        return max(0.0, self.deadline - time.monotonic())

    def _log(self) -> str | None:
        return None if self._worker is None else self._worker.log()

    @contextlib.contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OomDoctorError:
            raise
        except BaseException:
            self.close()  # Ctrl-C too: the worker is in a session of its own and would go on
            raise


def checked(answer: Answer) -> Answer:
    """Return an answer, or raise the error in it."""
    if isinstance(answer, Refused):
        raise (UsageError if answer.is_usage else InputError)(answer.message)
    return answer
