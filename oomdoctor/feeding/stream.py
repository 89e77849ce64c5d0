"""A source → a `tf.data.Dataset` that holds a window of it at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.feeding.images import why_undecodable
from oomdoctor.feeding.order import windows
from oomdoctor.feeding.source import Source, batches

PREFETCHED = 2
"""Batches that wait for the step. `AUTOTUNE` would let as many wait as RAM holds."""

FED_ROWS = 256
"""Rows that are handed to TensorFlow at once where each is then decoded by itself."""


@dataclass(slots=True)
class Epochs:
    """Which epoch the next iteration is, and where each begins."""

    epoch: int = 0
    skip_rows: int = 0

    def take(self) -> tuple[int, int]:
        """Return both, and count on."""
        self.epoch += 1
        return (self.epoch - 1, self.skip_rows)


@dataclass(slots=True)
class Stream:
    """A dataset and what is behind it."""

    dataset: Any
    epochs: Epochs
    batches: int
    """In a whole epoch, those that are skipped among them."""


def stream(
    source: Source,
    *,
    batch_size: int,
    seed: int | None,
    buffer_bytes: int,
    epoch: int = 0,
    skip_batches: int = 0,
    drop_remainder: bool = False,
    on_bad: str = "error",
) -> Stream:
    """Return a source as batches; see `oomdoctor.stream_dataset`."""
    import tensorflow as tf

    epochs = Epochs(epoch, skip_batches * batch_size)
    feed = _Feed(source, batch_size, seed, max(1, buffer_bytes // source.row_bytes), epochs)
    if source.name_of is not None:
        dataset = _decoded_files(feed, on_bad, drop_remainder)
    elif source.decode is not None:
        rows = tf.data.Dataset.from_generator(
            feed.rows, output_signature=_signature(source, as_rows=True)
        )
        decode = source.decode
        dataset = rows.unbatch().map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(batch_size, drop_remainder=drop_remainder)
    else:
        dataset = tf.data.Dataset.from_generator(
            feed.batches, output_signature=_signature(source, as_rows=source.parse is not None)
        )
        if source.parse is not None:
            dataset = dataset.map(source.parse, num_parallel_calls=1)
        if drop_remainder:
            dataset = dataset.filter(lambda *batch: _rows_of(batch) == batch_size)
            dataset = dataset.map(lambda *batch: _with_size(batch, batch_size))
    total = source.rows // batch_size if drop_remainder else -(-source.rows // batch_size)
    left = max(0, total - skip_batches)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(left))
    return Stream(dataset.prefetch(PREFETCHED), epochs, total)


@dataclass(slots=True)
class _Feed:
    """The generators behind a dataset."""

    source: Source
    batch_size: int
    seed: int | None
    buffer_rows: int
    epochs: Epochs

    def batches(self) -> Iterator[Any]:
        """Yield batches as the dataset gives them."""
        for batch in self._read(self.batch_size, *self.epochs.take()):
            yield batch if self.source.parse is not None else self.source.structured(batch)

    def rows(self) -> Iterator[Any]:
        """Yield rows that are decoded one by one."""
        yield from self._read(FED_ROWS, *self.epochs.take())

    def numbered_rows(self) -> Iterator[Any]:
        """Yield the same with where they are in the epoch, and all of them once more.

        The second time makes up for files that turn out bad, and is not reached without them.
        """
        import numpy as np

        epoch, skipped = self.epochs.take()
        at = skipped
        wanted = self.source.rows - skipped
        for start in (skipped, 0):
            for rows in self._read(FED_ROWS, epoch, start):
                count = len(rows[0])
                places = np.empty((count, 4), np.int64)
                places[:, 0] = np.arange(at, at + count)
                places[:, 1:] = (skipped, wanted, epoch)
                at += count
                yield (*rows, places)

    def name(self, epoch: int, place: int) -> str:
        """Return the name of the row at a place of an epoch."""
        assert self.source.name_of is not None
        seed = self.seed
        window = next(windows(self.source.sizes, buffer_rows=1, seed=seed, epoch=epoch))
        return self.source.name_of(int(window.order()[place % self.source.rows]))

    def _read(self, size: int, epoch: int, skip_rows: int) -> Iterator[tuple[Any, ...]]:
        return batches(
            self.source,
            size,
            buffer_rows=self.buffer_rows,
            seed=self.seed,
            epoch=epoch,
            skip_rows=skip_rows,
        )


def _decoded_files(feed: _Feed, on_bad: str, drop_remainder: bool) -> Any:
    """Return batches of decoded files; a file that cannot be decoded after all is named.

    An error inside a parallel `map` does not say which file it was. So errors are passed over, and
    a gap in the numbers of what arrives tells.
    """
    import numpy as np
    import tensorflow as tf

    source = feed.source
    decode = source.decode
    assert decode is not None
    signature = (*_signature(source, as_rows=True), tf.TensorSpec([None, 4], tf.int64))
    rows = tf.data.Dataset.from_generator(feed.numbered_rows, output_signature=signature)
    decoded = rows.unbatch().map(
        lambda *row: (decode(*row[:-1]), row[-1]),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    decoded = decoded.ignore_errors().enumerate()
    decoded = decoded.take_while(lambda number, row: number < row[1][2])
    decoded = decoded.map(lambda number, row: row)

    def report(epoch: Any, missing: Any) -> Any:
        paths = [feed.name(int(epoch), int(place)) for place in missing]
        bad = [(path, why_undecodable(path)) for path in paths]
        told = ", ".join(f"{path} ({why or 'failed for another reason'})" for path, why in bad)
        if on_bad == "error" or not all(reason for _, reason in bad):
            raise InputError(f'Cannot be decoded: {told}. Remove it, or pass on_bad="skip".')
        known = set(source.bad_files)
        new = tuple(f"{path} ({why})" for path, why in bad if f"{path} ({why})" not in known)
        source.bad_files += new
        return np.int64(len(paths))

    def check(last: Any, batch: Any) -> Any:
        values, places = batch
        numbers = places[:, 0]
        before = tf.where(last < 0, places[0, 1] - 1, last)
        expected = tf.range(before + 1, numbers[-1] + 1)
        missing = tf.sets.difference([expected], [numbers]).values
        count = tf.cond(
            tf.size(missing) > 0,
            lambda: tf.numpy_function(report, [places[0, 3], missing], tf.int64),
            lambda: tf.constant(0, tf.int64),
        )
        with tf.control_dependencies([count]):
            values = tf.nest.map_structure(tf.identity, values)
        return numbers[-1], values

    dataset = decoded.batch(feed.batch_size, drop_remainder=drop_remainder)
    dataset = dataset.scan(tf.constant(-1, tf.int64), check)
    if source.has_labels:
        return dataset
    return dataset.map(lambda *values: values[0])


def _signature(source: Source, *, as_rows: bool) -> Any:
    import tensorflow as tf

    specs = [tf.TensorSpec([None, *c.shape], c.dtype) for c in source.columns]
    return tuple(specs) if as_rows else source.structured(specs)


def _rows_of(batch: Any) -> Any:
    import tensorflow as tf

    return tf.shape(tf.nest.flatten(batch)[0])[0]


def _with_size(batch: Any, batch_size: int) -> Any:
    import tensorflow as tf

    fixed = tf.nest.map_structure(
        lambda tensor: tf.ensure_shape(tensor, [batch_size, *tensor.shape[1:]]), batch
    )
    return fixed if len(fixed) > 1 else fixed[0]
