"""Walks a module once, in the order it would run, and knows what its names hold.

A function is walked where it is first called, with what it is called with; what is never called
is walked at the end. Branches are walked apart and joined. A loop is walked once. `calls` tells
what a call gives, and the `checks_` modules what is wrong with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from oomdoctor.scripts import checks_copies, checks_loops, checks_pictures
from oomdoctor.scripts.calls_python import bound
from oomdoctor.scripts.expressions import EXPRESSIONS
from oomdoctor.scripts.layout import Dims
from oomdoctor.scripts.projects import Project, rooted
from oomdoctor.scripts.statements import STATEMENTS
from oomdoctor.scripts.values import (
    Class,
    Dataset,
    Ended,
    Function,
    Instance,
    Items,
    Loop,
    Model,
    Other,
    Ref,
    Scope,
    Strategy,
    Tensor,
    Value,
    joined,
)

MAX_DEPTH = 25
"""Calls within calls that are followed."""
MAX_COPIED = 5_000_000
"""Names that branches may copy, all together: a second's work, and far more than people write."""
MAX_INHERITED = 100_000
"""Methods that classes may take from others, all together."""
MAX_WALKS = 10
"""How often a function may be walked: `tf.function` makes another of it each time it is called."""


class TooMuch(Exception):
    """There is more in a file than is worth the time."""


