"""One batch size trained with Keras's own `fit`, as the user will train it.

Each epoch has whole batches and a smaller last one. Batches come from host memory through an input
pipeline that prefetches, which puts the next ones into the same memory: on a CPU a small network
that ran with 119 samples outside of `fit` trained with no more than 103 inside.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.model.batches import has_custom_step, make_batch, possible_batches
from oomdoctor.model.fields import specs_of
from oomdoctor.model.messages import first_line, is_out_of_memory, oom_line
from oomdoctor.model.spec import ModelSpec
from oomdoctor.worker.devices import device_name, memory_info
from oomdoctor.worker.memory_limit import MemoryLimit
from oomdoctor.worker.messages import Fit, Trial

LEAST_STEPS = 2
"""Steps that are run even if time is up: the first creates what later ones keep."""


class NoRoom(MemoryError):
    """A step waited for memory, which TensorFlow would have called an error ten seconds later."""


class ModelAlone(NoRoom):
    """What is held without a batch is more than the limit."""


@dataclass(frozen=True)
class Feed:
    """What a model is fed with."""

    fields: Any
    takes_any_size: bool
    """Whether one trace serves every batch size."""


@dataclass
class Trainer:
    """Trains one model, again and again."""

    model: Any
    spec: ModelSpec
    limit: MemoryLimit
    notes: list[str] = field(default_factory=list)
    feed: Feed | None = None
    """Found by the first size that is trained."""

    def fit(self, request: Fit) -> Trial:
        """Train a size and return what that held."""
        began = time.perf_counter()
        watch = _watch(self.limit, request, began)
        message, is_hopeless = None, False
        try:
            gc.collect()
            self.train(request, watch)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            message, is_hopeless = oom_line(error), isinstance(error, ModelAlone)
        self.limit.stop_watching()
        gc.collect()
        return Trial(
            request.batch_size,
            "fits" if message is None else "oom",
            peak_bytes=max(watch.peaks, default=None),
            held_bytes=memory_info("current") - self.limit.reserved_bytes,
            batch_bytes=watch.batch_bytes,
            step_peaks=tuple(watch.peaks),
            seconds=time.perf_counter() - began,
            step_seconds=min(watch.whole[1:] or watch.whole, default=None),
            device=device_name(),
            message=message,
            is_hopeless=is_hopeless,
            notes=tuple(self.notes),
        )

    def train(self, request: Fit, watch: Any = None) -> None:
        """Train with what the model takes; the first time, try what it may take."""
        watch = watch or _watch(self.limit, request, time.perf_counter())
        size = -(-request.batch_size // self.spec.replicas)
        if self.feed is not None:
            self._fit_with(self.feed, request, size, watch)
            return
        errors: list[Exception] = []
        for feed in self._possible_feeds():
            try:
                self._fit_with(feed, request, size, watch)
            except Exception as error:  # the user's code may raise anything
                if is_out_of_memory(error) or isinstance(error, UsageError):
                    raise
                errors.append(error)
                continue
            self.feed = feed
            if not feed.takes_any_size and errors:
                self.notes.append(
                    "The step cannot be traced for any batch size at once "
                    f"({first_line(errors[0])}), so it is traced for each size."
                )
            return
        kind, text = type(errors[0]).__name__, first_line(errors[0])
        raise InputError(f"The model cannot be trained: {kind}: {text}") from errors[0]

    def _possible_feeds(self) -> Iterator[Feed]:
        choices = list(possible_batches(self.model, self.spec, "train"))
        for takes_any_size, fields in itertools.product((True, False), choices):
            yield Feed(fields, takes_any_size)

    def _fit_with(self, feed: Feed, request: Fit, size: int, watch: Any) -> None:
        import tensorflow as tf

        batch = _host_copy(make_batch(self.spec, feed.fields, size))
        dense = tf.nest.flatten(batch, expand_composites=True)
        watch.batch_bytes = sum(_bytes_of(array) for array in dense)
        if not self.limit.set(request.limit_bytes):
            raise ModelAlone("the model alone does not fit")
        if not feed.takes_any_size:
            # At a second size TensorFlow would trace for any, and this step cannot be.
            self.model.train_function = self.model.test_function = None
        # Keras's own test step is the first half of a train step: it takes less.
        validates = has_custom_step(self.model, "evaluate")
        self.model.fit(
            _dataset(batch, feed, size, request),
            epochs=request.epochs,
            verbose=0,
            callbacks=[watch],
            validation_data=_dataset(batch, feed, size, request).take(1) if validates else None,
        )


def _host_copy(batch: Any) -> Any:
    import numpy as np
    import tensorflow as tf

    def copy(value: Any) -> Any:
        if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
            return value
        return value.numpy() if hasattr(value, "numpy") else np.asarray(value)

    return tf.nest.map_structure(copy, batch)


def _bytes_of(array: Any) -> int:
    return int((array.numpy() if hasattr(array, "numpy") else array).nbytes)


def _first(batch: Any, size: int) -> Any:
    """Return the first samples of a batch."""
    import tensorflow as tf

    def cut(array: Any) -> Any:
        if isinstance(array, tf.SparseTensor):
            start = [0] * array.shape.rank
            return tf.sparse.slice(array, start, [size, *array.shape[1:]])
        return array[:size]

    return tf.nest.map_structure(cut, batch)


def _dataset(batch: Any, feed: Feed, batch_size: int, request: Fit) -> Any:
    """Return an epoch of batches, prefetched as TensorFlow's guides recommend."""
    import tensorflow as tf

    last = request.last or batch_size // 3
    sizes = [batch_size] * request.steps + ([last] if feed.takes_any_size and last else [])

    def batches() -> Iterator[Any]:
        for size in sizes:
            yield _first(batch, size)

    signature = specs_of(feed.fields, None if feed.takes_any_size else batch_size)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.prefetch(tf.data.AUTOTUNE)


