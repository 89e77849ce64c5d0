"""A limit inside a larger pool, and an out-of-memory error that takes a second.

TensorFlow's allocator waits ten seconds for memory before it gives up, and no setting shortens
that. So the pool is made larger than the limit, and the difference is held by a tensor nobody
reads: the *ballast*. To a step the pool is then as small as the limit. When all threads sleep in
the middle of a step, an op waits for memory; the ballast is let go, the op gets its memory, the
step ends, and the size is known not to fit. Pages of the ballast are never touched, so it takes
no RAM.

Where threads cannot be watched (no `/proc`) the ten seconds pass and the real error comes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oomdoctor.allocator import CHUNK_BYTES, Region
from oomdoctor.measure.names import address_of
from oomdoctor.units import MIB

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

_TASKS = Path("/proc/self/task")


class Ballast:
    """Holds back a part of the CPU's pool."""

    def __init__(self, regions: Sequence[Region] = ()) -> None:
        """Describe the pool.

        Args:
            regions: All that the allocator has, the large one last; empty where nothing can be
                held back.
        """
        self.pool_bytes = sum(size for _, size in regions) or None
        self._region = regions[-1] if regions else (0, 0)
        self.held_bytes = 0
        self.gave_way = False
        """Whether a step waited for memory since the ballast was taken."""
        self._pieces: list[Any] = []
        self._busy = False

    def hold(self, limit_bytes: int | None) -> bool:
        """Leave only so much of the pool; return whether that much can be left.

        It cannot where the model itself takes more.
        """
        self.let_go()
        self.gave_way = False
        if self.pool_bytes is None or limit_bytes is None:
            return True
        import tensorflow as tf

        before = used = _in_use()
        behind = self._behind(self.pool_bytes - limit_bytes)
        if behind is not None:
            self._pieces.append(behind)
            self.held_bytes = _in_use() - before
            return True
        most = rest = -(-(self.pool_bytes - limit_bytes) // MIB)  # never leave more than the limit
        while rest > 0:
            free = (self.pool_bytes - used) // MIB - ELSEWHERE_MIB
            is_split = free >= 2 * rest or (free - rest) * MIB >= KEPT_SLACK_BYTES
            piece = min(most, rest if is_split else max(1, min(rest, free // 2)))
            try:
                held = tf.raw_ops.Empty(shape=[piece, MIB], dtype=tf.uint8, init=False)
            except tf.errors.ResourceExhaustedError:
                self.let_go()
                return False
            if _in_use() - used > piece * MIB and piece > 1:
                # Free memory lies in several chunks, and one of them was handed out whole.
                most = piece // 2
                del held
                continue
            self._pieces.append(held)
            used = _in_use()
            rest -= piece
        self.held_bytes = used - before
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

    def let_go(self) -> None:
        """Give the whole pool back."""
        self._pieces.clear()
        self.held_bytes = 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Let go as soon as the step inside waits for memory."""
        if not self._pieces or not _TASKS.is_dir():
            yield
            return
        self._busy = True
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            self._busy = False
            watcher.join()

    def _watch(self) -> None:
        still = 0
        while self._busy:
            time.sleep(1 / LOOKS_PER_SECOND)
            still = 0 if _is_any_awake() else still + 1
            if still >= STILL_LOOKS and self._is_credible() and self._busy:
                self.gave_way = True
                self._pieces.clear()
                return

    def _is_credible(self) -> bool:
        assert self.pool_bytes is not None
        limit_bytes = self.pool_bytes - self.held_bytes
        return _in_use() - self.held_bytes >= CREDIBLE_PART * limit_bytes


def _empty(chunks: int) -> Any:
    """Return a tensor of so many of the allocator's smallest chunks, or None."""
    import tensorflow as tf

    with contextlib.suppress(tf.errors.ResourceExhaustedError):
        return tf.raw_ops.Empty(shape=[chunks, CHUNK_BYTES], dtype=tf.uint8, init=False)
    return None


def _in_use() -> int:
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info("CPU:0")["current"])


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
