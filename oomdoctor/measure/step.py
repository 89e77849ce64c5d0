"""One traced step of a model. Runs inside the worker.

The step is traced once with a free batch dimension, which serves every batch size. Where that
fails (code that reads the batch size while tracing) it is traced for each size anew.

Compared with `fit`: the batch is alive for the whole step; no `tf.data` pipeline runs, whose
buffers lie in host memory.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from oomdoctor.allocator import Region
from oomdoctor.errors import InputError
from oomdoctor.measure import batch as batches
from oomdoctor.measure.build import load_callable
from oomdoctor.measure.names import scopes_noted
from oomdoctor.measure.slots import build_slots
from oomdoctor.measure.spec import ModelSpec

_ANY = 2
"""A batch size to try a trace with."""
_LOOPS = ("While", "StatelessWhile")
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

    def has_loop(self, batch_size: int) -> bool:
        """Return whether the step has a loop, as a recurrent layer is.

        TensorFlow works on several of its rounds at once: which of them overlap is a matter of
        timing, even with one thread.
        """
        return any(op.type in _LOOPS for op in self.function(batch_size).graph.get_operations())

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

        if self.model.built:
            self._build_optimizer()
        # A model that only has a train_step cannot be called to build it; the trace builds it.
        with contextlib.suppress(RuntimeError, NotImplementedError):
            size = None if self.free else _ANY
            self.model._symbolic_build(data_batch=batches.specs_of(self.fields, size))
        self._build_optimizer()
        jit = self.model.jit_compile if self.kind != "predict" or self.model.compiled else False
        self._function = tf.function(one_step, jit_compile=bool(jit))
        self._concrete = {}

    def _build_optimizer(self) -> None:
        optimizer = getattr(self.model, "optimizer", None)
        if self.kind == "train" and optimizer is not None and not optimizer.built:
            build_slots(optimizer, self.model.trainable_variables)


def device_name() -> str:
    """Return the device that is measured."""
    import tensorflow as tf

    return "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"


def _is_oom(error: Exception) -> bool:
    import tensorflow as tf

    return isinstance(error, tf.errors.ResourceExhaustedError)


def _first_line(error: Exception) -> str:
    """Return the line of an error that says most; Keras puts where it happened first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("Exception encountered")]
    return (telling or lines or [type(error).__name__])[0][:300]
