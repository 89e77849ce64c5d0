"""Data that stays on disk while a model trains on it."""

from __future__ import annotations

import os
import sys
from typing import Any

from oomdoctor._optional import require
from oomdoctor.api.conclude import must_be_positive
from oomdoctor.errors import UsageError
from oomdoctor.units import parse_image_size, parse_size

BUFFER = "64MiB"
CHUNK = "256MiB"


def stream_dataset(
    path: Any,
    *,
    batch_size: int = 32,
    inputs: Any = None,
    labels: Any = "auto",
    image_size: Any = None,
    dtype: str = "float32",
    shuffle: bool = True,
    seed: int = 0,
    shuffle_buffer: str | int = BUFFER,
    epoch: int = 0,
    skip_batches: int = 0,
    drop_remainder: bool = False,
    on_bad: str = "error",
    as_columns: bool = False,
) -> Any:
    """Return a `tf.data.Dataset` that reads from disk and holds a few batches in memory.

    Data is read in blocks. Each epoch visits the blocks in another order and mixes the rows of as
    many as fit in `shuffle_buffer`; images are shuffled as a whole, because only their paths are
    held. Images are decoded and resized in parallel. The same seed gives the same order, so that
    training goes on in the middle of an epoch with `epoch` and `skip_batches`, without reading
    what is skipped.

    Example:
        >>> import oomdoctor
        >>> x = np.zeros((100, 8, 8, 3), "float32")
        >>> np.save("x_train.npy", x)
        >>> np.save("y_train.npy", np.zeros(100, "int32"))
        >>> dataset = oomdoctor.stream_dataset("x_train.npy", batch_size=32)
        >>> len(dataset)
        4
        >>> history = model.fit(dataset, verbose=0)

    Args:
        path: A folder of images (its subfolders are the classes), a `.npy`, `.npz`, HDF5,
            TFRecord, Parquet or CSV file, a folder that `convert` or `store_features` wrote, or an
            array that is in memory or memory-mapped.
        batch_size: Samples of a batch.
        inputs: Which array, feature or list of columns to feed; found by name if None.
        labels: Which are the labels: a name, a `.npy` file or an array. By default class folders,
            `y_train.npy` beside `x_train.npy`, or what is called `y`, `label` or `target`. None
            feeds no labels.
        image_size: Height and width, such as `(224, 224)` or `"224x224x1"`; that of the images
            if None.
        dtype: Of decoded images: `float32`, or `uint8` for a quarter of the memory.
        shuffle: False reads in the order in which the data is stored.
        seed: Fixes the order of every epoch.
        shuffle_buffer: How many bytes of samples are mixed. They are held in RAM.
        epoch: The epoch that the first iteration is; each further one is the next.
        skip_batches: Batches at the start of an epoch that are left out. Train the rest of the
            epoch with it, and the following epochs with a dataset without it.
        drop_remainder: Leave out a last batch that is smaller.
        on_bad: `error` names the images that cannot be decoded; `skip` leaves them out, with a
            warning that counts and names them.
        as_columns: Feed a table as a dict with one `(batch, 1)` tensor for each column.

    Returns:
        The dataset. It has `class_names` for class folders, and `bad_files`.
    """
    must_be_positive(batch_size=batch_size)
    if epoch < 0 or skip_batches < 0 or seed < 0:
        raise UsageError("seed, epoch and skip_batches are whole numbers of at least 0.")
    source = _source(
        path,
        inputs=inputs,
        labels=labels,
        image_size=image_size,
        dtype=dtype,
        on_bad=on_bad,
        as_columns=as_columns,
    )
    from oomdoctor.feeding.stream import stream

    dataset = stream(
        source,
        batch_size=batch_size,
        seed=seed if shuffle else None,
        buffer_bytes=parse_size(shuffle_buffer),
        epoch=epoch,
        skip_batches=skip_batches,
        drop_remainder=drop_remainder,
        on_bad=on_bad,
    ).dataset
    dataset.bad_files = source.bad_files
    if source.class_names is not None:
        dataset.class_names = list(source.class_names)
    return dataset


