"""The user's own modules: where they are found, and what `module:callable` names."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from typing import Any

from oomdoctor.errors import InputError, UsageError


def find_modules_in(folders: tuple[str, ...]) -> None:
    """Put the user's folders on the import path, behind Python's own library.

    A `queue.py` beside the user's model must not take the place of Python's, which TensorFlow
    imports.
    """
    library = {os.path.realpath(path) for path in (sysconfig.get_path("stdlib"), *_dynload())}
    last = max(
        (i for i, entry in enumerate(sys.path) if os.path.realpath(entry) in library), default=-1
    )
    sys.path[last + 1 : last + 1] = [entry for entry in folders if entry not in sys.path]


def _dynload() -> list[str]:
    return [entry for entry in sys.path if os.path.basename(entry) == "lib-dynload"]


def load_callable(name: str) -> Any:
    """Return what `module:callable` names."""
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(f"{name!r} names no model: give a .keras file or module:callable.")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise InputError(f"Importing {module_name} failed: {error}.") from error
        raise InputError(
            f"There is no module {module_name}: run from the folder that holds it."
        ) from error
    for step in attribute.split("."):
        if not hasattr(found, step):
            raise InputError(f"The module {module_name} has no {attribute}.")
        found = getattr(found, step)
    return found
