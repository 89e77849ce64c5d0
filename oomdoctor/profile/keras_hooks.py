"""Phases and steps from Keras, without a line changed in the program.

Keras calls every callback through one class, and asks for data through another: a method here and
there is wrapped on these two. The list of callbacks stays what the program gave, so that Keras
runs them as it would have. No frame is added where a step runs, so tracebacks look the same.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oomdoctor.profile import records

if TYPE_CHECKING:
    from oomdoctor.profile.inside import Inside

Hook = Callable[..., None]
_MOST_STAGES = 50
_CALLS = {"fit": "fit", "evaluate": "evaluate", "predict": "predict"}


def watch_callbacks(module: Any, inside: Inside) -> None:
    """Follow training through `CallbackList`."""
    follower = _Follower(inside)
    group = module.CallbackList
    _wrap(group, "on_train_begin", before=follower.train_begin)
    _wrap(group, "on_epoch_begin", before=follower.epoch_begin)
    _wrap(group, "on_train_batch_begin", after=follower.batch_begin)
    _wrap(group, "on_train_batch_end", before=follower.batch_end)
    _wrap(group, "on_epoch_end", after=follower.epoch_end)
    _wrap(group, "on_train_end", after=follower.train_end)
    for name in ("test", "predict"):
        _wrap(group, f"on_{name}_begin", before=functools.partial(follower.other_begin, name))
        _wrap(group, f"on_{name}_end", after=functools.partial(follower.other_end, name))


def watch_data(module: Any, inside: Inside) -> None:
    """Note when `fit` asks for data, and what its pipeline holds."""

    def asked(iterator: Any, *args: Any, **kwargs: Any) -> None:
        if _caller() != "fit":
            return
        inside.finish("build")
        if not inside.is_in("first_step"):
            inside.begin("first_step", "first step")
        data = kwargs.get("x", args[0] if args else None)
        inside.write(
            records.Fit(
                t=inside.now(), batch_size=kwargs.get("batch_size"), pipeline=_holdings(data)
            )
        )

    _wrap(module.EpochIterator, "__init__", before=asked)


def watch_saving(module: Any, inside: Inside) -> None:
    """Note when a model is saved."""
    for name in ("save", "save_weights"):

        def begin(*args: Any, **kwargs: Any) -> None:
            inside.begin("checkpoint")

        def end(*args: Any, **kwargs: Any) -> None:
            inside.finish("checkpoint")

        _wrap(module.Model, name, before=begin, after=end)


class _Follower:
    """Turns Keras's calls into phases and steps."""

    def __init__(self, inside: Inside) -> None:
        self.inside = inside
        self.fits = 0
        self._last_batch = -1
        self._tracing: Any = None

    def train_begin(self, group: Any, *args: Any, **kwargs: Any) -> None:
        self.fits += 1
        self.inside.finish("build")
        epochs = (getattr(group, "params", None) or {}).get("epochs")
        if isinstance(epochs, int) and epochs > 0:
            self.inside.write(records.Fit(t=self.inside.now(), epochs=epochs))
        if self.inside.settings.trace_step is not None and self._tracing is None:
            from oomdoctor.profile.tracing import StepTracing

            self._tracing = StepTracing(self.inside, self.inside.settings.trace_step)
            self._tracing.model_starts(
                getattr(group, "model", None) or getattr(group, "_model", None)
            )

    def epoch_begin(self, group: Any, epoch: int, *args: Any, **kwargs: Any) -> None:
        self.inside.epoch += 1
        self._last_batch = -1
        label = f"epoch {epoch + 1}" if self.fits <= 1 else f"fit {self.fits}, epoch {epoch + 1}"
        self.inside.begin("epoch", label, epoch + 1)

    def batch_begin(self, group: Any, batch: int, *args: Any, **kwargs: Any) -> None:
        if self._tracing is not None:
            self._tracing.step_begins(self.inside.step + 1)

    def batch_end(self, group: Any, batch: int, *args: Any, **kwargs: Any) -> None:
        if self._tracing is not None:
            self._tracing.step_ends(self.inside.step + 1)
        self.inside.stepped(batch - self._last_batch)
        self._last_batch = batch
        self.inside.finish("first_step")

    def epoch_end(self, *args: Any, **kwargs: Any) -> None:
        self.inside.finish("epoch")

    def train_end(self, *args: Any, **kwargs: Any) -> None:
        self.inside.finish("epoch")
        self.inside.finish("first_step")

    def other_begin(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.inside.finish("build")
        if name == "predict":
            self.inside.begin("predict")
        elif self.inside.is_in("epoch"):
            self.inside.begin("validation")
        else:
            self.inside.begin("evaluate")

    def other_end(self, name: str, *args: Any, **kwargs: Any) -> None:
        for phase in ("predict",) if name == "predict" else ("validation", "evaluate"):
            self.inside.finish(phase)


def _wrap(owner: Any, name: str, before: Hook | None = None, after: Hook | None = None) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            _quietly(before, self, *args, **kwargs)
        result = original(self, *args, **kwargs)
        if after is not None:
            _quietly(after, self, *args, **kwargs)
        return result

    setattr(owner, name, method)


def _quietly(hook: Hook, *args: Any, **kwargs: Any) -> None:
    try:
        hook(*args, **kwargs)
    except Exception:  # the program must not see what goes wrong here
        return


def _caller() -> str | None:
    """Return which of Keras's methods asks for data."""
    frame: Any = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return None
        if frame.f_code.co_name in _CALLS and "keras" in frame.f_code.co_filename:
            return str(frame.f_code.co_name)
        frame = frame.f_back
    return None


def _holdings(data: Any) -> list[records.HoldingLine]:
    """Return what a tf.data pipeline holds in RAM; nothing for other data."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or not isinstance(data, tensorflow.data.Dataset):
        return []
    from oomdoctor.footprint.pipeline import bill
    from oomdoctor.inventory.dataset import read_stages

    return [
        records.HoldingLine(
            kind=stage.kind[:100],
            label=stage.label[:200],
            held_bytes=stage.held_bytes,
            is_batched=stage.is_batched,
        )
        for stage in bill(read_stages(data))
        if stage.kind in ("cache", "shuffle", "prefetch", "tensors") or stage.held_bytes
    ][:_MOST_STAGES]
