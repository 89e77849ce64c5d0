"""A process that serves another: it never outlives it, and goes first when RAM runs out."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import threading


def die_with_parent(parent: int, folder: str | None) -> None:
    """End this process when its parent has ended, even while TensorFlow is busy."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait_for_signal() -> None:
        signal.sigwait({signal.SIGTERM})
        leave(folder)

    threading.Thread(target=wait_for_signal, daemon=True).start()
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    if os.getppid() != parent:
        leave(folder)


def leave(folder: str | None) -> None:
    """End at once: threads of TensorFlow would keep an orderly exit waiting."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def volunteer_for_the_oom_killer() -> None:
    """If host memory runs out, this process shall go, not the user's notebook."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass
