"""The changes themselves, on a concrete syntax tree. Imported only where something is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst  # noqa: TID253 - this module is imported late
from libcst.metadata import MetadataWrapper, PositionProvider  # noqa: TID253

from oomdoctor.facts import CodeMatch
from oomdoctor.scripts.calls_model import OLD_ARGUMENTS

Position = tuple[int, int]


def change(content: bytes, matches: Iterable[CodeMatch]) -> bytes:
    """Return a script with these matches changed."""
    wanted = {(match.check, match.line, match.column): match for match in matches}
    wrapper = MetadataWrapper(cst.parse_module(content))
    changed: cst.Module = wrapper.visit(_Changer(wanted))
    return changed.bytes


class _Changer(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wanted: dict[tuple[str, int, int], CodeMatch]) -> None:
        super().__init__()
        self.wanted = wanted

    def match(self, node: Any, *checks: str) -> CodeMatch | None:
        """Return the match that stands at a node: at its start, or at the method it calls."""
        places = [self.get_metadata(PositionProvider, node).start]
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            places.append(self.get_metadata(PositionProvider, node.func.attr).start)
        for check in checks:
            for place in places:
                found = self.wanted.get((check, place.line, place.column + 1))
                if found is not None:
                    return found
        return None

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Change a call."""
        name = _called(original_node)
        if name in OLD_ARGUMENTS and self.match(original_node, "old-generator-method"):
            return _renamed(updated_node, name)
        if name == "shuffle" and self.match(original_node, "shuffle-of-whole-batches"):
            return _swapped(updated_node)
        if name == "astype" and self.match(original_node, "bytes-to-float64"):
            return _narrowed(updated_node)
        if name == "append" and self.match(original_node, "tensor-kept-in-loop"):
            inner = cst.Call(cst.Name("float"), [updated_node.args[0].with_changes(comma=_NONE)])
            return updated_node.with_changes(args=[updated_node.args[0].with_changes(value=inner)])
        if name == "len" and original_node.args:
            held = original_node.args[0].value
            if self._is_list(held):
                return _counted(updated_node.args[0].value)
        return updated_node

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:  # noqa: N802
        """Loop over a dataset, not over a list of it."""
        held = updated_node.iter
        if self._is_list(original_node.iter) and isinstance(held, cst.Call):
            return updated_node.with_changes(iter=held.args[0].value)
        return updated_node

    def leave_BinaryOperation(  # noqa: N802
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        """Divide by a float32, which leaves an array of bytes at four bytes a number."""
        number = updated_node.right
        if not isinstance(number, (cst.Float, cst.Integer)):
            return updated_node
        found = self.match(original_node, "bytes-to-float64")
        if found is None or found.numpy is None:
            return updated_node
        function = cst.parse_expression(f"{found.numpy}.float32")
        return updated_node.with_changes(right=cst.Call(function, [cst.Arg(number)]))

    def _is_list(self, node: cst.BaseExpression) -> bool:
        return (
            isinstance(node, cst.Call)
            and _called(node) == "list"
            and len(node.args) == 1
            and self.match(node, "dataset-held-in-list") is not None
        )


_NONE = cst.MaybeSentinel.DEFAULT


def _called(node: cst.Call) -> str | None:
    function = node.func
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else None


def _renamed(node: cst.Call, name: str) -> cst.Call:
    """`fit_generator(batches, 10)` → `fit(batches, steps_per_epoch=10)`."""
    assert isinstance(node.func, cst.Attribute)
    words = OLD_ARGUMENTS[name]
    args = [
        _keyword(arg, words[place]) if place and arg.keyword is None else _first(arg)
        for place, arg in enumerate(node.args)
    ]
    attribute = node.func.with_changes(attr=cst.Name(name.removesuffix("_generator")))
    return node.with_changes(func=attribute, args=args)


def _keyword(arg: cst.Arg, name: str) -> cst.Arg:
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return arg.with_changes(keyword=cst.Name(name), equal=tight)


def _first(arg: cst.Arg) -> cst.Arg:
    if arg.keyword is not None and arg.keyword.value == "generator":
        return arg.with_changes(keyword=cst.Name("x"))
    return arg


def _swapped(outer: cst.Call) -> cst.Call:
    """`.batch(32).shuffle(1000)` → `.shuffle(1000).batch(32)`; the dots stay where they are."""
    assert isinstance(outer.func, cst.Attribute)
    inner = outer.func.value
    if not isinstance(inner, cst.Call) or not isinstance(inner.func, cst.Attribute):
        return outer
    first = _with_call(inner, inner.func.with_changes(attr=outer.func.attr), outer)
    return _with_call(outer, outer.func.with_changes(value=first, attr=inner.func.attr), inner)


def _with_call(node: cst.Call, function: cst.Attribute, other: cst.Call) -> cst.Call:
    return node.with_changes(
        func=function,
        args=other.args,
        whitespace_after_func=other.whitespace_after_func,
        whitespace_before_args=other.whitespace_before_args,
    )


def _narrowed(node: cst.Call) -> cst.Call:
    """`astype("float64")` → `astype("float32")`, however it is written."""
    args: Sequence[cst.Arg] = node.args
    dtype = args[0].value
    new: cst.BaseExpression = cst.SimpleString('"float32"')
    if isinstance(dtype, cst.SimpleString):
        new = cst.SimpleString(f"{dtype.quote}float32{dtype.quote}")
    elif isinstance(dtype, cst.Attribute):
        new = dtype.with_changes(attr=cst.Name("float32"))
    return node.with_changes(args=[args[0].with_changes(value=new), *args[1:]])


def _counted(held: cst.BaseExpression) -> cst.BaseExpression:
    """`len(list(dataset))` → `sum(1 for _ in dataset)`."""
    assert isinstance(held, cst.Call)
    each = cst.CompFor(target=cst.Name("_"), iter=held.args[0].value)
    counted = cst.GeneratorExp(elt=cst.Integer("1"), for_in=each, lpar=[], rpar=[])
    return cst.Call(cst.Name("sum"), [cst.Arg(counted)])
