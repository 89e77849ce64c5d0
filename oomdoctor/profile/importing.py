"""Tells when a module begins and ends to be imported, without changing how it is.

The module's own loader is kept, with one method wrapped on that loader alone, so that sources,
resources and pickles work as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportWatch:
    """A finder that finds nothing itself, and wraps the loading of the modules it waits for."""

    def __init__(
        self,
        begins: Mapping[str, Callable[[], None]],
        ends: Mapping[str, Callable[[ModuleType], None]],
    ) -> None:
        self._begins = dict(begins)
        self._ends = dict(ends)

    def install(self) -> None:
        """Look at every import from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec with its loading wrapped; None for all other modules."""
        if name not in self._ends:
            return None
        end = self._ends.pop(name)
        begin = self._begins.pop(name, None)
        spec = self._found_by_others(name, path, target)
        loader: Any = spec.loader if spec else None
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if begin is not None:
                _quietly(begin)
            load(module)
            _quietly(end, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader that takes no attributes
            return spec
        return spec

    def _found_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                return spec
        return None


def _quietly(function: Callable[..., None], *arguments: Any) -> None:
    try:
        function(*arguments)
    except Exception:  # the program must not see what goes wrong here
        return
