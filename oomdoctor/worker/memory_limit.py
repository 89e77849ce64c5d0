"""A limit inside a larger pool, and an out-of-memory error that takes a second.

TensorFlow's allocator waits ten seconds for memory before it gives up, and no setting shortens
that. So the pool is made larger than the limit, and a tensor that nobody reads *reserves* the
difference. To a step the pool is then as small as the limit. If all threads sleep in the middle of
a step, an op is waiting for memory: the reserve is released, the op gets its memory, the step
ends with a peak that can be measured, and the size is known not to fit. Pages of the reserve are
never touched, so it takes no RAM.

If threads cannot be watched (no `/proc`) the ten seconds pass and the real error comes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oomdoctor.allocator import CHUNK_BYTES, Region
from oomdoctor.worker.devices import address_of, memory_info

LOOKS_PER_SECOND = 20
STILL_LOOKS = 12
"""So many looks in a row must find every thread asleep: 0.6 s. A thread that could run but gets
no processor counts as awake, so a busy machine does not deceive."""

CREDIBLE_PART = 0.25
"""With less than this part of the limit in use, it is left to TensorFlow to say that memory is
out: threads sleep for other reasons too."""

FREE_PART = 0.5
"""So much of what is free is surely in one piece before the first step: variables are side by side,
at the beginning."""

_TASKS = Path("/proc/self/task")


class MemoryLimit:
    """Reserves a part of the CPU's pool."""

    def __init__(self, regions: Sequence[Region] = ()) -> None:
        """Describe the pool.

        Args:
            regions: All that the allocator has, the large one last; empty where nothing can be
                held back.
        """
        self.pool_bytes = sum(size for _, size in regions) or None
        self._region = regions[-1] if regions else (0, 0)
        self.reserved_bytes = 0
        self.was_exceeded = False
        """Whether a step ever waited for memory."""
        self._reserve: Any = None
        self._limit_bytes: int | None = None
        self._busy = False
        self._watcher: threading.Thread | None = None

    def set(self, limit_bytes: int | None) -> bool:
        """Leave only so much of the pool; return whether that much can be left.

        It cannot if the model itself takes more. Once the limit was exceeded it cannot either: what
        the step left beyond it is in the way, and a fresh process is needed.
        """
        self.stop_watching()
        if self._reserve is not None and limit_bytes == self._limit_bytes:
            return True  # steps may have moved variables, so it could not be set again
        self.release()
        if self.pool_bytes is None or limit_bytes is None:
            return True
        if limit_bytes <= 0 or self.was_exceeded:
            return False
        self._limit_bytes = limit_bytes
        before = memory_info("current")
        if before > limit_bytes:
            return False
        rest = -(-(self.pool_bytes - limit_bytes) // CHUNK_BYTES)
        self._reserve = self._at_the_end(rest, self.pool_bytes - before) if rest > 0 else None
        self.reserved_bytes = memory_info("current") - before
        return rest <= 0 or self._reserve is not None

    def _at_the_end(self, rest: int, free_bytes: int) -> Any:
        """Return a tensor of so many chunks that takes the very end of the pool.

        Then all looks as in a pool of the limit's size, to the byte. None if that is not free.
        """
        start, size = self._region
        end = start + size - rest * CHUNK_BYTES
        # Only what follows the variables is one piece that large.
        found = _empty(int(FREE_PART * free_bytes) // CHUNK_BYTES)
        free_from = None if found is None else address_of(found)
        del found
        if free_from is None or not start <= free_from <= end:
            return None
        fillers, gap = [], (end - free_from) // CHUNK_BYTES
        while gap > 0:
            # The allocator hands out a chunk whole unless as much again would be left.
            fillers.append(_empty(min(gap, (gap + rest) // 2)))
            gap -= min(gap, (gap + rest) // 2)
        reserve = _empty(rest)
        del fillers
        return reserve if reserve is not None and address_of(reserve) == end else None

    def release(self) -> None:
        """Give the whole pool back."""
        self._reserve = None
        self.reserved_bytes = 0

    def watch(self) -> None:
        """From now on, release the reserve as soon as an op waits for memory."""
        self.stop_watching()
        if self._reserve is not None and _TASKS.is_dir():
            self._busy = True
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()

    def stop_watching(self) -> None:
        """Let the threads of the process sleep."""
        self._busy = False
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None

    def _watch(self) -> None:
        import tensorflow as tf

        still = 0
        while self._busy:
            time.sleep(1 / LOOKS_PER_SECOND)
            still = 0 if _is_any_awake() else still + 1
            if still >= STILL_LOOKS and self._is_credible() and self._busy:
                self.was_exceeded = True
                self.release()
                # From here on the peak is what the step takes when it has enough.
                tf.config.experimental.reset_memory_stats("CPU:0")
                return

    def _is_credible(self) -> bool:
        assert self.pool_bytes is not None
        limit_bytes = self.pool_bytes - self.reserved_bytes
        return memory_info("current") - self.reserved_bytes >= CREDIBLE_PART * limit_bytes


def _empty(chunks: int) -> Any:
    """Return a tensor of so many of the allocator's smallest chunks, or None."""
    import tensorflow as tf

    with contextlib.suppress(tf.errors.ResourceExhaustedError):
        return tf.raw_ops.Empty(shape=[chunks, CHUNK_BYTES], dtype=tf.uint8, init=False)
    return None


def _is_any_awake() -> bool:
    """Return whether any other thread of this process runs, or could, or waits for a disk."""
    own = str(threading.get_native_id())
    for task in os.listdir(_TASKS):
        if task == own:
            continue
        try:
            state = (_TASKS / task / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "S":
            return True
    return False