def _watch(limit: MemoryLimit, request: Fit, began: float) -> Any:
    """Return a callback that keeps the peak of each step, and stops when there is no room."""
    import keras
    import tensorflow as tf

    class Watch(keras.callbacks.Callback):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.peaks: list[int] = []
            self.seconds: list[float] = []
            self.whole: list[float] = []
            """Seconds of steps that had a whole batch: the last one of an epoch is faster."""
            self.batch_bytes: int | None = None
            self.started = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            order_ops_again(epoch if request.reorder else 0)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            tf.config.experimental.reset_memory_stats(device_name())
            # Only during a step: when an epoch begins, `tf.data` sleeps for half a second.
            limit.watch()
            self.started = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            limit.stop_watching()
            self.seconds.append(time.perf_counter() - self.started)
            if batch < request.steps:
                self.whole.append(self.seconds[-1])
            self.peaks.append(memory_info("peak") - limit.reserved_bytes)
            if limit.was_exceeded:
                raise NoRoom("An op waited for memory, and there was none.")
            # A GPU, and a pool without spare, can hand out more than this trial's limit.
            if request.limit_bytes is not None and self.peaks[-1] > request.limit_bytes:
                raise NoRoom("The step took more than the limit.")
            if len(self.peaks) >= LEAST_STEPS and self.is_late():
                self.model.stop_training = True

        def is_late(self) -> bool:
            now = time.perf_counter()
            return (request.seconds is not None and now > began + request.seconds) or (
                request.training_seconds is not None
                and sum(self.seconds[1:]) > request.training_seconds
            )

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            limit.stop_watching()

    return Watch()


def order_ops_again(number: int) -> None:
    """Let TensorFlow order the ops of a step as another process would.

    When it prepares a graph it orders ops that are ready together by chance, and keeps to that
    for as long as the process lives: a small network trained 111 samples in 5 of 10 processes. A
    prepared graph belongs to the settings of its time, so under settings that differ in something
    without effect it is prepared again. No training step has as few nodes as this option names.

    Args:
        number: The same number is the same order again.
    """
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"min_graph_nodes": 4 + number})
