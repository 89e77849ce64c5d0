"""Keeps Python's garbage collector out of the way of large graphs.

A graph is tens of thousands of small objects that all stay alive. The collector would walk
through them, and through TensorFlow's own, again and again: half of the time and more.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, and leave it as it was."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
