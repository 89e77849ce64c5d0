"""A step on a crowded machine: all of the worker's threads on one core. Runs inside the worker.

Where ops run in several threads, what a step takes depends on which of them overlap, and that on
whatever else the machine does. A network with two inputs trained 380 samples on an idle machine,
step after step; beside busy programs no process got further than four epochs with more than 330.
On one core every process failed with 345 and none with 330, within a step or two: there threads
take turns as they do beside others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_THREADS = "/proc/self/task"


def has_turns() -> bool:
    """Return whether a crowd changes anything: several threads run ops, on several cores."""
    import tensorflow as tf

    if not hasattr(os, "sched_setaffinity") or not os.path.isdir(_THREADS):
        return False
    said = os.environ.get("TF_NUM_INTEROP_THREADS", "")
    threads = tf.config.threading.get_inter_op_parallelism_threads() or (
        int(said) if said.isdecimal() else 0
    )
    return threads != 1 and len(os.sched_getaffinity(0)) > 1


@contextlib.contextmanager
def crowded() -> Iterator[None]:
    """Run all threads on one core for a while."""
    cores = os.sched_getaffinity(0)
    _run_on({min(cores)})
    try:
        yield
    finally:
        _run_on(cores)


def _run_on(cores: set[int]) -> None:
    for thread in os.listdir(_THREADS):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
