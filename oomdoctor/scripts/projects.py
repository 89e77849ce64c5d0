"""The other files of a project: what a script imports from the modules that are beside it.

A module is read only if something of it is called, its functions are followed where the script
calls them, and nothing is told of the module itself: it is checked when it is given.
"""

from __future__ import annotations

import ast
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from oomdoctor.scripts.names import FOREIGN, MENTIONS
from oomdoctor.scripts.source import NotPython, read_script
from oomdoctor.scripts.values import (
    Array,
    Class,
    Dataset,
    Function,
    Items,
    Model,
    Scope,
    Sequence,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

MAX_MODULES = 20
"""Modules that are followed from one script."""
MAX_MODULE_BYTES = 200_000
MAX_KEPT_BYTES = 4_000_000
"""Source of modules that are kept parsed, for scripts that share them."""
MAX_PARENTS = 3
"""Folders above the script's own that modules are looked for in."""
MAX_ENTRIES = 5_000
"""Files of a folder that are looked at."""

_FRAMEWORK = frozenset(("tensorflow", "keras", "tensorflow_datasets", "numpy", "cv2", "PIL"))
_NOT_OURS = FOREIGN | _FRAMEWORK | sys.stdlib_module_names | {"tf_keras", "h5py", "skimage"}
_ROOTS = frozenset((".git", "pyproject.toml", "setup.py", "setup.cfg"))
_IMPORTED = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_INDEXED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Shelf:
    """What was read of modules and folders, for all scripts of one scan."""

    def __init__(self) -> None:
        self._folders: dict[str, frozenset[str]] = {}
        self._trees: dict[str, ast.Module | None] = {}
        self._kept = 0

    def names(self, folder: str) -> frozenset[str]:
        """Return what a folder holds."""
        if folder not in self._folders:
            try:
                inside = os.listdir(folder or ".")
            except OSError:
                inside = []
            self._folders[folder] = frozenset(inside[:MAX_ENTRIES])
        return self._folders[folder]

    def find(self, folder: str, parts: list[str]) -> tuple[str, list[str]] | None:
        """Return the file of a module below a folder, and what of its name is left."""
        for place, part in enumerate(parts):
            names = self.names(folder)
            if f"{part}.py" in names:
                return os.path.join(folder, f"{part}.py"), parts[place + 1 :]
            if part not in names:
                break
            folder = os.path.join(folder, part)
        else:
            place = len(parts)
        if place and "__init__.py" in self.names(folder):
            return os.path.join(folder, "__init__.py"), parts[place:]
        return None

    def content(self, path: str) -> bytes | None:
        """Return a module's source, unless it is too large or no plain file."""
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_MODULE_BYTES:
                return None
            with open(path, "rb") as file:
                return file.read(MAX_MODULE_BYTES)
        except OSError:
            return None

    def tree(self, path: str) -> ast.Module | None:
        """Return a module, parsed, or None."""
        if path not in self._trees:
            content = self.content(path)
            self._kept += len(content or b"")
            if self._kept > MAX_KEPT_BYTES:
                self._trees.clear()
                self._kept = len(content or b"")
            try:
                self._trees[path] = read_script(content).tree if content else None
            except (NotPython, RecursionError, MemoryError):
                self._trees[path] = None
        return self._trees[path]

    def leads_to_framework(self, path: str, content: bytes) -> bool:
        """Return whether a script gets TensorFlow or Keras through a module beside it."""
        if b".fit(" not in content and b".predict(" not in content:
            return False
        folder = os.path.dirname(path)
        for name in {match.decode() for match in _IMPORTED.findall(content[:MAX_MODULE_BYTES])}:
            if name not in _NOT_OURS and f"{name}.py" in self.names(folder):
                module = self.content(os.path.join(folder, f"{name}.py")) or b""
                if any(word in module for word in MENTIONS):
                    return True
        return False


class Project:
    """The modules that one script can import from its own project."""

    def __init__(self, shelf: Shelf, path: str) -> None:
        self._shelf = shelf
        self._folder = os.path.dirname(path)
        self._modules: dict[str, Scope | None] = {}
        self._found: dict[str, tuple[Scope | None, list[str]]] = {}

    def symbol(self, walker: Walker, name: str) -> Value:
        """Return a function or a class of the project, by its full name, or None."""
        scope, rest = self.module(walker, name)
        if scope is None or len(rest) != 1:
            return None
        found = scope.names.get(rest[0])
        return found if isinstance(found, (Function, Class)) else None

    def module(self, walker: Walker, name: str) -> tuple[Scope | None, list[str]]:
        """Return the names of a module, and the part of the name that is not the module's."""
        if name not in self._found:
            self._found[name] = self._look_for(walker, name)
        return self._found[name]

    def _look_for(self, walker: Walker, name: str) -> tuple[Scope | None, list[str]]:
        bare = name.lstrip(".")
        parts = bare.split(".")
        if parts[0] in _NOT_OURS and bare == name:
            return None, []
        level = len(name) - len(bare)
        for folder in self._folders(level):
            found = self._shelf.find(folder, parts)
            if found is not None:
                path, rest = found
                return self._scope(walker, path), rest
        return None, []

    def _folders(self, level: int) -> Iterator[str]:
        folder = self._folder
        if level:
            yield os.path.normpath(os.path.join(folder, *[".."] * (level - 1)))
            return
        for _ in range(MAX_PARENTS + 1):
            yield folder
            if self._shelf.names(folder) & _ROOTS:
                return
            above = os.path.dirname(os.path.abspath(folder))
            if above == os.path.abspath(folder):
                return
            folder = above

    def _scope(self, walker: Walker, path: str) -> Scope | None:
        if path not in self._modules:
            if len(self._modules) >= MAX_MODULES:
                return None
            self._modules[path] = None  # a module that imports itself ends here
            tree = self._shelf.tree(path)
            if tree is not None:
                self._modules[path] = _walked(walker, _indexed(tree))
        return self._modules[path]


def _indexed(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements that say what a module offers: none of them does anything."""
    return [
        statement
        for statement in tree.body
        if isinstance(statement, _INDEXED)
        or (isinstance(statement, ast.Assign) and _is_plain(statement.value))
    ]


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return len(node.elts) <= 8 and all(map(_is_plain, node.elts))
    return isinstance(node, (ast.Constant, ast.Name))


def _walked(walker: Walker, body: list[ast.stmt]) -> Scope:
    """Return the names of another module of the project, none of which was run yet."""
    outer = walker.scope, walker.loops, walker.functions, walker.strategies, walker.later
    walker.scope, walker.loops, walker.functions, walker.strategies = Scope(None), [], [], []
    walker.later = []
    walker.foreign += 1
    try:
        walker.block(body)
        scope = walker.scope
    finally:
        walker.foreign -= 1
        walker.scope, walker.loops, walker.functions, walker.strategies, walker.later = outer
    for value in scope.names.values():
        methods = value.methods.values() if isinstance(value, Class) else (value,)
        for method in methods:
            if isinstance(method, Function):
                method.is_foreign = True
    return scope


def rooted(value: Value, call: ast.AST) -> Value:
    """Return a value that another file made, as one that the call in this file gives."""
    if isinstance(value, Items):
        return Items(tuple(rooted(part, call) for part in value.parts), value.count)
    if isinstance(value, Array) and (value.pictures or value.load):
        load = call if value.load is not None and isinstance(call, ast.Call) else None
        return replace(value, pictures=call if value.pictures else None, load=load)
    if isinstance(value, Sequence) and value.pictures is not None:
        value.pictures = call
        value.told = tuple((call, layout, None) for _, layout, _ in value.told[:1])
    if isinstance(value, Dataset) and value.batch is not None:
        return replace(value, batch=call if isinstance(call, ast.Call) else None)
    if isinstance(value, Model) and value.node is not None:
        return replace(value, node=call)
    return value