class Walker:
    """One walk over one module."""

    def __init__(self, project: Project | None = None, *, knows_framework: bool = False) -> None:
        self.project = project
        self.knows_framework = knows_framework
        """Whether the file gets TensorFlow or Keras, if only through a module beside it."""
        self.stars: list[str] = []
        """Packages whose names are all imported: `from keras.layers import *`."""
        self.starred: set[str] = set()
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
        self.told_nodes: set[int] = set()
        self.foreign = 0
        """Calls of other files' functions that are being walked."""
        self.copies: list[tuple[Any, ...]] = []
        """What the statement that is walked copies of a dataset."""
        self.given: dict[str, Value] = {}
        """What the function that is walked was given."""
        self.escaping: list[tuple[Any, ...]] = []
        """What the function that is walked copies of its arguments, and gives."""
        self.makers: dict[str, tuple[ast.expr, int]] = {}
        """The calls that made the empty arrays that names hold, and in how many loops."""
        self.state: Dims | None = None
        """The shape of one input of the model, if it is an image."""
        self.is_rare = False
        """Whether what is walked runs only in some turns: `if step % 100 == 0`."""
        self.calls: list[tuple[int, ast.AST]] = []
        """The calls that led here, each with the frame it was made in."""
        self.imports: ast.AST | None = None
        """Where TensorFlow or Keras is imported first."""
        self.numpy_name: str | None = None
        self.loose_lists: set[int] = set()
        """Calls of `list` whose list nobody keeps: looped over, or counted."""
        self.tree: ast.Module | None = None
        self.trains: ast.AST | None = None
        self.grows = False
        self._reads_tensors: bool | None = None
        self._copied = 0
        self._inherited = 0
        self._walks: dict[int, int] = {}
        self._stores: dict[str, list[int]] | None = None

    # ------------------------------------------------------------------ what is found

    def tell(self, check: str, node: ast.AST, **more: Any) -> None:
        """Keep a match, once for each place."""
        if self.foreign:
            return  # another file's; what it gives is told where this file calls it
        if (check, id(node)) not in self.told:
            self.told.add((check, id(node)))
            self.told_nodes.add(id(node))
            self.matches.append((check, node, more))

    def has_told(self, node: ast.AST) -> bool:
        """Return whether anything was told of a place."""
        return id(node) in self.told_nodes

    def place_in(self, loop: Loop, node: ast.AST) -> ast.AST:
        """Return the place in the body of a loop that leads to a node."""
        return next((call for frame, call in self.calls if frame == loop.frame), node)

    @property
    def stores(self) -> dict[str, list[int]]:
        """The lines where each name is bound or deleted."""
        if self._stores is None:
            found: dict[str, list[int]] = {}
            for node in ast.walk(self.tree) if self.tree else ():
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    found.setdefault(node.id, []).append(node.lineno)
            for lines in found.values():
                lines.sort()
            self._stores = found
        return self._stores

    @property
    def is_traced(self) -> bool:
        """Whether what is walked becomes a graph, where nothing is kept from turn to turn."""
        return any(function.is_traced for function in self.functions)

    def is_argument(self, node: ast.expr | None) -> bool:
        """Return whether an expression is what the function that is walked was given, unknown."""
        if not self.functions or not isinstance(node, ast.Name):
            return False
        is_parameter = node.id in self.functions[-1].parameters
        return is_parameter and self.scope.names.get(node.id) is None

    @property
    def reads_tensors(self) -> bool:
        """Whether anything in the module asks a tensor for its value."""
        if self._reads_tensors is None:
            nodes = ast.walk(self.tree) if self.tree else ()
            self._reads_tensors = any(
                isinstance(node, ast.Attribute) and node.attr == "numpy" for node in nodes
            )
        return self._reads_tensors

    def is_loose_list(self, node: ast.AST) -> bool:
        """Return whether a list is made only to be looped over or counted."""
        return id(node) in self.loose_lists

    def training(self, node: ast.AST, *, steps: bool = False) -> None:
        """Remember that training is run here, and whether it is a step that changes weights."""
        self.trains = self.trains or (None if self.foreign else node)
        for loop in self.loops:
            loop.trains = True
            loop.steps = loop.steps or (steps and not self.is_rare)

    @property
    def in_getitem(self) -> bool:
        """Whether what is walked runs for every batch."""
        names = (getattr(function.node, "name", "") for function in self.functions)
        return "__getitem__" in names

    # ------------------------------------------------------------------ statements

    def module(self, tree: ast.Module) -> None:
        """Walk all of a module."""
        self.tree = tree
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
                handler = STATEMENTS.get(type(statement))
                if handler is not None:
                    handler(self, statement)
        except Ended:
            return False
        return True

    def branches(self, *bodies: list[ast.stmt]) -> None:
        """Walk bodies of which one runs, each from the same start, and join what they leave."""
        before = self.scope.names
        self._copied += len(before) * len(bodies)
        if self._copied > MAX_COPIED:
            raise TooMuch
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
            for name, value in end.items():
                if merged.get(name) is not value:
                    merged[name] = joined(merged.get(name), value)
        # The dictionary stays the same object: closures hold it.
        before.update(merged)
        self.scope.names = before

    def enter(self, node: ast.AST, over: Value) -> Loop:
        """Begin a loop."""
        loop = Loop(node, self.frame, over)
        self.loops.append(loop)
        return loop

    def leave(self, loop: Loop) -> None:
        """End a loop, and tell what it turned out to do."""
        self.loops.pop()
        checks_loops.settle(self, loop)

    # ------------------------------------------------------------------ functions

    def will_run(self, function: Function) -> bool:
        """Return whether a function is still to be walked."""
        return (
            not function.is_walked
            and len(self.functions) < MAX_DEPTH
            and self._walks.get(id(function.node), 0) < MAX_WALKS
        )

    def run(
        self, function: Function, given: dict[str, Value], call: ast.AST | None = None
    ) -> Value:
        """Walk a function the first time it is called, and return what it gives."""
        if not self.will_run(function):
            return function.result
        function.is_walked = True
        self._walks[id(function.node)] = self._walks.get(id(function.node), 0) + 1
        outer = self.scope, self.returns, self.frame, self.copies, self.escaping, self.given
        self.escaping, self.given = [], given
        if call is not None:
            self.calls.append((self.frame, call))
        self.foreign += function.is_foreign
        self.scope, self.returns, self.copies = Scope(function.scope), [], []
        self.frames += 1
        self.frame = self.frames
        self.functions.append(function)
        self._bind_arguments(function, given)
        if isinstance(function.node, ast.Lambda):
            self.returns.append(self.value(function.node.body))
        else:
            self.block(function.node.body)
        result: Value = None
        for value in self.returns:
            result = joined(result, value)
        if function.is_foreign and self.foreign == 1 and call is not None:
            result = rooted(result, call)
        function.result = result
        self.functions.pop()
        self.foreign -= function.is_foreign
        if function.is_foreign and not self.foreign:
            checks_pictures.consumed(self, result)
        if call is not None:
            self.calls.pop()
        copied = self.escaping
        self.scope, self.returns, self.frame, self.copies, self.escaping, self.given = outer
        if copied and isinstance(call, ast.Call):
            self.copies += checks_copies.escaped(function, call, copied)
        return result

    def _bind_arguments(self, function: Function, given: dict[str, Value]) -> None:
        arguments = function.node.args
        named = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(
            zip([one.arg for one in named][::-1], arguments.defaults[::-1], strict=False)
        )
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            value = given.get(argument.arg)
            default = defaults.get(argument.arg)
            if value is None and argument.arg not in given and isinstance(default, ast.Constant):
                value = self.value(default)
            if value is None and argument.annotation is not None:
                value = self.annotated(argument.annotation)
            self.scope.names[argument.arg] = value
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                self.scope.names[extra.arg] = Other()
        if function.owner is not None and arguments.args:
            self.scope.names[arguments.args[0].arg] = function.owner

    def inherit(self, made: Class, base: Class) -> None:
        """Give a class the methods of another."""
        self._inherited += len(base.methods)
        if self._inherited > MAX_INHERITED:
            raise TooMuch
        made.methods.update(base.methods)

    def walk_class(
        self,
        made: Class,
        args: list[Value],
        keywords: dict[str, Value],
        call: ast.AST | None = None,
    ) -> None:
        """Walk the methods of a class, `__init__` first, with what the first object is given."""
        if made.is_walked:
            return
        made.is_walked = True
        instance = self.instance_of(made)
        for method in made.methods.values():
            method.owner = instance
        start = made.methods.get("__init__")
        if start is not None:
            self.run(start, bound(start, args, keywords), call)
        # The others are walked where they are called, and what nobody calls at the end.
        self.later += [method for method in made.methods.values() if not method.is_foreign]

    def instance_of(self, made: Class) -> Instance:
        """Return the object that stands for all of a class."""
        if made.instance is None:
            made.instance = Instance(made)
        return made.instance

    # ------------------------------------------------------------------ names

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a name, an attribute or several of them a value."""
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
        handler = EXPRESSIONS.get(type(node))
        if handler is not None:
            return handler(self, node)
        if node is not None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child)
        return None


def _parts(value: Value, count: int) -> list[Value]:
    if isinstance(value, Items) and len(value.parts) == count:
        return list(value.parts)
    if isinstance(value, Tensor) and value.of_dataset is not None:
        rest: list[Value] = [Tensor(of_dataset=value.of_dataset)] * (count - 1)
        return [value, *rest]
    return [None] * count
