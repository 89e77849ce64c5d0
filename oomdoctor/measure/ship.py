"""Classes and functions → bytes that another process can turn back into them.

What the other process can import is sent as its name. What it cannot (a notebook's cells, the
script being run, classes made inside a function) is sent whole: its code and what the code
refers to. Both processes run the same Python, so its code objects suit both.

Only for objects of the user's own process, handed to a worker of the same user.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import importlib.machinery
import io
import marshal
import os
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

from oomdoctor.errors import InputError

_MADE_BY_PYTHON = {
    *("__dict__", "__weakref__", "__module__", "__qualname__", "__doc__", "__slots__"),
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
    *("__abstractmethods__", "_abc_impl", "__static_attributes__", "__firstlineno__"),
}


def pack(objects: dict[str, Any]) -> bytes:
    """Return named classes and functions as bytes for `pickle.loads`."""
    stream = io.BytesIO()
    try:
        _Packer(stream, protocol=5).dump(objects)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InputError(
            f"The model's own code cannot be handed to another process ({error}): put it into a "
            "module and give module:callable, a function that returns the model."
        ) from error
    return stream.getvalue()


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, (type, types.FunctionType)):
            if is_importable(value):
                return NotImplemented
            return _of_class(value) if isinstance(value, type) else _of_function(value)
        if isinstance(value, property):
            return property, (value.fget, value.fset, value.fdel, value.__doc__)
        if isinstance(value, (staticmethod, classmethod)):
            return type(value), (value.__func__,)
        if type(value).__module__.startswith("tensorflow") and hasattr(value, "python_function"):
            return _traced_again, (value.python_function, getattr(value, "_jit_compile", None))
        return NotImplemented


def is_importable(value: Any) -> bool:
    """Return whether a fresh process finds the same class or function by its name."""
    module = getattr(value, "__module__", None)
    if module is None or module == "__main__" or "<locals>" in value.__qualname__:
        return False
    loaded = sys.modules.get(module)
    if loaded is None or "<lambda>" in value.__qualname__:
        return False
    found: Any = loaded
    for step in value.__qualname__.split("."):
        found = getattr(found, step, None)
    return found is value and _is_found_again(module, loaded)


def _is_found_again(name: str, loaded: types.ModuleType) -> bool:
    """Return whether the import system finds a module anew; being loaded proves nothing."""
    path: Any = None
    origin = None
    steps = name.split(".")
    for last in range(1, len(steps) + 1):
        spec = _find(".".join(steps[:last]), path)
        if spec is None:
            return False
        path, origin = spec.submodule_search_locations, spec.origin
    file = getattr(loaded, "__file__", None)
    return file is None or origin is None or os.path.samefile(origin, file)


def _find(name: str, path: Any) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None


def _of_function(function: types.FunctionType) -> Any:
    code = function.__code__
    state = {
        "globals": {
            name: function.__globals__[name]
            for name in sorted(_global_names(code))
            if name in function.__globals__
        },
        "cells": [_content(cell) for cell in function.__closure__ or ()],
        "defaults": function.__defaults__,
        "kwdefaults": function.__kwdefaults__,
        "attributes": {k: v for k, v in vars(function).items() if k != "__wrapped__"},
        "names": (function.__name__, function.__qualname__, function.__module__),
    }
    made_from = (marshal.dumps(code), len(code.co_freevars))
    return _new_function, made_from, state, None, None, _fill_function


def _global_names(code: types.CodeType) -> set[str]:
    """Return the globals that a function reads, those of its inner functions included."""
    names = {
        str(step.argval) for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # an empty cell
        return ()


def _new_function(code: bytes, cells: int) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in range(cells))
    return types.FunctionType(marshal.loads(code), {"__builtins__": builtins}, closure=closure)


def _fill_function(function: types.FunctionType, state: dict[str, Any]) -> None:
    function.__globals__.update(state["globals"])
    for cell, content in zip(function.__closure__ or (), state["cells"], strict=True):
        if content:
            cell.cell_contents = content[0]
    function.__defaults__ = state["defaults"]
    function.__kwdefaults__ = state["kwdefaults"]
    vars(function).update(state["attributes"])
    function.__name__, function.__qualname__, function.__module__ = state["names"]


def _of_class(value: type) -> Any:
    made_from = (type(value), value.__name__, value.__bases__, value.__module__)
    return _new_class, made_from, dict(_members(value)), None, None, _fill_class


def _members(value: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(value).items():
        if name not in _MADE_BY_PYTHON and not isinstance(member, types.MemberDescriptorType):
            yield name, member


def _new_class(kind: type, name: str, bases: tuple[type, ...], module: str) -> type:
    def fill(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = module

    return types.new_class(name, bases, {"metaclass": kind}, fill)


def _fill_class(value: type, members: dict[str, Any]) -> None:
    for name, member in members.items():
        setattr(value, name, member)


def _traced_again(function: Any, jit_compile: bool | None) -> Any:
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile)
