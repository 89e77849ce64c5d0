"""What each statement does to what is known."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts import calls, checks_copies, checks_loops, checks_pictures, checks_sizes
from oomdoctor.scripts.calls_python import element_of
from oomdoctor.scripts.names import SEQUENCES, canonical
from oomdoctor.scripts.values import (
    Array,
    Class,
    Ended,
    Function,
    Maker,
    Number,
    Picture,
    Ref,
    Scope,
    Sequence,
    Strategy,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

MAX_STARS = 20
"""Modules of which all names are imported."""
_TRACED = frozenset(("call", "train_step", "test_step", "predict_step", "build"))
"""Methods of a model or layer that Keras traces, so that nothing in them is eager."""


def _expr(walker: Walker, node: ast.Expr) -> None:
    walker.value(node.value)


def _assign(walker: Walker, node: ast.Assign) -> None:
    walker.copies = []
    value = walker.value(node.value)
    if walker.copies:
        checks_copies.settle(walker, node.targets, node.lineno)
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            checks_pictures.stored(walker, node, target, value)
            checks_sizes.written(walker, target, walker.value(target.value), value)
        elif isinstance(value, Array) and not value.is_filled and isinstance(target, ast.Name):
            walker.makers[target.id] = node.value, len(walker.loops)
        walker.bind(target, value)


def _annotated(walker: Walker, node: ast.AnnAssign) -> None:
    value = walker.value(node.value) if node.value is not None else None
    if value is None:
        value = walker.annotated(node.annotation)
    walker.bind(node.target, value)


def _augmented(walker: Walker, node: ast.AugAssign) -> None:
    right = walker.value(node.value)
    before = walker.value(node.target)
    if isinstance(before, Number):
        walker.bind(node.target, Number(varies=bool(walker.loops)))
    elif isinstance(before, Sequence) and isinstance(node.op, ast.Add):
        for part in node.value.elts if isinstance(node.value, ast.List) else ():
            checks_loops.kept(walker, node, before, walker.value(part), part)
    elif isinstance(before, Picture):
        pass
    elif not isinstance(before, Array) or isinstance(right, Array):
        walker.bind(node.target, before if isinstance(before, Tensor) else None)


def _return(walker: Walker, node: ast.Return) -> None:
    walker.copies = []
    value = walker.value(node.value) if node.value is not None else None
    if walker.copies:
        checks_copies.returned(walker)
    checks_pictures.consumed(walker, value)
    if walker.functions:
        walker.returns.append(value)
    raise Ended


def _leave(walker: Walker, node: ast.stmt) -> None:
    raise Ended


def _if(walker: Walker, node: ast.If) -> None:
    walker.value(node.test)
    outer, walker.is_rare = walker.is_rare, walker.is_rare or _comes_seldom(node.test)
    try:
        walker.branches(node.body, node.orelse)
    finally:
        walker.is_rare = outer


def _comes_seldom(test: ast.expr) -> bool:
    """Return whether a condition counts turns: `step % 100 == 0`, `i == 0`."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    for part in parts:
        left = part.left if isinstance(part, ast.Compare) else part
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
            return not isinstance(left.left, ast.Constant)
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq):
            right = part.comparators[0]
            is_turn = isinstance(right, ast.Constant) and type(right.value) is int
            if isinstance(left, ast.Name) and (is_turn or isinstance(right, ast.BinOp)):
                return True
        if isinstance(left, ast.UnaryOp) and isinstance(left.operand, ast.BinOp):
            return isinstance(left.operand.op, ast.Mod)
    return False


def _try(walker: Walker, node: ast.Try) -> None:
    walker.branches(node.body, *(handler.body for handler in node.handlers))
    walker.block(node.orelse)
    walker.block(node.finalbody)


def _match(walker: Walker, node: Any) -> None:
    walker.value(node.subject)
    walker.branches(*(case.body for case in node.cases), [])


def _with(walker: Walker, node: ast.With | ast.AsyncWith) -> None:
    entered = 0
    for item in node.items:
        value = walker.value(item.context_expr)
        if isinstance(value, Maker) and isinstance(value.item, Strategy):
            walker.strategies.append(value.item)
            entered += 1
        if item.optional_vars is not None:
            walker.bind(item.optional_vars, value)
    is_reached = walker.block(node.body)
    del walker.strategies[len(walker.strategies) - entered :]
    if not is_reached:
        raise Ended


