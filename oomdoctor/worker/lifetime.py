"""A process that serves another: it never outlives it, and goes first when RAM runs out."""

from __future__ import annotations

import os
import shutil
import signal
import threading

from oomdoctor.isolation import end_with_parent


def die_with_parent(parent: int, folder: str | None) -> None:
    """End this process when its parent has ended, even while TensorFlow is busy."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait_for_signal() -> None:
        signal.sigwait({signal.SIGTERM})
        leave(folder)

    threading.Thread(target=wait_for_signal, daemon=True).start()
    end_with_parent(parent, signal.SIGTERM)


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
