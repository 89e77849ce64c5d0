"""Data for `fit`, and the same data in smaller batches."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any, Protocol

from oomdoctor.errors import UsageError

DEFAULT_BATCH = 32
"""Keras's own, if no batch size is given."""

LOOKED_AT = 4
"""Batches of a `PyDataset` that are read to see which dimensions vary."""


class Feed(Protocol):
    """Data for `fit`, in batches."""

    batch_size: int

    def in_parts(self, parts: int) -> dict[str, Any]:
        """Return arguments for `fit` that split each batch into so many parts."""


def feed_of(x: Any, y: Any, batch_size: int | None, *, shuffle: bool) -> Feed:
    """Return data whose batches can be split.

    Args:
        x: Arrays, a batched `tf.data.Dataset`, or a `PyDataset`.
        y: Targets, where `x` is arrays.
        batch_size: For arrays.
        shuffle: Whether a `PyDataset` is read in any order, as `fit` does unless told otherwise.
    """
    import keras
    import tensorflow as tf

    has_batches = isinstance(x, (tf.data.Dataset, keras.utils.PyDataset))
    if has_batches and batch_size is not None:
        raise UsageError("A dataset is batched already: leave out batch_size=.")
    if has_batches and y is not None:
        raise UsageError("A dataset yields its own targets: leave out y=.")
    if isinstance(x, tf.data.Dataset):
        return _Dataset(x)
    if isinstance(x, keras.utils.PyDataset):
        return _PyDataset(x, shuffle)
    if callable(x) or not (isinstance(x, (tuple, list, dict)) or hasattr(x, "shape")):
        raise UsageError(
            "The batches of a generator cannot be split: pass arrays, a tf.data.Dataset or a "
            "PyDataset."
        )
    return _Arrays(x, y, int(batch_size or DEFAULT_BATCH))


class _Arrays:
    def __init__(self, x: Any, y: Any, batch_size: int) -> None:
        self.x, self.y, self.batch_size = x, y, batch_size

    def in_parts(self, parts: int) -> dict[str, Any]:
        return {"x": self.x, "y": self.y, "batch_size": self.batch_size // parts}


class _Dataset:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.batch_size = _size_of(dataset)

    def in_parts(self, parts: int) -> dict[str, Any]:
        dataset = self.dataset
        return {"x": dataset if parts == 1 else dataset.rebatch(self.batch_size // parts)}


class _PyDataset:
    """Once its batches are split, one thread reads them whole."""

    def __init__(self, dataset: Any, shuffle: bool) -> None:
        self.dataset, self.shuffle = dataset, shuffle
        if _count(dataset) == 0:
            raise UsageError("The dataset is empty.")
        self.batch_size = _samples(_standard(dataset[0]))

    def in_parts(self, parts: int) -> dict[str, Any]:
        import tensorflow as tf

        if parts == 1:
            return {"x": self.dataset}
        whole = tf.data.Dataset.from_generator(self._epoch, output_signature=self._signature())
        return {"x": whole.rebatch(self.batch_size // parts).prefetch(1)}

    def _signature(self) -> Any:
        """Return shapes and dtypes; what changes from batch to batch, and their size, is open."""
        import tensorflow as tf

        def spec_of(*arrays: Any) -> Any:
            shapes = zip(*(array.shape[1:] for array in arrays), strict=True)
            shape = [None, *(sizes[0] if len(set(sizes)) == 1 else None for sizes in shapes)]
            return tf.TensorSpec(shape, arrays[0].dtype)

        count = _count(self.dataset)
        looked_at = LOOKED_AT if count is None else min(LOOKED_AT, count)
        batches = [_standard(self.dataset[index]) for index in range(looked_at)]
        return tf.nest.map_structure(spec_of, *batches)

    def _epoch(self) -> Iterator[Any]:
        import tensorflow as tf

        count = _count(self.dataset)
        order: Any = itertools.count() if count is None else list(range(count))
        if self.shuffle and count is not None:
            random.shuffle(order)
        for index in order:
            # Copies: given views of the user's arrays, one training of five on a busy machine saw
            # wrong samples in its second epoch. TensorFlow can compute in an array's own memory.
            yield tf.nest.map_structure(copy.copy, _standard(self.dataset[index]))
        self.dataset.on_epoch_end()


def _count(dataset: Any) -> int | None:
    """Return how many batches an epoch has; None where it goes on for ever."""
    count = dataset.num_batches
    return None if count is None else int(count)


def _standard(batch: Any) -> Any:
    """Return a batch as Keras takes it: a dict, or a tuple of inputs, targets and weights."""
    if isinstance(batch, dict):
        return batch
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def _samples(batch: Any) -> int:
    import tensorflow as tf

    return int(tf.nest.flatten(batch)[0].shape[0])


def _size_of(dataset: Any) -> int:
    import tensorflow as tf

    shape = tf.nest.flatten(dataset.element_spec)[0].shape
    if shape.rank is not None and shape[0] is not None:
        return int(shape[0])
    for batch in dataset.take(1):
        return _samples(batch)
    raise UsageError("The dataset is empty.")
