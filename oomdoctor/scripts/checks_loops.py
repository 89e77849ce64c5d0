"""Mistakes that memory pays for turn by turn of a loop."""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts.checks_pictures import sized
from oomdoctor.scripts.layout import product
from oomdoctor.scripts.values import (
    MAX_LOOKED_AT,
    Dataset,
    Function,
    Items,
    Loop,
    Maker,
    Model,
    Number,
    Sequence,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker


FEW_MODELS = 2
"""Models that a loop may build: a few are no leak worth telling of."""


def is_large(dataset: Value) -> bool:
    """Return whether a value is a dataset that is not known to be small."""
    return isinstance(dataset, Dataset) and dataset.content not in ("small", "paths", "table")


def held(walker: Walker, node: ast.AST, dataset: Dataset, **more: Any) -> None:
    """Tell of a dataset that is read into a list."""
    if is_large(dataset):
        check = "dataset-read-in-getitem" if walker.in_getitem else "dataset-held-in-list"
        assert isinstance(dataset, Dataset)
        more["detail"] = "pictures" if dataset.is_pictures else "unknown"
        walker.tell(check, node, **more, **sized(dataset.layout, dataset.count))


def kept(walker: Walker, node: ast.AST, into: Sequence, value: Value, part: ast.expr) -> None:
    """Tell of what is appended to a list that outlives the loop."""
    if into.item is None:
        into.item = value
    loops = walker.loops[into.depth :]
    if not loops or walker.is_traced or not isinstance(value, Tensor):
        return
    if value.of_dataset is not None:
        if value.is_input:
            held(walker, node, value.of_dataset)
        return
    if any(isinstance(loop.over, Dataset) and not is_large(loop.over) for loop in loops):
        return
    can_fix = value.is_scalar and isinstance(node, ast.Call) and not walker.reads_tensors
    more = {"name": part.id if isinstance(part, ast.Name) else None, "is_fixable": can_fix}
    more["detail"] = "scalar" if value.is_scalar else "tensor"
    loops[-1].pending.append(("tensor-kept-in-loop", node, more))


def comprehension(walker: Walker, node: ast.AST, over: Value, item: Value) -> None:
    """Tell of a dataset, or of a model's output for all of it, that a comprehension keeps."""
    if not isinstance(over, Dataset) or not isinstance(item, Tensor) or walker.is_traced:
        return
    if walker.is_loose_list(node):
        return
    if item.of_dataset is None:
        if is_large(over) and not item.is_scalar:
            walker.tell("tensor-kept-in-loop", node, detail="evaluation")
    elif item.is_input:
        held(walker, node, over)


def used(walker: Walker, model: Model) -> None:
    """Tell of a model that is trained or asked in the loop it was built in."""
    loop = model.loop
    if loop is None or loop not in walker.loops or model.node is None:
        return
    turns = [_turns(outer) for outer in walker.loops[: walker.loops.index(loop) + 1]]
    count = product(*turns)
    if count is not None and count < FEW_MODELS:
        return
    is_endless = any(isinstance(outer.node, ast.While) for outer in walker.loops)
    more = {"count": count, "detail": "while" if is_endless else None, "name": looped(loop)}
    loop.pending.append(("model-built-in-loop", walker.place_in(loop, model.node), more))


def looped(loop: Loop) -> str | None:
    """Return the variable of a loop."""
    target = getattr(loop.node, "target", None)
    return target.id if isinstance(target, ast.Name) else None


def _turns(loop: Loop) -> int | None:
    """Return how many turns a loop takes, where the code says so."""
    over = loop.over
    if isinstance(over, Maker) and over.kind == "range":
        item = over.item
        is_plain = isinstance(loop.node, ast.For) and isinstance(loop.node.iter, ast.Call)
        plain = is_plain and len(loop.node.iter.args) == 1  # type: ignore[attr-defined]
        if plain and isinstance(item, Number) and isinstance(item.value, int):
            return max(0, item.value)
    return _count(over)


def _count(over: Value) -> int | None:
    """Return how many things a loop goes through, at most."""
    if isinstance(over, Dataset):
        return over.elements
    if isinstance(over, Sequence):
        return len(over.parts) or None
    if isinstance(over, Maker) and over.kind == "range":
        size = over.item.value if isinstance(over.item, Number) else None
        return size if isinstance(size, int) else None
    if isinstance(over, Maker) and over.kind == "enumerate" and isinstance(over.source, Dataset):
        return over.source.elements
    if isinstance(over, Maker) and over.kind == "zip" and isinstance(over.source, Items):
        plain = (part for part in over.source.parts if not isinstance(part, Items))
        known = [count for count in map(_shallow, plain) if count is not None]
        return min(known) if known else None
    return len(over.parts) if isinstance(over, Items) else None


def _shallow(over: Value) -> int | None:
    """Return the same of what is no zip itself: zips may hold each other without end."""
    return None if isinstance(over, Maker) and over.kind == "zip" else _count(over)


def predicted(walker: Walker, node: ast.Call, model: Model) -> None:
    """Tell of `predict` that is called for each turn of a loop, on what that turn brings."""
    if not walker.loops or walker.is_rare:
        return
    if model.loop is not None and model.loop in walker.loops:
        return
    if _turns(walker.loops[-1]) == 1:
        return
    loop = walker.loops[-1]
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    names = {
        inner.id
        for argument in arguments
        for inner in islice(ast.walk(argument), MAX_LOOKED_AT)
        if isinstance(inner, ast.Name)
    }
    changes = names & loop.assigned if loop.frame == walker.frame else names
    if changes:
        name = node.func.value if isinstance(node.func, ast.Attribute) else None
        shown = ast.unparse(name) if isinstance(name, (ast.Name, ast.Attribute)) else None
        loop.pending.append(("predict-in-loop", node, {"name": shown}))


def traced_in_loop(walker: Walker, node: ast.AST) -> None:
    """Tell of a `tf.function` that is made anew in each turn."""
    if any(loop.frame == walker.frame for loop in walker.loops) and not walker.is_traced:
        name = getattr(node, "name", None)
        walker.tell("function-made-in-loop", node, name=name)


def traced_call(walker: Walker, node: ast.Call, function: Function, args: list[Value]) -> None:
    """Tell of a Python number that changes and is handed to a `tf.function`: each is traced."""
    if not walker.loops or function.has_signature or walker.is_traced:
        return
    for argument, value in zip(node.args, args, strict=False):
        if isinstance(value, Number) and value.varies:
            walker.tell("retraced-for-each-number", node, name=_shown(argument))
            return


def _shown(node: ast.expr) -> str:
    """Return an expression as text, and three dots for one that nobody would read."""
    is_short = node.lineno == node.end_lineno and (node.end_col_offset or 0) - node.col_offset < 500
    return ast.unparse(node)[:40] if is_short else "…"


def settle(walker: Walker, loop: Loop) -> None:
    """Tell what a loop turned out to do, now that all of it was walked."""
    for check, node, more in loop.pending:
        if check == "tensor-kept-in-loop":
            holds = loop.trains or is_large(loop.over)
            if more["detail"] == "tensor" and not loop.steps:
                more["detail"] = "evaluation"
        elif check == "model-built-in-loop":
            holds = not loop.is_cleared and not loop.keeps_models
        else:
            holds = not loop.is_cleared
        if holds:
            walker.tell(check, node, **more)
