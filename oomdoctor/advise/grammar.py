"""The check an expression passes before it may run: an allow-list, then types.

It accepts only what it knows to be good, and it knows what each fact is: `data.dtype > 3` is
refused when the rule is loaded, not when it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from oomdoctor.advise.vocabulary import FACTS, nearest
from oomdoctor.errors import RuleError

MAX_LENGTH = 2000
MAX_DEPTH = 40
MAX_NUMBER = 2**63

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_EQUALITY = (ast.Eq, ast.NotEq)
_MEMBERSHIP = (ast.In, ast.NotIn)

_REFUSED = {
    ast.Call: "a call",
    ast.Subscript: "a subscript",
    ast.Lambda: "a lambda",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment",
    ast.Tuple: "a list outside `in`",
    ast.List: "a list outside `in`",
    ast.Await: "await",
    ast.Starred: "a star",
    ast.Dict: "a dictionary",
    ast.Set: "a set",
}


class ExpressionError(RuleError):
    """An expression is not in the language. The message is one sentence."""


def check(text: str, constants: Iterable[str], *, kind: str) -> tuple[ast.expr, frozenset[str]]:
    """Return the tree of an expression that gives the kind asked for, and the facts it reads."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"it has {len(text)} characters; {MAX_LENGTH} is the most.")
    if "\\" in text:
        raise ExpressionError("a backslash has no meaning here.")
    try:
        tree = ast.parse(text.replace("\n", " ").strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"it cannot be parsed: {error.msg}.") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError("it cannot be parsed: it is nested too deep.") from None
    types = _Types(frozenset(constants))
    given = types.kind_of(tree)
    if given != kind:
        raise ExpressionError(f"it gives a {given}, and a {kind} is needed here.")
    return tree, frozenset(types.facts)


class _Types:
    """Finds what an expression gives, refusing whatever is not in the language."""

    def __init__(self, constants: frozenset[str]) -> None:
        self.constants = constants
        self.facts: set[str] = set()
        self.depth = 0

    def kind_of(self, node: ast.expr) -> str:
        """Return `number`, `text` or `flag`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"it is nested more than {MAX_DEPTH} deep.")
        kind = self._kind_of(node)
        self.depth -= 1
        return kind

    def _kind_of(self, node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            name = fact_name(node)
            self.facts.add(name)
            return fact_kind(name)
        if isinstance(node, ast.Constant):
            return _constant_kind(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._need(value, "flag", "`and` and `or` join")
            return "flag"
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.IfExp):
            return self._conditional(node)
        what = _REFUSED.get(type(node), type(node).__name__)
        raise ExpressionError(f"{what} is not part of the language.")

    def _need(self, node: ast.expr, kind: str, what: str) -> None:
        _same(node, self.kind_of(node), kind, what)

    def _name(self, node: ast.Name) -> str:
        if node.id in self.constants:
            return "number"
        raise ExpressionError(f"{node.id} is not a fact.{nearest(node.id, FACTS)}")

    def _unary(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            self._need(node.operand, "flag", "`not` takes")
            return "flag"
        if isinstance(node.op, ast.USub):
            self._need(node.operand, "number", "`-` takes")
            return "number"
        raise ExpressionError("only `-` and `not` may stand before a value.")

    def _binary(self, node: ast.BinOp) -> str:
        if not isinstance(node.op, _ARITHMETIC):
            raise ExpressionError("only + - * / // and % calculate here.")
        self._need(node.left, "number", "arithmetic takes")
        self._need(node.right, "number", "arithmetic takes")
        return "number"

    def _conditional(self, node: ast.IfExp) -> str:
        self._need(node.test, "flag", "`if` takes")
        kind = self.kind_of(node.body)
        self._need(node.orelse, kind, "both sides of `if … else` must be")
        return kind

    def _compare(self, node: ast.Compare) -> str:
        if isinstance(node.ops[0], _MEMBERSHIP) and len(node.ops) == 1:
            return self._membership(node.left, node.comparators[0])
        operands = [node.left, *node.comparators]
        # Each operand once: looking twice at every level would double the work at every level.
        kinds = [self.kind_of(operand) for operand in operands]
        for place, sign in enumerate(node.ops):
            left, right = operands[place], operands[place + 1]
            if isinstance(sign, _ORDER):
                _same(left, kinds[place], "number", "< and > compare")
                _same(right, kinds[place + 1], "number", "< and > compare")
            elif isinstance(sign, _EQUALITY):
                _same(right, kinds[place + 1], kinds[place], "here == and != compare")
                _check_choice(left, right)
                _check_choice(right, left)
            else:
                raise ExpressionError("write == for `is`, and keep `in` out of chains.")
        return "flag"

    def _membership(self, left: ast.expr, right: ast.expr) -> str:
        items = right.elts if isinstance(right, (ast.Tuple, ast.List)) else []
        if not items or not all(_is_constant(item) for item in items):
            raise ExpressionError('`in` needs a list of constants, as in ("adam", "adamw").')
        kind = self.kind_of(left)
        for item in items:
            self._need(item, kind, "this list must hold")
            _check_choice(left, item)
        return "flag"


def _same(node: ast.expr, given: str, kind: str, what: str) -> None:
    if given != kind:
        raise ExpressionError(f"{what} {kind}s, and {_show(node)} is a {given}.")


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


def fact_kind(name: str) -> str:
    """Return what a fact is to the language: `number`, `text` or `flag`."""
    if name not in FACTS:
        raise ExpressionError(f"{name} is not a fact.{nearest(name, FACTS)}")
    kind = FACTS[name].kind
    return kind if kind in ("text", "flag") else "number"


def fact_name(node: ast.Attribute) -> str:
    """Return the fact that a tree of two names stands for."""
    if not isinstance(node.value, ast.Name):
        raise ExpressionError(f".{node.attr} is not a fact: a fact has two parts, data.samples.")
    return f"{node.value.id}.{node.attr}"


def _constant_kind(node: ast.Constant) -> str:
    value = node.value
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)):
        if not abs(value) <= MAX_NUMBER:  # written so that a NaN is refused too
            raise ExpressionError("a number is too large.")
        return "number"
    raise ExpressionError(f"{_show(node)} is not part of the language.")


def _check_choice(fact: ast.expr, constant: ast.expr) -> None:
    """Refuse a comparison that can never hold, such as a misspelt cause."""
    if not isinstance(fact, ast.Attribute) or not isinstance(constant, ast.Constant):
        return
    name = fact_name(fact)
    choices = FACTS[name].choices
    if choices and constant.value not in choices:
        word = str(constant.value)
        raise ExpressionError(f"{name} is never {word!r:.50}.{nearest(word, choices)}")


def _show(node: ast.expr) -> str:
    return f"{ast.unparse(node):.60}"
