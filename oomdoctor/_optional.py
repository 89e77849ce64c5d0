"""Import a heavy or optional package, or say which extra to install."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from oomdoctor.errors import MissingPackageError


def import_optional(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Return an imported module, or raise one sentence that says how to get it.

    Args:
        module: Dotted name of the module.
        extra: The extra of oomdoctor that installs it.
        purpose: What it is needed for, as in "to read HDF5 files".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, extra, purpose) from error


def require(module: str, *, extra: str, purpose: str) -> None:
    """Raise the same sentence where a module is not installed, without importing it."""
    if importlib.util.find_spec(module) is None:
        raise _missing(module, extra, purpose)


def _missing(module: str, extra: str, purpose: str) -> MissingPackageError:
    package = module.partition(".")[0]
    return MissingPackageError(f"{package} is needed {purpose}: pip install 'oomdoctor[{extra}]'")
