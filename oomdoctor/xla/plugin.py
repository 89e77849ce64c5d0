"""Where XLA's GPU compiler is installed, and whether this version of it was tested.

The compiler is `jax-cuda12-pjrt`, a wheel without dependencies that needs neither JAX nor a GPU.
TensorFlow 2.21 holds an XLA between 0.9.0 and 0.9.2, by the options that each of them knows, and
the extra `xla` installs one of these. It matters: up to 0.8.3, recomputing made ResNet50 with a
batch of 256 larger on a T4, 21.4 GiB instead of 13.6 GiB.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from oomdoctor.xla.errors import PluginMissing, PluginUnsupported, XlaError

PACKAGE = "jax-cuda12-pjrt"
MODULE = "jax_plugins.xla_cuda12"
LIBRARY = "xla_cuda_plugin.so"

OLDEST, NEWEST = (0, 9), (0, 12)
"""Versions that were tested: 0.9.0, 0.9.2, 0.10.2 and 0.12.0.1. Up to 0.6.2 the compiler does not
read what TensorFlow 2.21 writes."""

TENSORFLOW = (2, 21)
"""Whose XLA it is."""

HOW = "pip install 'oomdoctor[xla]'"


@dataclass(frozen=True, slots=True)
class Plugin:
    """The compiler."""

    path: str
    version: str

    def check_version(self) -> None:
        """Raise where this version was not tested."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        if found is None or not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
            oldest, newest = (".".join(map(str, pair)) for pair in (OLDEST, NEWEST))
            raise PluginUnsupported(
                f"{PACKAGE} {self.version} was not tested with oomdoctor ({oldest} to {newest} "
                f"were): {HOW}"
            )


def note_on_tensorflow(version: str) -> str | None:
    """Return a sentence where the XLA of this TensorFlow may differ from the compiler's.

    Example:
        >>> note_on_tensorflow("2.19.0")
        'Compiled by the XLA of TensorFlow 2.21; that of 2.19 may recompute less and need more.'
        >>> note_on_tensorflow("2.21.0")
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) >= TENSORFLOW:
        return None
    ours = ".".join(map(str, TENSORFLOW))
    return (
        f"Compiled by the XLA of TensorFlow {ours}; that of {found[0]} may recompute less and "
        "need more."
    )


def find_plugin() -> Plugin:
    """Return the compiler that is installed.

    Raises:
        PluginMissing: If there is none.
        PluginUnsupported: If its version was not tested.
    """
    try:
        spec = importlib.util.find_spec(MODULE)
        version = importlib.metadata.version(PACKAGE)
    except (ImportError, importlib.metadata.PackageNotFoundError):
        spec, version = None, ""
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        library = Path(folder, LIBRARY)
        if library.is_file():
            plugin = Plugin(str(library), version)
            plugin.check_version()
            return plugin
    if not sys.platform.startswith("linux"):
        raise PluginMissing("XLA's compiler for GPUs is only available for Linux.")
    raise PluginMissing(f"XLA's compiler for GPUs is not installed: {HOW}")


def plugin_or_reason() -> tuple[Plugin | None, str]:
    """Return the compiler, or None and one sentence that says why there is none."""
    try:
        return find_plugin(), ""
    except XlaError as error:
        return None, str(error)