def _for(walker: Walker, node: ast.For | ast.AsyncFor) -> None:
    walker.loose_lists.add(id(node.iter))
    over = walker.value(node.iter)
    loop = walker.enter(node, over)
    walker.bind(node.target, element_of(over))
    walker.block(node.body)
    walker.leave(loop)
    walker.block(node.orelse)


def _while(walker: Walker, node: ast.While) -> None:
    walker.value(node.test)
    loop = walker.enter(node, None)
    walker.block(node.body)
    walker.leave(loop)
    walker.block(node.orelse)


def _import(walker: Walker, node: ast.Import) -> None:
    for alias in node.names:
        _seen_import(walker, node, alias.name)
        name = alias.name if alias.asname else alias.name.partition(".")[0]
        if alias.name == "numpy":
            walker.numpy_name = alias.asname or name
        walker.scope.names[alias.asname or name] = Ref(canonical(name))


def _import_from(walker: Walker, node: ast.ImportFrom) -> None:
    module = "." * node.level + (node.module or "")
    if not node.level:
        _seen_import(walker, node, module)
    for alias in node.names:
        if alias.name == "*":
            _star(walker, module)
        elif module.endswith("."):
            walker.scope.names[alias.asname or alias.name] = Ref(f"{module}{alias.name}")
        else:
            full = canonical(f"{module}.{alias.name}")
            walker.scope.names[alias.asname or alias.name] = Ref(full)


def _star(walker: Walker, module: str) -> None:
    """Take over all names of a module of the project, or remember a package."""
    if module in walker.starred or len(walker.starred) >= MAX_STARS:
        return
    walker.starred.add(module)
    if canonical(module).partition(".")[0] in ("tensorflow", "keras", "numpy", "skimage"):
        walker.stars.append(canonical(module))
    elif walker.project is not None:
        scope, rest = walker.project.module(walker, module)
        if scope is not None and not rest:
            for name, value in scope.names.items():
                walker.scope.names.setdefault(name, value)


def _seen_import(walker: Walker, node: ast.AST, module: str) -> None:
    if canonical(module).partition(".")[0] in ("tensorflow", "keras"):
        walker.knows_framework = True
        if walker.imports is None and not walker.foreign:
            walker.imports = node


def _function(walker: Walker, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    function = Function(node, walker.scope)
    for decorator in node.decorator_list:
        wraps = decorator.func if isinstance(decorator, ast.Call) else decorator
        value = walker.value(wraps)
        if isinstance(value, Ref) and value.name in calls.TRACERS:
            function.is_traced = True
            if isinstance(decorator, ast.Call):
                function.has_signature = calls.has_signature(decorator)
            checks_loops.traced_in_loop(walker, node)
    for default in (*node.args.defaults, *node.args.kw_defaults):
        if default is not None:
            walker.value(default)
    walker.scope.names[node.name] = function
    walker.later.append(function)


def _class(walker: Walker, node: ast.ClassDef) -> None:
    bases = [walker.value(base) for base in node.bases]
    for keyword in node.keywords:
        walker.value(keyword.value)
    made = Class(node, walker.scope, next(filter(None, map(_base_kind, bases)), None))
    for base in bases:
        if isinstance(base, Class):
            walker.inherit(made, base)
    outer, walker.scope = walker.scope, Scope(walker.scope)
    waiting = len(walker.later)
    walker.block(node.body)
    own = {name: item for name, item in walker.scope.names.items() if isinstance(item, Function)}
    made.methods.update(own)
    walker.scope = outer
    # Methods do not see the names of the class body.
    for method in own.values():
        method.scope = outer
        if made.base in ("model", "layer") and getattr(method.node, "name", "") in _TRACED:
            method.is_traced = True
    del walker.later[waiting:]
    walker.scope.names[node.name] = made
    walker.later.append(made)


def _base_kind(base: Value) -> str | None:
    if isinstance(base, Class):
        return base.base
    if not isinstance(base, Ref):
        return None
    if base.name in SEQUENCES:
        return "sequence"
    if base.name in ("keras.Model", "keras.models.Model", "keras.Sequential"):
        return "model"
    return "layer" if base.name in ("keras.layers.Layer", "keras.Layer") else None


STATEMENTS: dict[type, Callable[[Any, Any], None]] = {
    ast.Expr: _expr,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Return: _return,
    ast.Raise: _leave,
    ast.Continue: _leave,
    ast.Break: _leave,
    ast.If: _if,
    ast.Try: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Match: _match,
}
"""How each statement is walked."""
if sys.version_info >= (3, 11):
    STATEMENTS[ast.TryStar] = _try
