"""Walks a module once, in the order it would run, and knows what its names hold.

A function is walked where it is first called, with what it is called with; what is never called
is walked at the end. Branches are walked apart and joined. A loop is walked once. `calls` tells
what a call gives, and the `checks_` modules what is wrong with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from oomdoctor.scripts import calls, checks_loops, values
from oomdoctor.scripts.names import SEQUENCES, canonical
from oomdoctor.scripts.operators import binary, subscript
from oomdoctor.scripts.values import (
    Class,
    Dataset,
    Function,
    Instance,
    Items,
    Loop,
    Maker,
    Model,
    Number,
    Other,
    Ref,
    Sequence,
    Strategy,
    Tensor,
    Text,
    Value,
)

MAX_DEPTH = 25
"""Calls within calls that are followed."""

_TRACED = frozenset(("call", "train_step", "test_step", "predict_step", "build"))
"""Methods of a model or layer that Keras traces, so that nothing in them is eager."""


class Scope:
    """Names of a module, a function or a class body, inside another."""

    __slots__ = ("names", "outer")

    def __init__(self, outer: Scope | None) -> None:
        self.names: dict[str, Value] = {}
        self.outer = outer

    def find(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


class Ended(Exception):
    """The rest of a block is not reached."""


class Walker:
    """One walk over one module."""

    def __init__(self) -> None:
        self.scope = Scope(None)
        self.loops: list[Loop] = []
        self.strategies: list[Strategy] = []
        self.functions: list[Function] = []
        """Those that are being walked, the outermost first."""
        self.returns: list[Value] = []
        self.frame = 0
        self.frames = 0
        self.later: list[Function | Class] = []
        self.matches: list[tuple[Any, ...]] = []
        self.told: set[tuple[str, int]] = set()
        self.imports: ast.AST | None = None
        """Where TensorFlow or Keras is imported first."""
        self.numpy_name: str | None = None
        self.loose_lists: set[int] = set()
        """Calls of `list` whose list nobody keeps: looped over, or counted."""
        self.trains: ast.AST | None = None
        self.grows = False

    # ------------------------------------------------------------------ what is found

    def tell(self, check: str, node: ast.AST, **more: Any) -> None:
        """Keep a match, once for each place."""
        if (check, id(node)) not in self.told:
            self.told.add((check, id(node)))
            self.matches.append((check, node, more))

    @property
    def is_traced(self) -> bool:
        """Whether what is walked becomes a graph, where nothing is kept from turn to turn."""
        return any(function.is_traced for function in self.functions)

    def is_loose_list(self, node: ast.AST) -> bool:
        """Return whether a list is made only to be looped over or counted."""
        return id(node) in self.loose_lists

    def training(self, node: ast.AST) -> None:
        """Remember that a step of training is run here."""
        self.trains = self.trains or node
        for loop in self.loops:
            loop.trains = True

    @property
    def in_getitem(self) -> bool:
        """Whether what is walked runs for every batch."""
        names = (getattr(function.node, "name", "") for function in self.functions)
        return "__getitem__" in names

    # ------------------------------------------------------------------ statements

    def module(self, tree: ast.Module) -> None:
        """Walk all of a module."""
        self.block(tree.body)
        for item in self.later:
            if isinstance(item, Function):
                self.run(item, {})
            else:
                self.walk_class(item, [], {})
        if self.trains is not None and not self.grows and self.imports is not None:
            self.tell("growth-not-set", self.imports)

    def block(self, body: Iterable[ast.stmt]) -> bool:
        """Walk statements in order; return False where the end is not reached."""
        try:
            for statement in body:
                handler = _STATEMENTS.get(type(statement))
                if handler is not None:
                    handler(self, statement)
        except Ended:
            return False
        return True

    def branches(self, *bodies: list[ast.stmt]) -> None:
        """Walk bodies of which one runs, each from the same start, and join what they leave."""
        before = self.scope.names
        ends: list[dict[str, Value]] = []
        for body in bodies:
            self.scope.names = dict(before)
            if self.block(body):
                ends.append(self.scope.names)
        if not ends:
            self.scope.names = before
            raise Ended
        merged = ends[0]
        for end in ends[1:]:
            for name in end.keys() | merged.keys():
                merged[name] = values.joined(merged.get(name), end.get(name))
        # The dictionary stays the same object: closures hold it.
        before.update(merged)
        self.scope.names = before

    def on_expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def on_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def on_annotated(self, node: ast.AnnAssign) -> None:
        value = self.value(node.value) if node.value is not None else None
        if value is None:
            value = self.annotated(node.annotation)
        self.bind(node.target, value)

    def on_augmented(self, node: ast.AugAssign) -> None:
        right = self.value(node.value)
        before = self.value(node.target)
        if isinstance(before, Number):
            self.bind(node.target, Number(varies=bool(self.loops)))
        elif isinstance(before, Sequence) and isinstance(node.op, ast.Add):
            for part in node.value.elts if isinstance(node.value, ast.List) else ():
                checks_loops.kept(self, node, before, self.value(part), part)
        elif not isinstance(before, values.Array) or isinstance(right, values.Array):
            self.bind(node.target, before if isinstance(before, Tensor) else None)

    def on_return(self, node: ast.Return) -> None:
        value = self.value(node.value) if node.value is not None else None
        if self.functions:
            self.returns.append(value)
        raise Ended

    def on_leave(self, node: ast.stmt) -> None:
        raise Ended

    def on_if(self, node: ast.If) -> None:
        self.value(node.test)
        self.branches(node.body, node.orelse)

    def on_try(self, node: ast.Try) -> None:
        self.branches(node.body, *(handler.body for handler in node.handlers))
        self.block(node.orelse)
        self.block(node.finalbody)

    def on_match(self, node: Any) -> None:
        self.value(node.subject)
        self.branches(*(case.body for case in node.cases), [])

    def on_with(self, node: ast.With | ast.AsyncWith) -> None:
        entered = 0
        for item in node.items:
            value = self.value(item.context_expr)
            if isinstance(value, Maker) and isinstance(value.item, Strategy):
                self.strategies.append(value.item)
                entered += 1
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value)
        is_reached = self.block(node.body)
        del self.strategies[len(self.strategies) - entered :]
        if not is_reached:
            raise Ended

    def on_for(self, node: ast.For | ast.AsyncFor) -> None:
        self.loose_lists.add(id(node.iter))
        over = self.value(node.iter)
        loop = self.enter(node, over)
        self.bind(node.target, calls.element_of(over))
        self.block(node.body)
        self.leave(loop)
        self.block(node.orelse)

    def on_while(self, node: ast.While) -> None:
        self.value(node.test)
        loop = self.enter(node, None)
        self.block(node.body)
        self.leave(loop)
        self.block(node.orelse)

    def enter(self, node: ast.AST, over: Value) -> Loop:
        loop = Loop(node, self.frame, over)
        self.loops.append(loop)
        return loop

    def leave(self, loop: Loop) -> None:
        self.loops.pop()
        checks_loops.settle(self, loop)

    def on_import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._seen_import(node, alias.name)
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            if alias.name == "numpy":
                self.numpy_name = alias.asname or name
            self.scope.names[alias.asname or name] = Ref(canonical(name))

    def on_import_from(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            module = "."
        else:
            module = node.module
            self._seen_import(node, module)
        for alias in node.names:
            if alias.name != "*":
                full = canonical(f"{module}.{alias.name}")
                self.scope.names[alias.asname or alias.name] = Ref(full)

    def _seen_import(self, node: ast.AST, module: str) -> None:
        if self.imports is None and canonical(module).partition(".")[0] in ("tensorflow", "keras"):
            self.imports = node

    def on_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function = Function(node, self.scope)
        for decorator in node.decorator_list:
            wraps = decorator.func if isinstance(decorator, ast.Call) else decorator
            value = self.value(wraps)
            if isinstance(value, Ref) and value.name in calls.TRACERS:
                function.is_traced = True
                if isinstance(decorator, ast.Call):
                    function.has_signature = calls.has_signature(decorator)
                checks_loops.traced_in_loop(self, node)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.value(default)
        self.scope.names[node.name] = function
        self.later.append(function)

    def on_class(self, node: ast.ClassDef) -> None:
        bases = [self.value(base) for base in node.bases]
        for keyword in node.keywords:
            self.value(keyword.value)
        made = Class(node, self.scope, next(filter(None, map(_base_kind, bases)), None))
        for base in bases:
            if isinstance(base, Class):
                made.methods.update(base.methods)
        outer, self.scope = self.scope, Scope(self.scope)
        waiting = len(self.later)
        self.block(node.body)
        own = {
            name: item for name, item in self.scope.names.items() if isinstance(item, Function)
        }
        made.methods.update(own)
        self.scope = outer
        # Methods do not see the names of the class body.
        for method in own.values():
            method.scope = outer
            if made.base in ("model", "layer") and getattr(method.node, "name", "") in _TRACED:
                method.is_traced = True
        del self.later[waiting:]
        self.scope.names[node.name] = made
        self.later.append(made)

    # ------------------------------------------------------------------ functions

    def run(self, function: Function, given: dict[str, Value]) -> Value:
        """Walk a function the first time it is called, and return what it gives."""
        if function.is_walked or len(self.functions) >= MAX_DEPTH:
            return function.result
        function.is_walked = True
        outer = self.scope, self.returns, self.frame
        self.scope, self.returns = Scope(function.scope), []
        self.frames += 1
        self.frame = self.frames
        self.functions.append(function)
        arguments = function.node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            value = given.get(argument.arg)
            if value is None and argument.annotation is not None:
                value = self.annotated(argument.annotation)
            self.scope.names[argument.arg] = value
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                self.scope.names[extra.arg] = Other()
        if isinstance(function.node, ast.Lambda):
            self.returns.append(self.value(function.node.body))
        else:
            if function.owner is not None and arguments.args:
                self.scope.names[arguments.args[0].arg] = function.owner
            self.block(function.node.body)
        result: Value = None
        for value in self.returns:
            result = values.joined(result, value)
        function.result = result
        self.functions.pop()
        self.scope, self.returns, self.frame = outer
        return result

    def walk_class(self, made: Class, args: list[Value], keywords: dict[str, Value]) -> None:
        """Walk the methods of a class, `__init__` first, with what the first object is given."""
        if made.is_walked:
            return
        made.is_walked = True
        instance = self.instance_of(made)
        for method in made.methods.values():
            method.owner = instance
        start = made.methods.get("__init__")
        if start is not None:
            self.run(start, calls.bound(start, args, keywords))
        for method in made.methods.values():
            self.run(method, {})

    def instance_of(self, made: Class) -> Instance:
        if made.instance is None:
            made.instance = Instance(made)
        return made.instance

    # ------------------------------------------------------------------ names

    def bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = _parts(value, len(target.elts))
            for inner, part in zip(target.elts, parts, strict=True):
                self.bind(inner.value if isinstance(inner, ast.Starred) else inner, part)
        elif isinstance(target, ast.Attribute):
            holder = self.value(target.value)
            if isinstance(holder, Instance):
                holder.attributes[target.attr] = value
            if target.attr == "allow_growth":
                self.grows = True
        elif isinstance(target, ast.Subscript):
            self.value(target.value)
            self.value(target.slice)

    def annotated(self, node: ast.expr) -> Value:
        """Return what an annotation promises."""
        value = self.value(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if not isinstance(value, Ref):
            return None
        if value.name == "tensorflow.data.Dataset":
            return Dataset()
        if value.name in ("keras.Model", "keras.models.Model", "keras.Sequential"):
            return Model()
        return None

    # ------------------------------------------------------------------ expressions

    def value(self, node: ast.expr | None) -> Value:
        """Return what is known of an expression, having walked it."""
        handler = _EXPRESSIONS.get(type(node))
        if handler is not None:
            return handler(self, node)
        if node is not None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child)
        return None

    def on_constant(self, node: ast.Constant) -> Value:
        kind = type(node.value)
        if kind is str:
            if node.value == "TF_FORCE_GPU_ALLOW_GROWTH":
                self.grows = True
            return Text(node.value)  # type: ignore[arg-type]
        if kind is int or kind is float:
            return Number(node.value)  # type: ignore[arg-type]
        return None

    def on_name(self, node: ast.Name) -> Value:
        found = self.scope.find(node.id)
        if found is None and node.id in calls.BUILTINS:
            return Ref(f"builtins.{node.id}")
        return found

    def on_attribute(self, node: ast.Attribute) -> Value:
        holder = self.value(node.value)
        if isinstance(holder, Ref):
            return Ref(canonical(f"{holder.name}.{node.attr}"))
        if isinstance(holder, Instance):
            if node.attr in holder.attributes:
                return holder.attributes[node.attr]
            return holder.of.methods.get(node.attr)
        if isinstance(holder, Strategy) and node.attr == "num_replicas_in_sync":
            return Number(holder.replicas)
        return calls.attribute(holder, node.attr)

    def on_call(self, node: ast.Call) -> Value:
        return calls.call(self, node)

    def on_binary(self, node: ast.BinOp) -> Value:
        return binary(self, node, self.value(node.left), self.value(node.right))

    def on_subscript(self, node: ast.Subscript) -> Value:
        holder = self.value(node.value)
        index = self.value(node.slice)
        return subscript(holder, node.slice, index)

    def on_list(self, node: ast.List) -> Value:
        parts = [self.value(part) for part in node.elts]
        return Sequence(len(self.loops), parts[0] if parts else None)

    def on_tuple(self, node: ast.Tuple) -> Value:
        return Items(tuple([self.value(part) for part in node.elts]))

    def on_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        outer, self.scope = self.scope, Scope(self.scope)
        loops = []
        for generator in node.generators:
            over = self.value(generator.iter)
            loops.append(self.enter(node, over))
            self.bind(generator.target, calls.element_of(over))
            for test in generator.ifs:
                self.value(test)
        item = self.value(node.elt)
        if not isinstance(node, ast.GeneratorExp):
            checks_loops.comprehension(self, node, loops[0].over, item)
        for loop in reversed(loops):
            self.leave(loop)
        self.scope = outer
        made = Sequence(len(self.loops), item)
        if isinstance(item, values.Picture):
            made.pictures = node
        return made

    def on_dict_comprehension(self, node: ast.DictComp) -> Value:
        outer, self.scope = self.scope, Scope(self.scope)
        loops = []
        for generator in node.generators:
            over = self.value(generator.iter)
            loops.append(self.enter(node, over))
            self.bind(generator.target, calls.element_of(over))
        self.value(node.key)
        self.value(node.value)
        for loop in reversed(loops):
            self.leave(loop)
        self.scope = outer
        return None

    def on_lambda(self, node: ast.Lambda) -> Value:
        function = Function(node, self.scope)
        self.later.append(function)
        return function

    def on_conditional(self, node: ast.IfExp) -> Value:
        self.value(node.test)
        return values.joined(self.value(node.body), self.value(node.orelse))

    def on_named(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.bind(node.target, value)
        return value


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


def _parts(value: Value, count: int) -> list[Value]:
    if isinstance(value, Items) and len(value.parts) == count:
        return list(value.parts)
    if isinstance(value, Tensor) and value.of_dataset is not None:
        rest: list[Value] = [Tensor(of_dataset=value.of_dataset)] * (count - 1)
        return [value, *rest]
    return [None] * count


_STATEMENTS: dict[type, Callable[[Any, Any], None]] = {
    ast.Expr: Walker.on_expr,
    ast.Assign: Walker.on_assign,
    ast.AnnAssign: Walker.on_annotated,
    ast.AugAssign: Walker.on_augmented,
    ast.Return: Walker.on_return,
    ast.Raise: Walker.on_leave,
    ast.Continue: Walker.on_leave,
    ast.Break: Walker.on_leave,
    ast.If: Walker.on_if,
    ast.Try: Walker.on_try,
    ast.With: Walker.on_with,
    ast.AsyncWith: Walker.on_with,
    ast.For: Walker.on_for,
    ast.AsyncFor: Walker.on_for,
    ast.While: Walker.on_while,
    ast.Import: Walker.on_import,
    ast.ImportFrom: Walker.on_import_from,
    ast.FunctionDef: Walker.on_function,
    ast.AsyncFunctionDef: Walker.on_function,
    ast.ClassDef: Walker.on_class,
    ast.Match: Walker.on_match,
}

_EXPRESSIONS: dict[Any, Callable[[Any, Any], Value]] = {
    ast.Constant: Walker.on_constant,
    ast.Name: Walker.on_name,
    ast.Attribute: Walker.on_attribute,
    ast.Call: Walker.on_call,
    ast.BinOp: Walker.on_binary,
    ast.Subscript: Walker.on_subscript,
    ast.List: Walker.on_list,
    ast.Tuple: Walker.on_tuple,
    ast.ListComp: Walker.on_comprehension,
    ast.SetComp: Walker.on_comprehension,
    ast.GeneratorExp: Walker.on_comprehension,
    ast.DictComp: Walker.on_dict_comprehension,
    ast.Lambda: Walker.on_lambda,
    ast.IfExp: Walker.on_conditional,
    ast.NamedExpr: Walker.on_named,
}
