"""One traced step of a model, and what running it holds. Runs inside the worker.

The step is traced once with a free batch dimension, which serves every batch size. Where that
fails (code that reads the batch size while tracing) it is traced for each size anew.

Compared with `fit`: the batch is one set of tensors on the device, alive for the whole step; no
`tf.data` pipeline runs, whose buffers lie in host memory.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.measure import batch as batches
from oomdoctor.measure.build import load_callable
from oomdoctor.measure.events import record
from oomdoctor.measure.names import addresses, names_of, scopes_noted
from oomdoctor.measure.pool import Region
from oomdoctor.measure.spec import AllocationTrace, ModelSpec, Trial
from oomdoctor.measure.trace import explain
from oomdoctor.units import MIB

_ANY = 2
"""A batch size to try a trace with."""
TRACED_STEPS = 3
"""The order of ops depends on timing even with one thread, and with it where holes are left."""
_METHODS = {"train": "train_step", "evaluate": "test_step", "predict": "predict_step"}


class Step:
    """A model's train, test or predict step as TensorFlow runs it."""

    def __init__(
        self, model: Any, spec: ModelSpec, kind: str, regions: Sequence[Region] = ()
    ) -> None:
        self.regions = regions
        self.model = model
        self.spec = spec
        self.kind = kind
        self.notes: list[str] = []
        self.scopes: dict[str, str] = {}
        self.optimizers: set[str] = set()
        self.fields: Any = None
        self.free = True
        self._function: Any = None
        self._concrete: dict[int | None, Any] = {}
        self._trace()

    def function(self, batch_size: int) -> Any:
        """Return the traced step for a batch size."""
        key = None if self.free else batch_size
        if key not in self._concrete:
            with scopes_noted(self.model, self.scopes, self.optimizers):
                self._concrete[key] = self._function.get_concrete_function(
                    batches.specs_of(self.fields, key)
                )
        return self._concrete[key]

    def data(self, batch_size: int) -> Any:
        """Return one batch on the device."""
        if self.spec.data is not None:
            return load_callable(self.spec.data)(batch_size)
        batches.check_batch_size(self.fields, batch_size)
        return batches.make(self.fields, batch_size)

    def _trace(self) -> None:
        errors = []
        for free, fields in itertools.product((True, False), list(self._candidates())):
            self.fields, self.free = fields, free
            try:
                self._new_function()
                self.function(_ANY)
            except Exception as error:  # the user's code may raise anything
                if _is_oom(error):
                    raise
                errors.append(error)
                continue
            if not free:
                self.notes.append(
                    "The step cannot be traced for any batch size at once "
                    f"({_first_line(errors[0])}), so each size is traced anew."
                )
            return
        raise InputError(
            f"The model's {_METHODS[self.kind]} cannot be traced: "
            f"{type(errors[0]).__name__}: {_first_line(errors[0])}"
        ) from errors[0]

    def _candidates(self) -> Iterator[Any]:
        import tensorflow as tf

        if self.spec.data is None:
            yield from batches.candidates(self.model, self.spec, self.kind)
            return
        example = load_callable(self.spec.data)(2)
        yield tf.nest.map_structure(
            lambda value: batches.Field(
                tf.TensorSpec([None, *tf.convert_to_tensor(value).shape[1:]], value.dtype)
            ),
            example,
        )

    def _new_function(self) -> None:
        import tensorflow as tf

        method = getattr(self.model, _METHODS[self.kind])

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator,unused-ignore]
        def one_step(data: Any) -> Any:
            return method(data)

        # A model that only has a train_step cannot be called to build it; the trace builds it.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            size = None if self.free else _ANY
            self.model._symbolic_build(data_batch=batches.specs_of(self.fields, size))
        optimizer = getattr(self.model, "optimizer", None)
        if self.kind == "train" and optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        jit = self.model.jit_compile if self.kind != "predict" or self.model.compiled else False
        self._function = tf.function(one_step, jit_compile=bool(jit))
        self._concrete = {}


def run_trial(step: Step, batch_size: int, steps: int, trace: bool, folder: str | None) -> Trial:
    """Run a step a few times and return what it held.

    Args:
        step: The traced step.
        batch_size: Samples on one device.
        steps: How often to run it; the first is told apart from the rest.
        trace: Whether a few more steps are run under the profiler.
        folder: Where the profiler may write.
    """
    import tensorflow as tf

    began = time.perf_counter()
    device = device_name()
    log: dict[str, Any] = {}
    try:
        gc.collect()
        function = step.function(batch_size)
        data = step.data(batch_size)
        peaks, seconds = [], []
        for _ in range(max(2, steps)):
            started = time.perf_counter()
            peaks.append(_peak_of(function, data, device))
            seconds.append(time.perf_counter() - started)
        log["current_bytes"] = tf.config.experimental.get_memory_info(device)["current"]
        if trace:
            traces = [_trace_of(step, function, data, device, folder) for _ in range(TRACED_STEPS)]
            log["trace"] = highest(traces, peaks)
    except tf.errors.ResourceExhaustedError as error:
        return Trial(
            batch_size,
            "oom",
            step.kind,
            seconds=time.perf_counter() - began,
            device=device,
            message=oom_line(error),
            notes=tuple(step.notes),
        )
    return Trial(
        batch_size,
        "fits",
        step.kind,
        peak_bytes=max(peaks[1:]),
        first_step_peak_bytes=peaks[0],
        step_peaks=tuple(peaks[1:]),
        seconds=time.perf_counter() - began,
        step_seconds=min(seconds[1:]),
        device=device,
        notes=tuple(step.notes),
        **log,
    )


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


def device_name() -> str:
    """Return the device that is measured."""
    import tensorflow as tf

    return "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"


def oom_line(error: Exception) -> str:
    """Return the sentence of an out-of-memory error that says what was asked for."""
    lines = str(error).splitlines()
    return next((line.strip() for line in lines if "OOM when" in line), lines[0])[:500]


def _peak_of(function: Any, data: Any, device: str) -> int:
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats(device)
    _finish(function(data))
    return int(tf.config.experimental.get_memory_info(device)["peak"])


def _finish(outputs: Any) -> None:
    """Wait until a step has run, and let go of what it returned."""
    import tensorflow as tf

    for output in tf.nest.flatten(outputs):
        if hasattr(output, "numpy") and output.shape.rank == 0:
            output.numpy()


def _trace_of(
    step: Step, function: Any, data: Any, device: str, folder: str | None
) -> AllocationTrace:
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats(device)
    start_bytes = tf.config.experimental.get_memory_info(device)["current"]
    held = addresses(step.model, data) if step.regions else []
    events = record(lambda: _finish(function(data)), folder)
    peak_bytes = tf.config.experimental.get_memory_info(device)["peak"]
    names = names_of(step.model, function, data, step.scopes, step.optimizers)
    return explain(
        events,
        names,
        start_bytes=start_bytes,
        allocator_peak_bytes=peak_bytes,
        regions=step.regions,
        held=held,
    )


def _is_oom(error: Exception) -> bool:
    import tensorflow as tf

    return isinstance(error, tf.errors.ResourceExhaustedError)


def _first_line(error: Exception) -> str:
    """Return the line of an error that says most; Keras puts where it happened first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("Exception encountered")]
    return (telling or lines or [type(error).__name__])[0][:300]
