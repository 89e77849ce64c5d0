"""Steps of a training loop that the program wrote itself.

`train_on_batch` and `GradientTape` call no callbacks, and a compiled step runs no Python at all.
But every optimizer counts its updates in a variable, which another thread can read. Read ten times
a second, it tells how many steps were made since; while `fit` runs, `fit` tells its own.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomdoctor.profile.inside import Inside

MOST_OPTIMIZERS = 20
_optimizers: list[weakref.ref[Any]] = []


def watch_optimizers(module: Any, inside: Inside) -> None:
    """Remember the optimizers that are made from now on."""
    owner = module.BaseOptimizer
    original = owner.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if len(_optimizers) < MOST_OPTIMIZERS:
            _optimizers.append(weakref.ref(self))

    owner.__init__ = init


class Counter:
    """Counts the updates of all optimizers."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def look(self, inside: Inside) -> None:
        """Say how many steps were made since the last look, unless `fit` says so."""
        made = 0
        for reference in _optimizers:
            optimizer = reference()
            if optimizer is None or not optimizer.built:
                continue
            now = int(optimizer.iterations.numpy())
            # Several optimizers, as of two networks that compete, step in turns.
            made = max(made, now - self._seen.get(id(optimizer), 0))
            self._seen[id(optimizer)] = now
        if made and not (inside.is_in("epoch") or inside.is_in("first_step")):
            inside.finish("build")
            inside.stepped(made)
