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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

    def __init__(self, pool_bytes: int | None = None) -> None:
        """Describe the pool.

        Args:
            pool_bytes: All that the allocator has; None where nothing can be held back.
        """
        self.pool_bytes = pool_bytes
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

        before = _in_use()
        most = rest = -(-(self.pool_bytes - limit_bytes) // MIB)  # never leave more than the limit
        low_end = _filled((limit_bytes - before) // MIB - ELSEWHERE_MIB, rest)
        used = _in_use()
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
        del low_end
        self.held_bytes = _in_use() - before
        return True

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


def _filled(room: int, rest: int) -> Any:
    """Take what the step will have, so that the ballast comes to lie behind it.

    Then the step runs where others ran before, in pages that the system has given already, and its
    memory begins right behind the variables, as on a card.

    Args:
        room: MiB that the step will have.
        rest: MiB of ballast. Where that is less, the allocator may have no such chunk, and waits
            for one.
    """
    if not 0 < room <= rest:
        return None
    import tensorflow as tf

    before = _in_use()
    with contextlib.suppress(tf.errors.ResourceExhaustedError):
        filler = tf.raw_ops.Empty(shape=[room, MIB], dtype=tf.uint8, init=False)
        if _in_use() - before <= room * MIB:  # otherwise it was handed a larger chunk whole
            return filler
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
