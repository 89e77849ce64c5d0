"""Training chunk by chunk, from one checkpoint to the next.

A chunk is the window of a stream: it is read into memory, its rows are mixed and trained on, and it
is let go before the next one is read. `fit` runs over all of them as over one dataset, so loss,
metrics and callbacks are those of training without chunks. After each chunk a checkpoint is
written: everything that the next step depends on. The order is a function of the seed, so a run
that was killed goes on from its last checkpoint as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any, BinaryIO

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.durable import PART, write_durably
from oomdoctor.feeding.source import Source
from oomdoctor.feeding.stream import Stream, stream

_STATE = "state"
_DIGEST = "digest"


def fit_in_chunks(
    model: Any,
    source: Source,
    *,
    batch_size: int,
    chunk_bytes: int,
    epochs: int,
    seed: int | None,
    checkpoint: str,
    on_bad: str = "error",
    **options: Any,
) -> Any:
    """Train as `fit` does; see `oomdoctor.fit_in_chunks`."""
    import keras

    if not getattr(model, "compiled", False):
        raise UsageError("The model is not compiled: call model.compile(...) first.")
    # Whole batches, so that none waits for the next chunk.
    rows = max(1, chunk_bytes // source.row_bytes // batch_size) * batch_size
    settings = {
        "rows": source.rows,
        "batch_size": batch_size,
        "chunk_rows": rows,
        "seed": seed,
        "columns": [[c.name, list(c.shape), c.dtype] for c in source.columns],
    }
    own_callbacks = list(options.pop("callbacks", None) or [])
    progress = _Progress(settings)
    found = _read(checkpoint, settings)
    few = _stream(source, batch_size, batch_size, seed, on_bad).dataset.take(1)
    first = next(iter(few), None)
    _build(model, first)
    if found is not None:
        progress = _restore(model, progress, *found)
    while progress.epoch < epochs and not progress.is_stopped:
        # The rest of an epoch that was begun has fewer batches, so it is a dataset of its own.
        is_rest = progress.batches > 0
        fed = _stream(source, batch_size, rows, seed, on_bad, progress.epoch, progress.batches)
        keeper = _keeper(model, progress, fed, checkpoint, rows // batch_size)
        model.fit(
            fed.dataset,
            initial_epoch=progress.epoch,
            epochs=progress.epoch + 1 if is_rest else epochs,
            callbacks=[*own_callbacks, keeper],  # last, so that it sees what the others logged
            shuffle=False,  # the stream is shuffled, and Keras warns that it cannot
            **options,
        )
    result = keras.callbacks.History()
    result.set_model(model)
    result.history, result.epoch = progress.history, list(range(progress.epoch))
    return result


def _stream(
    source: Source,
    batch_size: int,
    rows: int,
    seed: int | None,
    on_bad: str,
    epoch: int = 0,
    skip_batches: int = 0,
) -> Stream:
    return stream(
        source,
        batch_size=batch_size,
        seed=seed,
        buffer_bytes=rows * source.row_bytes,
        epoch=epoch,
        skip_batches=skip_batches,
        on_bad=on_bad,
    )


class _Progress:
    """How far training has come."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.epoch = 0
        self.batches = 0
        """Of this epoch."""
        self.is_stopped = False
        """Whether a callback, such as `EarlyStopping`, ended training."""
        self.history: dict[str, list[float]] = {}
        self.metrics: list[Any] | None = None
        """What the metrics had added up when the checkpoint was written."""


def _keeper(
    model: Any, progress: _Progress, fed: Stream, checkpoint: str, chunk_batches: int
) -> Any:
    """Return the callback that writes checkpoints."""
    import keras

    class Keeper(keras.callbacks.Callback):  # type: ignore[misc]
        written = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            fed.epochs.epoch = epoch
            self.started = progress.batches
            self.written = progress.batches // chunk_batches
            if progress.metrics is not None:
                # After `fit` has set them back to zero.
                for variable, value in zip(model.metrics_variables, progress.metrics, strict=True):
                    variable.assign(value)
                progress.metrics = None

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            progress.batches = self.started + batch + 1
            chunks = progress.batches // chunk_batches
            # That of the last chunk is written with the epoch's history.
            if chunks > self.written and progress.batches < fed.batches:
                self.written = chunks
                _write(checkpoint, model, progress)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for name, value in (logs or {}).items():
                progress.history.setdefault(name, []).append(float(value))
            progress.is_stopped = bool(model.stop_training)
            progress.epoch, progress.batches = epoch + 1, 0
            _write(checkpoint, model, progress)

    return Keeper()


