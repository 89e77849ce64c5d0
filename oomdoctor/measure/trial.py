"""A step run a few times: what it held, or that there was no room. Runs inside the worker."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oomdoctor.measure.ballast import Ballast
from oomdoctor.measure.crowd import crowded
from oomdoctor.measure.events import record
from oomdoctor.measure.foresee import Recorded
from oomdoctor.measure.layout import Held
from oomdoctor.measure.names import names_of, places, variable_places
from oomdoctor.measure.replay import Event
from oomdoctor.measure.spec import AllocationTrace, Trial
from oomdoctor.measure.step import Step, device_name
from oomdoctor.measure.trace import explain
from oomdoctor.units import MIB

TRACED_STEPS = 3
"""The order of ops depends on timing even with one thread, and with it where holes are left."""

PATIENCE_SECONDS = 15
STEADY_PART = 0.0125
"""Peaks that differ by no more than this part are alike: another step would tell nothing new. It is
what a quarter of the usual margin covers."""

CROWDED_STEPS = (1, 2)
"""Of every four steps, those that are run on one core where a crowd matters. The second of a
process is among them: it is often the highest."""


def run_trial(
    step: Step,
    batch_size: int,
    steps: int,
    trace: bool,
    folder: str | None,
    *,
    limit_bytes: int | None = None,
    ballast: Ballast | None = None,
    batches_ahead: int = 0,
    first: Iterable[int] = (),
    more_steps: int = 0,
    last: int = 0,
    validation: Step | None = None,
    anew: bool = False,
    in_crowds: bool = False,
    recorder: Recorder | None = None,
) -> Trial:
    """Run a step a few times and return what it held.

    Args:
        step: The traced step.
        batch_size: Samples on one device.
        steps: How often to run it; the first is told apart from the rest.
        trace: Whether a few more steps are run under the profiler.
        folder: Where the profiler may write.
        limit_bytes: What the step may take, where there is ballast.
        ballast: Holds back what the pool has more than that.
        batches_ahead: Further batches that lie in memory, as a pipeline prepares them.
        first: Sizes of small steps that come before: variables that an update replaces come to lie
            in the midst of what a larger batch will need.
        more_steps: Further steps that are run where peaks differ from step to step, or may.
        last: Samples of a last batch, where an epoch ends with fewer: it is run after the others,
            and then a whole one again, as in the next epoch.
        validation: A step that is run at the end of an epoch too.
        anew: Whether each step is given a batch of its own, as `fit` does. Then memory never
            comes to rest: a dense network failed in its second step that passed with one batch.
        in_crowds: Whether some of the steps are run as on a busy machine (`crowd.py`).
        recorder: Is given the steps' allocations.
    """
    import tensorflow as tf

    ballast = ballast or Ballast()
    began = time.perf_counter()
    try:
        gc.collect()
        function = step.function(batch_size)
        if not ballast.hold(limit_bytes):
            raise _NoRoom("the model alone does not fit")
        _run_small(step, first)
        data = step.data(batch_size)
        ahead = [step.data(batch_size) for _ in range(batches_ahead)]
        size = batch_size if anew else None
        run = _Run(step, function, data, ballast, folder, device_name(), size, in_crowds)
        del data
        found = run.all(max(1 if recorder else 2, steps), more_steps, trace, recorder)
        run.end_of_epoch(batch_size, last, validation)
        del ahead
    except (tf.errors.ResourceExhaustedError, _NoRoom) as error:
        return Trial(
            batch_size,
            "oom",
            step.kind,
            seconds=time.perf_counter() - began,
            device=device_name(),
            message=oom_line(error),
            notes=tuple(step.notes),
        )
    finally:
        ballast.let_go()
    return Trial(
        batch_size,
        "fits",
        step.kind,
        seconds=time.perf_counter() - began,
        device=device_name(),
        notes=tuple(step.notes),
        **found,
    )


def _run_small(step: Step, sizes: Iterable[int]) -> None:
    with contextlib.suppress(Exception):  # a size that the model may not take
        for size in sizes:
            _finish(step.function(size)(step.data(size)))


class _NoRoom(Exception):
    """A step waited for memory, which TensorFlow would have called an error ten seconds later."""


@dataclass
class _Run:
    """One trial under way."""

    step: Step
    function: Any
    data: Any
    ballast: Ballast
    folder: str | None
    device: str
    size: int | None = None
    """Samples in the batch that is made for each step; None where one batch serves all."""
    in_crowds: bool = False
    seconds: list[float] = field(default_factory=list)
    """How long each step took, without making its batch: a pipeline does that meanwhile."""

    def all(
        self, steps: int, more_steps: int, trace: bool, recorder: Recorder | None
    ) -> dict[str, Any]:
        """Run the steps and return the figures of the trial."""
        if recorder is not None:
            recorder.begin(self.step, self.data)
        peaks: list[int] = []
        told = 1 if recorder is None else 0  # the first step that is recorded counts like any other
        for number in range(steps + more_steps):
            is_known = not self.in_crowds and _is_steady(peaks[told:])
            if number >= steps and (is_known or sum(self.seconds) > PATIENCE_SECONDS):
                break
            is_crowded = self.in_crowds and number % 4 in CROWDED_STEPS
            crowd = crowded() if is_crowded else contextlib.nullcontext()
            with self._watched(), crowd:
                peaks.append(self._one(recorder))
        found: dict[str, Any] = {
            "batch_bytes": batch_bytes(self.data),
            "current_bytes": self._info("current"),
            "peak_bytes": max(peaks[1:] or peaks),
            "first_step_peak_bytes": peaks[0],
            "step_peaks": tuple(peaks[1:]),
            "step_seconds": None if recorder else min(self.seconds[1:]),
        }
        if trace:
            traces = []
            for _ in range(TRACED_STEPS):
                with self._watched():
                    traces.append(self._traced())
            found["trace"] = highest(traces, peaks)
        return found

    def end_of_epoch(self, batch_size: int, last: int, validation: Step | None) -> None:
        """Run the last batch, validation, and the first batch of the next epoch."""
        steps = [(self.step, last)] if last else []
        if validation is not None:
            steps.append((validation, batch_size))
        if steps:
            steps.append((self.step, batch_size))
        for step, size in steps:
            self.step, self.size, self.function = step, size, step.function(size)
            with self._watched():
                self._one(None)

    def _one(self, recorder: Recorder | None) -> int:
        """Run one step and return its peak."""
        import tensorflow as tf

        tf.config.experimental.reset_memory_stats(self.device)
        if recorder is None:
            self._call()
        else:
            recorder.add(record(self._call, self.folder))
        return self._info("peak")

    def _call(self) -> None:
        if self.size is not None:
            self.data = None  # before the next one is made
            self.data = self.step.data(self.size)
        started = time.perf_counter()
        _finish(self.function(self.data))
        self.seconds.append(time.perf_counter() - started)

    def _traced(self) -> AllocationTrace:
        import tensorflow as tf

        step, function, data = self.step, self.function, self.data
        tf.config.experimental.reset_memory_stats(self.device)
        start_bytes = self._info("current")
        held = [*variable_places(step.model), *places(data)] if step.regions else []
        events = record(lambda: _finish(function(data)), self.folder)
        peak_bytes = self._info("peak")
        names = names_of(step.model, function, data, step.scopes, step.optimizers)
        return explain(
            events,
            names,
            start_bytes=start_bytes,
            allocator_peak_bytes=peak_bytes,
            regions=step.regions,
            held=held,
        )

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        with self.ballast.watched():
            yield
        if self.ballast.gave_way:
            raise _NoRoom("An op waited for memory, and there was none.")

    def _info(self, name: str) -> int:
        import tensorflow as tf

        in_use = tf.config.experimental.get_memory_info(self.device)[name]
        return int(in_use) - self.ballast.held_bytes


class Recorder:
    """Keeps the allocations of steps, for `foresee`."""

    def __init__(self) -> None:
        self._batch: tuple[Held, ...] = ()
        self._held: tuple[Held, ...] = ()
        self._steps: list[tuple[Event, ...]] = []

    def begin(self, step: Step, data: Any) -> None:
        """Note what lies in memory before the first step."""
        self._held = tuple(variable_places(step.model))
        self._batch = tuple(places(data))

    def add(self, events: list[Event]) -> None:
        """Keep one step."""
        self._steps.append(tuple(events))

    def recorded(
        self, batch_size: int, peaks: Sequence[int], elsewhere_bytes: int | None
    ) -> Recorded:
        """Return all that was kept, with the peaks of these steps and of some in other orders."""
        return Recorded(
            batch_size,
            self._batch,
            self._held,
            tuple(self._steps),
            min(peaks),
            elsewhere_bytes,
        )


def batch_bytes(data: Any) -> int:
    """Return what the tensors of a batch take."""
    import tensorflow as tf

    tensors = tf.nest.flatten(data)
    return sum(tensor.dtype.size * int(tf.size(tensor)) for tensor in tensors)


def highest(traces: Sequence[AllocationTrace], peaks: Sequence[int]) -> AllocationTrace:
    """Return the trace with the highest peak, with what all steps needed.

    Args:
        traces: The steps that were traced.
        peaks: The peaks of those that were not. The second of a process is often higher than
            all that follow; it is taken to fragment memory as much as the traced ones.
    """
    top = max(traces, key=lambda trace: trace.peak_bytes)
    known = [(trace.needed_bytes, trace.peak_bytes) for trace in traces if trace.needed_bytes]
    if not known:
        return top
    fragmented = max(needed / peak for needed, peak in known)
    at_most = -(-int(max(peaks, default=0) * fragmented) // MIB) * MIB
    needed = [needed for needed, _ in known]
    return replace(top, needed_bytes=max(*needed, at_most), needed_low_bytes=min(needed))


def worse(one: Trial, other: Trial) -> Trial:
    """Return two trials of one size as one: the one that failed, or the higher peak of both."""
    if other.outcome != "fits":
        return other
    assert one.peak_bytes is not None
    assert other.peak_bytes is not None
    seconds = [t.step_seconds for t in (one, other) if t.step_seconds is not None]
    return replace(
        one,
        peak_bytes=max(one.peak_bytes, other.peak_bytes),
        step_peaks=(*one.step_peaks, *other.step_peaks),
        step_seconds=min(seconds, default=None),
        seconds=(one.seconds or 0) + (other.seconds or 0),
    )


def oom_line(error: Exception) -> str:
    """Return the sentence of an out-of-memory error that says what was asked for."""
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if "OOM when" in line), lines[0])[:500]


def _is_steady(peaks: Sequence[int]) -> bool:
    return not peaks or max(peaks) - min(peaks) <= STEADY_PART * max(peaks)


def _finish(outputs: Any) -> None:
    """Wait until a step has run, and let go of what it returned."""
    import tensorflow as tf

    for output in tf.nest.flatten(outputs):
        if hasattr(output, "numpy") and output.shape.rank == 0:
            output.numpy()
