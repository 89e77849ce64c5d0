"""The out-of-memory doctor for TensorFlow and Keras.

Public names are resolved on first use, so that `import oomdoctor` stays instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomdoctor._version import __version__

if TYPE_CHECKING:
    from oomdoctor.api import check, probe_machine

__all__ = ["__version__", "check", "probe_machine"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'oomdoctor' has no attribute {name!r}")
    from oomdoctor import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
