"""The language of conditions: comparisons and arithmetic over declared facts, three-valued.

Allowed: numbers, strings, `True` and `False`, facts such as `data.decoded_bytes`, the constants
`KiB MiB GiB`, `+ - * / // %`, comparisons (chained too), `and or not`, `a if c else b`, and
`in` or `not in` a list of constants. Everything else is refused when the rule is loaded: calls,
other attributes, subscripts, powers, loops, f-strings. Types are checked then too, so that
running an expression cannot fail.

A missing fact makes a comparison *unknown*, and logic goes on as Kleene's does: `False and
unknown` is False, `True or unknown` is True. A division by zero is unknown as well.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oomdoctor.advise.grammar import ExpressionError, check, fact_name
from oomdoctor.units import GIB, KIB, MIB

__all__ = ["Evaluator", "Expression", "ExpressionError", "Result", "compile_expression", "evaluate"]

_CONSTANTS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}

_TOO_LARGE = 2**256  # far above any size, and still a number that a float can hold

_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was parsed and found harmless."""

    text: str
    tree: ast.expr
    kind: str
    """What it gives: `flag`, `number` or `text`."""
    facts: frozenset[str]
    """Every fact it reads."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an expression gave."""

    value: int | float | str | bool | None
    """None where it could not be decided."""
    missing: frozenset[str] = frozenset()
    """The facts that would decide it."""


class _Unknown:
    """A value that cannot be told, and the facts that are to blame."""

    __slots__ = ("missing",)

    def __init__(self, missing: frozenset[str]) -> None:
        self.missing = missing


def compile_expression(text: str, *, kind: str) -> Expression:
    """Return an expression ready to run.

    Args:
        text: The expression as a rule file has it.
        kind: What it must give: `flag` for a condition, `number` for a size.

    Raises:
        ExpressionError: It is not in the language, reads an unknown fact, mixes types, or gives
            another kind. The message says which and names the nearest fact.
    """
    tree, facts = check(text, _CONSTANTS, kind=kind)
    return Expression(text, tree, kind, facts)


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Result:
    """Return what an expression gives for these values.

    Example:
        >>> when = compile_expression("data.samples > 10 and data.files > 10", kind="flag")
        >>> evaluate(when, {"data.samples": 3}).value
        False
        >>> sorted(evaluate(when, {"data.samples": 30}).missing)
        ['data.files']
    """
    return Evaluator(values).run(expression)


class Evaluator:
    """Runs expressions over one set of values.

    It knows ten kinds of nodes. One that slipped through the check would be refused here once more.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._kinds: dict[type[ast.AST], Callable[[Any], Any]] = {
            ast.Attribute: self._fact,
            ast.Name: lambda node: _CONSTANTS[node.id],
            ast.Constant: lambda node: node.value,
            ast.Tuple: self._list,
            ast.List: self._list,
            ast.UnaryOp: self._unary,
            ast.BinOp: self._binary,
            ast.BoolOp: self._logic,
            ast.Compare: self._compare,
            ast.IfExp: self._conditional,
        }

    def run(self, expression: Expression) -> Result:
        """Return what an expression gives."""
        value = self._eval(expression.tree)
        if isinstance(value, _Unknown):
            return Result(None, value.missing)
        return Result(value)

    def _eval(self, node: ast.expr) -> Any:
        kind = self._kinds.get(type(node))
        if kind is None:
            raise ExpressionError(f"{type(node).__name__} is not part of the language.")
        return kind(node)

    def _fact(self, node: ast.Attribute) -> Any:
        # Not an attribute of anything: the two parts of a fact's name.
        name = fact_name(node)
        value = self._values.get(name)
        if value is None or not _is_plain(value):
            return _Unknown(frozenset((name,)))
        return value

    def _list(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self._eval(item) for item in node.elts)

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self._eval(node.operand)
        return value if isinstance(value, _Unknown) else _OPERATORS[type(node.op)](value)

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self._eval(node.left), self._eval(node.right)
        if unknown := _blame(left, right):
            return unknown
        try:
            value = _OPERATORS[type(node.op)](left, right)
        except ArithmeticError:
            return _Unknown(_names(node.right) or _names(node))
        return value if _is_plain(value) else _Unknown(_names(node))

    def _compare(self, node: ast.Compare) -> Any:
        left = self._eval(node.left)
        links = []
        for sign, comparator in zip(node.ops, node.comparators, strict=True):
            right = self._eval(comparator)
            links.append(_blame(left, right) or _OPERATORS[type(sign)](left, right))
            left = right
        return _settle(links, decisive=False)

    def _logic(self, node: ast.BoolOp) -> Any:
        decisive = isinstance(node.op, ast.Or)
        return _settle([self._eval(value) for value in node.values], decisive=decisive)

    def _conditional(self, node: ast.IfExp) -> Any:
        test = self._eval(node.test)
        if not isinstance(test, _Unknown):
            return self._eval(node.body if test else node.orelse)
        body, orelse = self._eval(node.body), self._eval(node.orelse)
        return body if body == orelse else _blame(test, body, orelse)


def _is_plain(value: Any) -> bool:
    """Whether a value is no infinity, no NaN and no integer that only an attack would make."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or abs(value) < _TOO_LARGE


def _blame(*values: Any) -> _Unknown | None:
    """The unknown that several values give together, if any of them is unknown."""
    unknown = [value.missing for value in values if isinstance(value, _Unknown)]
    return _Unknown(frozenset().union(*unknown)) if unknown else None


def _settle(values: list[Any], *, decisive: bool) -> Any:
    """Kleene's `or` (where True decides) and `and` (where False does)."""
    if any(value is decisive for value in values):
        return decisive
    return _blame(*values) or (not decisive)


def _names(tree: ast.AST) -> frozenset[str]:
    return frozenset(fact_name(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
