"""What is known of each expression."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts import calls, checks_loops, checks_pictures
from oomdoctor.scripts.calls_python import element_of
from oomdoctor.scripts.methods import attribute
from oomdoctor.scripts.names import MODEL_MAKERS, PICTURE_READERS, canonical
from oomdoctor.scripts.operators import binary, number, subscript
from oomdoctor.scripts.values import (
    Function,
    Items,
    Loop,
    Maker,
    Number,
    Ref,
    Scope,
    Sequence,
    Text,
    Value,
    joined,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker


MAX_LISTED = 8
"""Elements that are kept of a list as it is written."""


def _constant(walker: Walker, node: ast.Constant) -> Value:
    kind = type(node.value)
    if kind is str:
        if node.value == "TF_FORCE_GPU_ALLOW_GROWTH":
            walker.grows = True
        return Text(node.value)  # type: ignore[arg-type]
    if kind is int or kind is float:
        return number(node.value)  # type: ignore[arg-type]
    return None


def _name(walker: Walker, node: ast.Name) -> Value:
    found = walker.scope.find(node.id)
    if found is None and node.id in calls.BUILTINS:
        return Ref(f"builtins.{node.id}")
    return _of_star(walker, node.id) if found is None and walker.stars else found


def _of_star(walker: Walker, name: str) -> Value:
    """Return what a name means that only `from … import *` can have brought."""
    for module in walker.stars:
        full = canonical(f"{module}.{name}")
        is_layer = module == "keras.layers" and name[:1].isupper()
        if is_layer or full in MODEL_MAKERS or full in PICTURE_READERS or module == "numpy":
            return Ref(full)
    return None


def _attribute(walker: Walker, node: ast.Attribute) -> Value:
    return attribute(walker.value(node.value), node.attr)


def _call(walker: Walker, node: ast.Call) -> Value:
    return calls.call(walker, node)


def _binary(walker: Walker, node: ast.BinOp) -> Value:
    return binary(walker, node, walker.value(node.left), walker.value(node.right))


def _subscript(walker: Walker, node: ast.Subscript) -> Value:
    holder = walker.value(node.value)
    index = walker.value(node.slice)
    return subscript(walker, node, holder, node.slice, index)


def _list(walker: Walker, node: ast.List) -> Value:
    parts = [walker.value(part) for part in node.elts]
    made = Sequence(len(walker.loops), parts[0] if parts else None)
    made.parts = tuple(parts[:MAX_LISTED])
    return made


def _dictionary(walker: Walker, node: ast.Dict) -> Value:
    for part in (*node.keys, *node.values):
        walker.value(part)
    return Maker("dict", Number(len(walker.loops)))


def _tuple(walker: Walker, node: ast.Tuple) -> Value:
    return Items.of([walker.value(part) for part in node.elts])


@contextlib.contextmanager
def _generators(
    walker: Walker, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Iterator[list[Loop]]:
    """Walk the loops of a comprehension, whose names are its own."""
    outer, walker.scope = walker.scope, Scope(walker.scope)
    loops = []
    for generator in node.generators:
        over = walker.value(generator.iter)
        loops.append(walker.enter(node, over))
        walker.bind(generator.target, element_of(over))
        for test in generator.ifs:
            walker.value(test)
    yield loops
    for loop in reversed(loops):
        walker.leave(loop)
    walker.scope = outer


def _comprehension(walker: Walker, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
    with _generators(walker, node) as loops:
        item = walker.value(node.elt)
        if not isinstance(node, ast.GeneratorExp):
            checks_loops.comprehension(walker, node, loops[0].over, item)
            checks_pictures.listed(walker, node, loops[0].over, item)
    made = Sequence(len(walker.loops), item)
    made.is_whole = checks_pictures.is_whole(loops[0].over)
    if checks_pictures.as_picture(item) is not None and not walker.loops:
        made.pictures = node
        picture = checks_pictures.as_picture(item)
        made.item = picture if picture is not None else item
    return made


def _dict_comprehension(walker: Walker, node: ast.DictComp) -> Value:
    with _generators(walker, node):
        walker.value(node.key)
        walker.value(node.value)
    return None


def _lambda(walker: Walker, node: ast.Lambda) -> Value:
    function = Function(node, walker.scope)
    walker.later.append(function)
    return function


def _conditional(walker: Walker, node: ast.IfExp) -> Value:
    walker.value(node.test)
    return joined(walker.value(node.body), walker.value(node.orelse))


def _named(walker: Walker, node: ast.NamedExpr) -> Value:
    value = walker.value(node.value)
    walker.bind(node.target, value)
    return value


EXPRESSIONS: dict[Any, Callable[[Any, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.Subscript: _subscript,
    ast.List: _list,
    ast.Dict: _dictionary,
    ast.Tuple: _tuple,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _dict_comprehension,
    ast.Lambda: _lambda,
    ast.IfExp: _conditional,
    ast.NamedExpr: _named,
}
"""How each expression is walked."""
