"""What a call gives, by what is called."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from oomdoctor.scripts import checks_copies, checks_loops
from oomdoctor.scripts.calls_arrays import make_array
from oomdoctor.scripts.calls_data import make_dataset
from oomdoctor.scripts.calls_model import make_model_part
from oomdoctor.scripts.calls_python import bound, builtin, other_package
from oomdoctor.scripts.methods import attribute, method
from oomdoctor.scripts.names import is_foreign
from oomdoctor.scripts.values import (
    Array,
    Class,
    Function,
    Instance,
    Maker,
    Model,
    Other,
    Ref,
    Symbolic,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

TRACERS = frozenset(("tensorflow.function",))

BUILTINS = frozenset(
    ("dict", "enumerate", "float", "int", "iter", "len", "list", "map", "next", "range", "reversed",
     "set", "sorted", "tuple", "zip")
)  # fmt: skip

_GROWTH = ("set_memory_growth", "logical_device_configuration", "virtual_device_configuration",
           "LogicalDeviceConfiguration", "VirtualDeviceConfiguration", "set_visible_devices",
           "GPUOptions")  # fmt: skip


_LEN = Ref("builtins.len")


class Arguments:
    """The values a call is given."""

    __slots__ = ("args", "keywords", "node")

    def __init__(self, walker: Walker, node: ast.Call) -> None:
        self.node = node
        self.args = [walker.value(arg) for arg in node.args]
        self.keywords = {
            keyword.arg: walker.value(keyword.value) for keyword in node.keywords if keyword.arg
        }
        for keyword in node.keywords:
            if keyword.arg is None:
                walker.value(keyword.value)

    def get(self, place: int, name: str) -> Value:
        """Return an argument by its place or its name."""
        if place < len(self.args):
            return self.args[place]
        return self.keywords.get(name)

    def expression(self, place: int, name: str) -> ast.expr | None:
        """Return the same as it is written."""
        if place < len(self.node.args):
            return self.node.args[place]
        return next((item.value for item in self.node.keywords if item.arg == name), None)

    def __contains__(self, name: str) -> bool:
        return name in self.keywords


def call(walker: Walker, node: ast.Call) -> Value:
    """Return what a call gives, having walked it."""
    function = node.func
    if isinstance(function, ast.Attribute):
        holder = walker.value(function.value)
        if not isinstance(holder, (Ref, Instance)):
            return method(walker, node, holder, function.attr, Arguments(walker, node))
        if isinstance(holder, Instance) and holder.of.base == "model":
            known = function.attr in holder.attributes or function.attr in holder.of.methods
            if not known:
                Arguments(walker, node)
                return None
        callee = attribute(holder, function.attr)
    else:
        callee = walker.value(function)
        if callee == _LEN and node.args:
            walker.loose_lists.add(id(node.args[0]))
    given = Arguments(walker, node)
    if callee is None and given.args and isinstance(given.args[0], Array):
        return _prepared(walker, node, given.args[0])
    if isinstance(callee, Ref):
        return _imported(walker, node, callee.name, given)
    if isinstance(callee, Function):
        return _function(walker, node, callee, given)
    if isinstance(callee, Class):
        return _instance(walker, node, callee, given)
    return _object(callee, given)


def _prepared(walker: Walker, node: ast.Call, array: Array) -> Value:
    """Return what a function of another package gives that prepares images by its name."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if not array.is_whole or "preprocess" not in name:
        return None
    checks_copies.made(walker, node, node.args[0], array)
    return replace(array, dtype="float32")


def _object(callee: Value, given: Arguments) -> Value:
    """Return what calling an object gives."""
    first = given.args[0] if given.args else None
    if isinstance(callee, (Model, Maker)) and isinstance(first, Symbolic):
        return Symbolic()
    if isinstance(callee, Model):
        return Tensor()
    if isinstance(callee, Maker):
        if callee.kind == "loss":
            return Tensor(is_scalar=True)
        if callee.kind == "traced" or isinstance(first, Tensor):
            return Tensor()
    return None


def _function(walker: Walker, node: ast.Call, function: Function, given: Arguments) -> Value:
    if function.is_traced:
        checks_loops.traced_call(walker, node, function, given.args)
        walker.training(node)
    result = function.result
    if walker.will_run(function):
        result = walker.run(function, bound(function, given.args, given.keywords), node)
    if function.is_traced and result is None:
        return Tensor()
    if isinstance(result, Model) and result.loop is None and walker.loops and result.node:
        # A function that builds a model builds another one in each turn.
        return _built(walker, node, result)
    return result


def has_signature(node: ast.Call) -> bool:
    """Return whether `tf.function` is told what it will be given."""
    return any(keyword.arg == "input_signature" for keyword in node.keywords)


def _built(walker: Walker, node: ast.AST, model: Model | None = None) -> Model:
    loop = walker.loops[-1] if walker.loops else None
    strategy = model.strategy if model else None
    strategy = walker.strategies[-1] if walker.strategies else strategy
    return Model(node=node, loop=loop, strategy=strategy, gpus=model.gpus if model else None)


# --------------------------------------------------------------------------- what is imported


def _imported(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    package = name.partition(".")[0]
    if package == "builtins":
        return builtin(walker, node, name[9:], given)
    is_plain, value = other_package(walker, node, name, given)
    if is_plain:
        return value
    if package in ("tensorflow", "keras", "tensorflow_datasets"):
        return _of_framework(walker, node, name, given)
    if package in (
        "numpy",
        "h5py",
        "cv2",
        "PIL",
        "imageio",
        "skimage",
        "matplotlib",
        "tifffile",
        "SimpleITK",
        "scipy",
        "patchify",
        "keras_preprocessing",
    ):
        return make_array(walker, node, name, given)
    if is_foreign(name):
        return Other()
    if walker.project is None:
        return None
    found = walker.project.symbol(walker, name)
    if isinstance(found, Function):
        return _function(walker, node, found, given)
    if isinstance(found, Class):
        return _instance(walker, node, found, given)
    return None


def _instance(walker: Walker, node: ast.Call, made: Class, given: Arguments) -> Value:
    walker.walk_class(made, given.args, given.keywords, node)
    if made.base == "model":
        return _built(walker, node)
    return walker.instance_of(made)


def _of_framework(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    last = name.rpartition(".")[2]
    if name in TRACERS:
        return _trace(walker, node, given)
    if last == "clear_session":
        for loop in walker.loops:
            loop.is_cleared = True
        return Other()
    if any(word in last for word in _GROWTH):
        walker.grows = True
        return Other()
    is_dataset, value = make_dataset(walker, node, name, given)
    if is_dataset:
        return value
    value = make_array(walker, node, name, given)
    if value is not None:
        return value
    value = make_model_part(walker, node, name, given)
    if isinstance(value, Model):
        return _built(walker, node, value)
    return value


def _trace(walker: Walker, node: ast.Call, given: Arguments) -> Value:
    if not given.args:
        return Ref("tensorflow.function")
    checks_loops.traced_in_loop(walker, node)
    wrapped = given.args[0]
    if isinstance(wrapped, Function):
        return Function(
            wrapped.node,
            wrapped.scope,
            is_traced=True,
            has_signature=has_signature(node),
            owner=wrapped.owner,
        )
    return Maker("traced")