def _build(model: Any, batch: Any) -> None:
    """Create all variables, so that a checkpoint can be put into them."""
    if batch is None:
        raise InputError("There are no samples to train on.")
    x = batch[0] if isinstance(batch, tuple) else batch
    if not model.built or any(not layer.built for layer in model._flatten_layers()):
        model(x)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    # Metrics create theirs with the first batch they see; evaluating changes nothing else.
    if isinstance(batch, tuple):
        import tensorflow as tf

        few = tf.nest.map_structure(lambda tensor: tensor[:1], batch)
        model.test_on_batch(*few)


def _variables(model: Any) -> list[Any]:
    every = [*model.variables, *model.optimizer.variables]
    return list({id(variable): variable for variable in every}.values())


def _write(path: str, model: Any, progress: _Progress) -> None:
    """Write a checkpoint: a `.npz` of plain arrays, whole or not at all."""
    import numpy as np

    state = {
        "settings": progress.settings,
        "epoch": progress.epoch,
        "batches": progress.batches,
        "is_stopped": progress.is_stopped,
        "history": progress.history,
    }
    metrics = list(model.metrics_variables) if progress.batches else []
    arrays = {f"v{i}": variable.numpy() for i, variable in enumerate(_variables(model))}
    arrays |= {f"m{i}": variable.numpy() for i, variable in enumerate(metrics)}
    # NumPy has no name for bfloat16: its bits are kept.
    plain = {
        name: value.view(f"u{value.itemsize}") if value.dtype.kind == "V" else value
        for name, value in arrays.items()
    }
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)

    def write(file: BinaryIO) -> None:
        np.savez(file, allow_pickle=False, **{_STATE: text, _DIGEST: _digest(text)}, **plain)

    write_durably(path, write)


def _digest(text: Any) -> Any:
    import numpy as np

    return np.array(zlib.crc32(text.tobytes()), np.uint32)


def _read(
    path: str, settings: dict[str, Any]
) -> tuple[dict[str, Any], list[Any], list[Any]] | None:
    """Return the state, variables and metrics of a checkpoint; None if there is none."""
    import zipfile

    import numpy as np

    if os.path.exists(path + PART):
        os.unlink(path + PART)
    if not os.path.exists(path):
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            text = file[_STATE]
            if _digest(text) != file[_DIGEST]:
                raise ValueError("checksum")
            state = json.loads(text.tobytes())
            values = [file[f"v{i}"] for i in range(sum(n.startswith("v") for n in file.files))]
            metrics = [file[f"m{i}"] for i in range(sum(n.startswith("m") for n in file.files))]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        raise InputError(
            f"{path} is no checkpoint of oomdoctor, or is damaged: delete it to train from the "
            "start, or pass another checkpoint=."
        ) from None
    before = state["settings"]
    changed = [name for name in settings if before.get(name) != settings[name]]
    if changed:
        name = changed[0]
        raise UsageError(
            f"{path} was written with {name} {before.get(name)}, and now it is {settings[name]}: "
            "use the same, or delete it to train from the start."
        )
    return state, values, metrics


def _restore(
    model: Any, progress: _Progress, state: dict[str, Any], values: list[Any], metrics: list[Any]
) -> _Progress:
    variables = _variables(model)
    shapes = [tuple(variable.shape) for variable in variables]
    if shapes != [value.shape for value in values]:
        raise UsageError(
            "The checkpoint is that of another model: delete it to train from the start, or pass "
            "another checkpoint=."
        )
    for variable, value in zip(variables, values, strict=True):
        is_bits = value.dtype.kind == "u" and "float" in str(variable.dtype)
        variable.assign(value.view(variable.numpy().dtype) if is_bits else value)
    progress.epoch, progress.batches = int(state["epoch"]), int(state["batches"])
    progress.history, progress.is_stopped = state["history"], bool(state["is_stopped"])
    progress.metrics = metrics or None
    return progress
