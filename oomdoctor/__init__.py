"""The out-of-memory doctor for TensorFlow and Keras.

Public names are resolved on first use, so that `import oomdoctor` stays instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomdoctor._version import __version__

if TYPE_CHECKING:
    from oomdoctor.api import (
        check,
        convert,
        estimate_memory,
        explain_error,
        fit_in_chunks,
        fit_with_rescue,
        probe_machine,
        store_features,
        stream_dataset,
        suggest_batch_size,
        suggest_machine,
    )
    from oomdoctor.profile.callback import MemoryCallback
    from oomdoctor.watching import install_excepthook, watch

__all__ = [
    "MemoryCallback",
    "__version__",
    "check",
    "convert",
    "estimate_memory",
    "explain_error",
    "fit_in_chunks",
    "fit_with_rescue",
    "install_excepthook",
    "probe_machine",
    "store_features",
    "stream_dataset",
    "suggest_batch_size",
    "suggest_machine",
    "watch",
]
_WATCHING = ("install_excepthook", "watch")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'oomdoctor' has no attribute {name!r}")
    if name in _WATCHING:
        from oomdoctor import watching

        return getattr(watching, name)
    if name == "MemoryCallback":
        from oomdoctor import api
        from oomdoctor.profile.callback import MemoryCallback

        return MemoryCallback
    from oomdoctor import api

    return getattr(api, name)


def load_ipython_extension(shell: Any) -> None:
    """Add `%%oomwatch` to a notebook: `%load_ext oomdoctor`."""
    from oomdoctor.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take it away again: `%unload_ext oomdoctor`."""
    from oomdoctor.notebook import unload

    unload(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