def fit_in_chunks(
    model: Any,
    path: Any,
    *,
    batch_size: int = 32,
    chunk: str | int = CHUNK,
    epochs: int = 1,
    checkpoint: str | os.PathLike[str] = "chunks.npz",
    inputs: Any = None,
    labels: Any = "auto",
    image_size: Any = None,
    dtype: str = "float32",
    shuffle: bool = True,
    seed: int = 0,
    on_bad: str = "error",
    as_columns: bool = False,
    **options: Any,
) -> Any:
    """Train on data that does not fit in RAM, one chunk at a time.

    A chunk is read and mixed, the model trains on it, a checkpoint is written, and the next chunk
    takes its place. Weights, optimizer state and metrics are carried over: the loss is that of
    `fit` over the same order. Run the same call again after a crash: it continues from the last
    checkpoint. Once all epochs are trained, the call returns their history and trains no more:
    raise `epochs` to go on, or delete the checkpoint to start over.

    Example:
        >>> import oomdoctor
        >>> np.save("x_train.npy", np.zeros((100, 8, 8, 3), "float32"))
        >>> np.save("y_train.npy", np.zeros(100, "int32"))
        >>> history = oomdoctor.fit_in_chunks(
        ...     model, "x_train.npy", chunk="24KiB", epochs=2, verbose=0
        ... )
        >>> len(history.history["loss"])
        2

    Args:
        model: A compiled Keras model.
        path: As for `stream_dataset`.
        batch_size: Samples of an update.
        chunk: Bytes of samples that are read at once, such as `"2GiB"`.
        epochs: Over the whole data.
        checkpoint: A file. It is replaced as a whole: a crash leaves the one before.
        inputs: As for `stream_dataset`.
        labels: As for `stream_dataset`.
        image_size: As for `stream_dataset`.
        dtype: As for `stream_dataset`.
        shuffle: As for `stream_dataset`.
        seed: As for `stream_dataset`.
        on_bad: As for `stream_dataset`.
        as_columns: As for `stream_dataset`.
        **options: Everything else that `fit` takes: `validation_data`, `callbacks`, `verbose`, …

    Returns:
        The `History` of all epochs, those before a crash among them.
    """
    must_be_positive(batch_size=batch_size, epochs=epochs)
    taken = {"x", "y", "initial_epoch", "steps_per_epoch"} & set(options)
    if taken:
        raise UsageError(f"fit_in_chunks sets {', '.join(sorted(taken))} itself: leave it out.")
    source = _source(
        path,
        inputs=inputs,
        labels=labels,
        image_size=image_size,
        dtype=dtype,
        on_bad=on_bad,
        as_columns=as_columns,
    )
    from oomdoctor.feeding.chunks import fit_in_chunks as fit

    return fit(
        model,
        source,
        batch_size=batch_size,
        chunk_bytes=parse_size(chunk),
        epochs=epochs,
        seed=seed if shuffle else None,
        checkpoint=os.fspath(checkpoint),
        on_bad=on_bad,
        **options,
    )


def store_features(
    backbone: Any, dataset: Any, path: str | os.PathLike[str], *, verbose: int = 1
) -> str:
    """Compute what a frozen model makes of a dataset once, and store it on disk.

    Then only the layers after it are trained, on the stored features. They are written in shards
    with checksums, which are verified as they are read. Run the same call again after a crash: it
    goes on after the last shard.

    Example:
        >>> import oomdoctor
        >>> images = tf.data.Dataset.from_tensor_slices((np.zeros((10, 8, 8, 3)), range(10)))
        >>> folder = oomdoctor.store_features(backbone, images.batch(4), "features", verbose=0)
        >>> features = oomdoctor.stream_dataset(folder, batch_size=5)
        >>> len(features)
        2

    Args:
        backbone: A Keras model; it is run as in `predict`.
        dataset: Batches of inputs, or of inputs and labels, in the same order every time it is
            read: an unseeded `shuffle` would mix up a run that is continued.
        path: A folder of its own, which `stream_dataset` reads.
        verbose: 1 shows the number of samples.

    Returns:
        The folder.
    """
    require("tensorflow", extra="tensorflow", purpose="to compute features")
    from oomdoctor.feeding.features import store_features as store

    if not hasattr(dataset, "skip"):
        raise UsageError("Give a batched tf.data.Dataset, such as oomdoctor.stream_dataset(path).")
    show = _Shown(verbose)
    store(backbone, dataset, os.fspath(path), report=show)
    return os.fspath(path)


def convert(
    path: Any,
    folder: str | os.PathLike[str],
    *,
    inputs: Any = None,
    labels: Any = "auto",
    on_bad: str = "error",
    verbose: int = 1,
) -> str:
    """Write a folder of images or an array as TFRecord shards, in constant memory.

    Images are stored as they are, encoded; arrays as their bytes. A compressed `.npz`, whose rows
    cannot be read in place, is unpacked on the way. Run the same call again after a crash: it goes
    on after the last shard.

    Example:
        >>> import oomdoctor
        >>> np.savez_compressed("data.npz", x=np.zeros((100, 8, 8, 3)), y=np.arange(100))
        >>> folder = oomdoctor.convert("data.npz", "shards", verbose=0)
        >>> len(oomdoctor.stream_dataset(folder, batch_size=50))
        2

    Args:
        path: As for `stream_dataset`.
        folder: Where the shards go: a folder of their own, which `stream_dataset` reads.
        inputs: As for `stream_dataset`.
        labels: As for `stream_dataset`.
        on_bad: As for `stream_dataset`.
        verbose: 1 shows the number of samples.

    Returns:
        The folder.
    """
    require("tensorflow", extra="tensorflow", purpose="to write TFRecord shards")
    from oomdoctor.feeding.convert import convert as write
    from oomdoctor.feeding.opening import Options

    given = Options(inputs=inputs, labels=labels, on_bad=on_bad, any_size=True)
    write(path, os.fspath(folder), given, report=_Shown(verbose))
    return os.fspath(folder)


def _source(path: Any, *, image_size: Any, **options: Any) -> Any:
    require("tensorflow", extra="tensorflow", purpose="to feed a dataset")
    from oomdoctor.feeding.opening import Options, open_source

    size = None if image_size is None else parse_image_size(image_size)
    return open_source(path, Options(image_size=size, **options))


class _Shown:
    """Shows progress on a line of standard error, as `fit` shows its own."""

    def __init__(self, verbose: int) -> None:
        self._is_shown = bool(verbose) and sys.stderr.isatty()

    def __call__(self, done: int, total: int | None = None) -> None:
        if self._is_shown:
            of = "" if total is None else f" of {total:,}"
            end = "\n" if done == total else ""
            print(f"\r{done:,}{of} samples", end=end, file=sys.stderr, flush=True)
