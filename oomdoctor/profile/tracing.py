"""The breakdown of one chosen step (`--trace-step N`), from the allocator's own diary.

The step is the program's: it runs as it would, with TensorFlow's profiler on. Which layer a name
belongs to is noted while Keras traces its first step.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from oomdoctor.profile import records
from oomdoctor.profile.census import count_creations, steps_traced

if TYPE_CHECKING:
    from oomdoctor.estimate.scopes import Scopes
    from oomdoctor.profile.inside import Inside
    from oomdoctor.trace.events import Recording
    from oomdoctor.trace.held import AllocationTrace
    from oomdoctor.trace.replay import Event

MOST_LAYERS = 500
MOST_CURVE = 400
_CALL = "StatefulPartitionedCall/"


class StepTracing:
    """Waits for one step and writes what held the memory at its peak."""

    def __init__(self, inside: Inside, step: int) -> None:
        self._inside = inside
        self._step = step
        self._model: Any = None
        self._scopes: Scopes | None = None
        self._noting: Any = None
        self._recording: Recording | None = None
        self._start_bytes = 0

    def model_starts(self, model: Any) -> None:
        """Note the scopes of its layers until its first step has been traced."""
        from oomdoctor.estimate.scopes import scopes_noted

        self._model = model
        count_creations()
        self._noting = contextlib.ExitStack()
        self._scopes = self._noting.enter_context(scopes_noted(model))

    def step_begins(self, step: int) -> None:
        """Record, if this is the step."""
        if step < self._step or self._recording is not None or self._step == 0:
            return
        from oomdoctor.trace.events import Recording

        held, _ = self._inside.meter.allocator()
        if held is None:
            self._step = 0
            self._inside.note("The step was not traced: TensorFlow's allocator gives no figures.")
            return
        self._start_bytes = held
        try:
            self._recording = Recording(None)
        except Exception as error:  # another profiler is on, as TensorBoard's may be
            self._step = 0
            self._inside.note(f"The step was not traced: {type(error).__name__}: {error}"[:300])

    def step_ends(self, step: int) -> None:
        """Write the breakdown, if the step was recorded."""
        if self._noting is not None:
            self._noting.close()
            self._noting = None
        recording, self._recording = self._recording, None
        if recording is None:
            return
        self._step = 0
        try:
            self._inside.write(_line(step, self._explain(recording)))
        except Exception as error:  # what the program runs may be unlike any step we know
            self._inside.note(f"The step was not traced: {type(error).__name__}: {error}"[:300])

    def _explain(self, recording: Recording) -> AllocationTrace:
        from oomdoctor.trace.explain import StepNames, explain
        from oomdoctor.trace.op_names import names_of

        events = [_without_call(event) for event in recording.stop()]
        names = StepNames() if self._scopes is None else StepNames(scopes=self._scopes)
        traced = _traced_step()
        if traced is not None:
            names = names_of(self._model, traced, [], names.scopes)
        return explain(
            events, names, start_bytes=self._start_bytes, allocator_peak_bytes=self._start_bytes
        )


def _without_call(event: Event) -> Event:
    """The event with its op named as in the step, not as in the function that calls the step."""
    op = event.op
    while op is not None and op.startswith(_CALL):
        op = op[len(_CALL) :]
    return event if op == event.op else replace(event, op=op)


def _traced_step() -> Any:
    """Return the graph of Keras's step, which only closures hold, as `names_of` wants it."""
    graphs = [graph for known in steps_traced if (graph := known()) is not None]
    if not graphs:
        return None
    largest = max(graphs, key=lambda graph: len(graph.get_operations()))
    return SimpleNamespace(graph=largest, variables=largest.variables)


def _line(step: int, trace: AllocationTrace) -> records.Peak:
    return records.Peak(
        step=step,
        peak_bytes=trace.peak_bytes,
        parts=[(name, size) for name, size in trace.parts.items() if size],
        layers=[(name[:300], size) for name, size in list(trace.layers.items())[:MOST_LAYERS]],
        tensors=[
            records.TensorLine(
                name=tensor.op[:300],
                layer=tensor.layer and tensor.layer[:300],
                part=tensor.part,
                shape=None if tensor.shape is None else list(tensor.shape),
                dtype=tensor.dtype,
                size_bytes=tensor.allocated_bytes,
            )
            for tensor in trace.tensors
        ],
        curve=[(max(0.0, at), size) for at, size in trace.curve[:MOST_CURVE]],
    )
