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

_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_optimizers(module: Any, inside: Inside) -> None:
    """Remember the optimizers that are made from now on."""
    owner = module.BaseOptimizer
    original = owner.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _optimizers.add(self)

    owner.__init__ = init


class Counter:
    """Counts the updates of all optimizers."""

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._told = 0

    def look(self, inside: Inside) -> None:
        """Say how many steps were made since the last look, unless `fit` has said so."""
        made = 0
        for optimizer in list(_optimizers):
            if optimizer.built:
                now = int(optimizer.iterations.numpy())
                # Several optimizers, as of two networks that compete, step in turns.
                made = max(made, now - self._seen.get(optimizer, 0))
                self._seen[optimizer] = now
        # A `fit` that ended since the last look has counted its last steps.
        has_fit = inside.step != self._told or inside.is_in("epoch") or inside.is_in("first_step")
        if made and not has_fit:
            inside.finish("build")
            inside.stepped(made)
        self._told = inside.step
