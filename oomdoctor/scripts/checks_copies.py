"""Second copies of a whole dataset, made while the first one lives on."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts.checks_pictures import sized
from oomdoctor.scripts.layout import Layout
from oomdoctor.scripts.values import Array, Function, Picture, Sequence, Value
from oomdoctor.units import MIB

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

WORTH_TELLING = 100 * MIB
"""A copy that is known to be smaller is not told of."""
MAX_TARGETS = 20
_LABELS = re.compile(r"(.*_)?(y|labels?|targets?)(_.*|\d*)?$", re.IGNORECASE)
"""Names of labels, which are small."""


def made(
    walker: Walker,
    node: ast.AST,
    source: ast.expr | None,
    value: Value,
    *,
    dtype: str | None = None,
) -> None:
    """Remember that an expression copies what a name holds; what becomes of it decides."""
    kind = _kind(value)
    if kind is not None and isinstance(source, (ast.Name, ast.Attribute)):
        if dtype is not None and isinstance(value, Array):
            value = replace(value, dtype=dtype)
        walker.copies.append((node, source, value, kind))


def _kind(value: Value) -> str | None:
    """Return what makes a value worth telling of its copies."""
    if isinstance(value, Sequence):
        return "pictures" if value.is_whole and value.pictures is not None else None
    if not isinstance(value, Array) or value.size in ("small", "part") or value.is_mapped:
        return None
    if value.is_whole:
        return "pictures"
    if value.pictures is not None:
        return None
    size = value.size_bytes
    if size is not None:
        return "known" if size >= WORTH_TELLING else None
    return "loaded" if value.load is not None or value.is_hdf5 else None


def settle(walker: Walker, targets: list[ast.expr], line: int) -> None:
    """Tell of the copies that the statement made and keeps beside what was copied."""
    copies, walker.copies = walker.copies, []
    names: set[str] = set()
    for target in targets[:MAX_TARGETS]:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        names.update(map(_named, parts[:MAX_TARGETS]))
    for node, source, value, kind in copies:
        name = _named(source)
        if kind == "loaded" and _LABELS.match(name):
            continue
        if _is_given(walker, name, value):
            walker.escaping.append((node, name, value, kind))
            continue
        if name in names or not _lasts(walker, name, line) or walker.has_told(node):
            continue
        more = sized(_layout(value), value.count if isinstance(value, Array) else None)
        walker.tell("copy-of-dataset", node, name=name, detail=kind, **more)


def returned(walker: Walker) -> None:
    """Remember the copies that a function returns of what it was given."""
    copies, walker.copies = walker.copies, []
    for node, source, value, kind in copies:
        name = _named(source)
        if _is_given(walker, name, value):
            walker.escaping.append((node, name, value, kind))


def _is_given(walker: Walker, name: str, value: Value) -> bool:
    """Return whether a name still holds an argument, so that the caller holds what is copied."""
    given = walker.given.get(name)
    if given is None or not walker.functions:
        return False
    return given is value or (isinstance(value, Array) and isinstance(given, Array)
                              and given.pictures is value.pictures and given.load is value.load
                              and walker.scope.names.get(name) is given)  # fmt: skip


def escaped(
    function: Function, call: ast.Call, escaping: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Return the copies that a function made of its arguments, as those of its caller."""
    names = [argument.arg for argument in function.node.args.args]
    names = names[1:] if function.owner is not None else names
    given = dict(zip(names, call.args, strict=False))
    given.update({word.arg: word.value for word in call.keywords if word.arg})
    found = []
    for node, name, value, kind in escaping:
        source = given.get(name)
        if isinstance(source, (ast.Name, ast.Attribute)):
            found.append((node, source, value, kind))
    return found


def _layout(value: Value) -> Layout | None:
    if isinstance(value, Array):
        return Layout(value.dims, value.dtype)
    if isinstance(value, Sequence) and isinstance(value.item, Picture):
        return value.item.layout
    return None


def _named(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_named(node.value)}.{node.attr}"
    return ""


def _lasts(walker: Walker, name: str, line: int) -> bool:
    """Return whether what a name holds now is still there while the model trains."""
    if walker.in_getitem or any(function.yields for function in walker.functions):
        return False
    if walker.functions and not walker.functions[-1].trains:
        return False  # it goes when the function ends
    lines = walker.stores.get(name, ())
    return bisect_right(lines, line) == len(lines)  # neither deleted nor bound again later on
