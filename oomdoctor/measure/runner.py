"""Owns the worker: starts it, asks it, ends it when it takes too long, starts it again.

    with Runner(ModelSpec("model.keras"), limit_bytes=2 * GIB) as runner:
        trial = runner.run(batch_size=32, trace=True)

An out-of-memory error inside the worker is an outcome, and so is its death (the kernel kills
what takes all of a machine's memory). One worker serves many trials. The allocator's history is
part of the truth: chunks freed by one trial are reused by the next, so peaks of a warm worker can
differ by a few per cent from those of a fresh one; after `close()` the next trial starts one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any

import msgspec

from oomdoctor.errors import InputError, OomDoctorError, UsageError
from oomdoctor.measure.process import Died, WorkerProcess, environment
from oomdoctor.measure.spec import KINDS, ModelSpec, Trial
from oomdoctor.units import MIB


class Runner:
    """A worker process that measures steps of one model."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        limit_bytes: int | None = None,
        spare_bytes: int = 0,
        threads: int = 1,
        seconds_per_trial: float = 120,
    ) -> None:
        """Describe the worker; it is started by the first trial.

        Args:
            spec: The model.
            limit_bytes: What the device's allocator may hand out, in whole MiB (rounded down).
                None is TensorFlow's own limit: 64 GiB on a CPU, the card on a GPU.
            spare_bytes: How much larger than the limit a CPU's pool is made, so that a size
                that does not fit is known at once (see `ballast.py`). A GPU has no spare.
            threads: Ops that may run at once. One makes peaks repeatable; 0 leaves it to
                TensorFlow.
            seconds_per_trial: After so long a trial counts as died. Starting and loading the
                model may take as long again.
        """
        if limit_bytes is not None and limit_bytes < MIB:
            raise UsageError(f"A limit of {limit_bytes} bytes is less than the least, 1 MiB.")
        self.spec = spec
        self.limit_bytes = limit_bytes
        self.spare_bytes = 0 if limit_bytes is None else spare_bytes
        self.threads = threads
        self.seconds_per_trial = seconds_per_trial
        self._worker: WorkerProcess | None = None
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
        self,
        batch_size: int,
        *,
        steps: int = 3,
        more_steps: int = 0,
        trace: bool = False,
        kind: str = "train",
        limit_bytes: int | None = None,
        batches_ahead: int = 0,
        record: bool = False,
        settled: bool = False,
        thorough: bool = False,
        last: int = 0,
    ) -> Trial:
        """Run one batch size and return what it held.

        Args:
            batch_size: Samples in a batch, over all replicas.
            steps: How many steps to run, at least two unless they are recorded: the first creates
                what later ones keep.
            more_steps: How many further ones to run where peaks differ from step to step.
            trace: Whether to record the allocations of three more steps.
            kind: `train`, `evaluate` or `predict`.
            limit_bytes: Another limit for this trial alone, within `spare_bytes` above the
                usual one.
            batches_ahead: Further batches that lie in memory, as a pipeline prepares them.
            record: Whether to keep the steps' allocations for `foresee`.
            settled: Whether memory shall look as if one sample had been trained on and nothing
                else. Where large variables lie changes with their first update, and so does what
                fits beside them: every process that trains in earnest has had one.
            thorough: Whether it is run in several orders of ops (`redraw.py`).
            last: Samples of a last batch, which is run after the others, and a whole one after it.

        Raises:
            InputError: The model cannot be loaded or its step cannot be run.
            UsageError: An argument does not suit the model.
        """
        if batch_size < 1:
            raise UsageError(f"A batch holds at least one sample, not {batch_size}.")
        if kind not in KINDS:
            raise UsageError(f"{kind!r} is no kind of step: use one of {', '.join(KINDS)}.")
        request = {
            "batch_size": batch_size,
            "steps": steps,
            "more_steps": more_steps,
            "trace": trace,
            "kind": kind,
            "limit_bytes": limit_bytes or self.limit_bytes,
            "batches_ahead": batches_ahead,
            "record": record,
            "settled": settled,
            "thorough": thorough,
            "last": last,
        }
        with self._closed_on_failure():
            return self._run(request)

    def start(self, limit_bytes: int | None = None) -> dict[str, int] | None:
        """Start the worker, trace the step and run one sample, before the first trial needs it.

        Args:
            limit_bytes: What a step shall fill. None asks for nothing.

        Returns:
            The bytes that any batch takes and those of each sample near that limit, as the
            estimate sees it: `fixed_bytes` and `sample_bytes`. None where they are not known.
        """
        return self._asked({"kind": "train", "warm": True, "limit_bytes": limit_bytes}).get("prior")

    def digest(self) -> str | None:
        """Load the model and return a digest of it and of the user's code behind it.

        None where they cannot be described.
        """
        return self._asked({"describe": True}).get("digest")

    def foresee(
        self, *, limit_bytes: int, lowest: int, highest: int, batches_ahead: int = 0
    ) -> int | None:
        """Return the largest size that should fit, as the recorded trials tell.

        None where they tell nothing (too few of them, or a GPU), or not even the lowest fits.

        Args:
            limit_bytes: What the allocator may hand out.
            lowest: The smallest size to consider.
            highest: The largest.
            batches_ahead: Further batches that lie in memory.
        """
        request = {
            "foresee": True,
            "limit_bytes": limit_bytes,
            "lowest": lowest,
            "highest": highest,
            "batches_ahead": batches_ahead,
        }
        return self._asked(request).get("largest")

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask something that is no trial; a worker that dies of it has told nothing."""
        with self._closed_on_failure():
            try:
                self._start()
                if self._cannot_load is not None:
                    return {}
                assert self._worker is not None
                answer = self._worker.ask(request, self.seconds_per_trial)
            except Died:
                self.close()
                return {}
            _raise_if_wrong(answer)
            return answer

    @contextlib.contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        try:
            yield
        except OomDoctorError:
            raise
        except BaseException:
            self.close()  # Ctrl-C too: the worker is in a session of its own and would go on
            raise

    def close(self) -> None:
        """End the worker and everything it started; the next trial starts a fresh one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _run(self, request: dict[str, Any]) -> Trial:
        batch_size, kind = request["batch_size"], request["kind"]
        began = time.monotonic()
        try:
            self._start()
            worker = self._worker
            assert worker is not None
            if self._cannot_load is not None:
                return Trial(batch_size, "oom", kind, message=self._cannot_load, log=worker.log())
            worker.forget_log()
            answer = worker.ask(request, self.seconds_per_trial)
        except Died as died:
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
        """Have a worker that has loaded the model."""
        if self._worker is not None and self._worker.is_alive():
            return
        # Not in a thread of its own: the worker ends with the thread that started it.
        self.close()
        pool_bytes = None if self.limit_bytes is None else self.limit_bytes + self.spare_bytes
        self._worker = WorkerProcess(environment(pool_bytes))
        setup = {
            "spec": self.spec,
            "limit_bytes": self.limit_bytes,
            "spare_bytes": self.spare_bytes,
            "threads": self.threads,
            "folder": self._worker.folder,
        }
        answer = self._worker.ask(setup, self.seconds_per_trial)
        self._cannot_load = answer.get("oom")
        if "error" in answer:
            self.close()
            _raise_if_wrong(answer)


def _raise_if_wrong(answer: dict[str, Any]) -> None:
    if "error" in answer:
        raise (UsageError if answer["usage"] else InputError)(answer["error"])
