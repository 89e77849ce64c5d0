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
from oomdoctor.units import MIB
from oomdoctor.worker.devices import address_of, memory_info

LOOKS_PER_SECOND = 20
STILL_LOOKS = 12
"""So many looks in a row must find every thread asleep: 0.6 s. A thread that could run but gets
no processor counts as awake, so a busy machine does not deceive."""

CREDIBLE_PART = 0.25
"""With less than this part of the limit in use, it is left to TensorFlow to say that memory is
out: threads sleep for other reasons too."""

KEPT_SLACK_BYTES = 128 * MIB
"""The allocator hands out a free chunk whole unless that much would be left, or half of it."""

ELSEWHERE_MIB = 3
"""Free memory that is not in the largest chunk: the small first region, and holes."""

RESERVE_DTYPE = "uint64"
"""Tensors of a step are hardly ever of this type. TensorFlow logs each that finds no memory, and a
reserve that has to be put elsewhere is no failure of the step (`runner/process.py`)."""

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
        """Whether a step waited for memory since the limit was set."""
        self._pieces: list[Any] = []
        self._busy = False
        self._watcher: threading.Thread | None = None

    def set(self, limit_bytes: int | None) -> bool:
        """Leave only so much of the pool; return whether that much can be left.

        It cannot where the model itself takes more.
        """
        self.stop_watching()
        self.release()
        self.was_exceeded = False
        if limit_bytes is not None and limit_bytes <= 0:
            return False
        if self.pool_bytes is None or limit_bytes is None:
            return True
        import tensorflow as tf

        before = used = memory_info("current")
        if used > limit_bytes:
            return False
        behind = self._behind(self.pool_bytes - limit_bytes)
        if behind is not None:
            self._pieces.append(behind)
            self.reserved_bytes = memory_info("current") - before
            return True
        most = rest = -(-(self.pool_bytes - limit_bytes) // MIB)  # never leave more than the limit
        while rest > 0:
            free = (self.pool_bytes - used) // MIB - ELSEWHERE_MIB
            is_split = free >= 2 * rest or (free - rest) * MIB >= KEPT_SLACK_BYTES
            piece = min(most, rest if is_split else max(1, min(rest, free // 2)))
            try:
                held = _empty_of(piece, MIB)
            except tf.errors.ResourceExhaustedError:
                self.release()
                return False
            if memory_info("current") - used > piece * MIB and piece > 1:
                # Free memory lies in several chunks, and one of them was handed out whole.
                most = piece // 2
                del held
                continue
            self._pieces.append(held)
            used = memory_info("current")
            rest -= piece
        self.reserved_bytes = used - before
        return True

    def _behind(self, rest_bytes: int) -> Any:
        """Return a tensor that takes the very end of the pool, or None where that is not free.

        Then all looks as in a pool of the limit's size, to the byte: free memory that lies in other
        pieces decides otherwise. And a step runs where others ran before, in pages that the system
        has given already.
        """
        rest = -(-rest_bytes // CHUNK_BYTES)
        start, size = self._region
        end = start + size - rest * CHUNK_BYTES
        if 2 * rest_bytes < size:
            return None  # the allocator may have no such chunk, and would wait for one
        first = _empty(rest)
        free_from = None if first is None else address_of(first)
        del first
        if free_from is None or not start <= free_from <= end:
            return None
        filler = _empty((end - free_from) // CHUNK_BYTES)
        held = _empty(rest)
        del filler
        return held if held is not None and address_of(held) == end else None

    def release(self) -> None:
        """Give the whole pool back."""
        self._pieces.clear()
        self.reserved_bytes = 0

    def watch(self) -> None:
        """From now on, release the reserve as soon as an op waits for memory."""
        self.stop_watching()
        if self._pieces and _TASKS.is_dir():
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
        return _empty_of(chunks, CHUNK_BYTES)
    return None


def _empty_of(count: int, size_bytes: int) -> Any:
    import tensorflow as tf

    dtype = tf.as_dtype(RESERVE_DTYPE)
    return tf.raw_ops.Empty(shape=[count, size_bytes // dtype.size], dtype=dtype, init=False)


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
