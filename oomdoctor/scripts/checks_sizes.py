"""Buffers and arrays whose size the code itself says, and one-hot arrays that nobody needs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from oomdoctor.scripts.checks_pictures import sized
from oomdoctor.scripts.layout import Layout, computed, product
from oomdoctor.scripts.values import Array, Items, Length, Maker, Number, Other, Picture, Value
from oomdoctor.units import GIB

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

STATES = 2
"""States in one transition: before and after."""
TRANSITION = 4
"""Parts of a transition: state, action, reward, next state, and often whether it is the last."""


def allocated(walker: Walker, node: ast.Call, array: Array) -> None:
    """Tell of an array that takes a gibibyte by what its shape says."""
    size = array.size_bytes
    if size is not None and size >= GIB and array.count:
        layout = Layout(array.dims, array.dtype)
        walker.tell("large-array", node, **sized(layout, array.count))


def buffer(walker: Walker, node: ast.Call, given: Arguments) -> Value:
    """Return a queue, with how much it may hold."""
    limit = given.get(1, "maxlen")
    return (
        Maker("deque", limit if isinstance(limit, Number) else None, Other())
        if limit
        else Maker("deque", Number(), Other())
    )


def remembered(walker: Walker, node: ast.Call, queue: Maker, given: Arguments) -> None:
    """Tell of a replay buffer whose states are images."""
    parts = given.args[0] if given.args else None
    limit = queue.item.value if isinstance(queue.item, Number) else None
    if not isinstance(parts, Items) or len(parts.parts) < TRANSITION or not isinstance(limit, int):
        return
    state = next((part for part in parts.parts if isinstance(part, Picture)), None)
    layout = state.layout if state else Layout(walker.state, "uint8")
    total = product(limit, STATES, layout.size_bytes)
    if total is not None and total >= GIB:
        each = layout.size_bytes or 0
        walker.tell(
            "replay-buffer-in-ram",
            node,
            count=limit,
            size_bytes=total,
            size=computed((limit, STATES), each),
        )


def one_hot(walker: Walker, node: ast.Call, first: Array, given: Arguments) -> None:
    """Tell of masks that become one-hot, where a sparse loss takes them as they are."""
    classes = given.get(1, "num_classes")
    number = classes.value if isinstance(classes, Number) else None
    count = number if isinstance(number, int) else None
    more = {}
    if first.dims is not None and count is not None:
        more = sized(Layout((*first.dims, count), "float32"), first.count)
    walker.tell("one-hot-labels", node, count=count, detail="masks", **more)


def written(walker: Walker, target: ast.Subscript, holder: Value, value: Value) -> None:
    """Tell of text that is written as one-hot: `x[i, t, index[char]] = 1`."""
    if not isinstance(holder, Array) or holder.is_filled or holder.size != "text":
        return
    is_one = isinstance(value, Number) and value.value == 1
    places = target.slice.elts if isinstance(target.slice, ast.Tuple) else []
    if is_one and len(places) > 2 and walker.loops and isinstance(target.value, ast.Name):
        made = walker.makers.get(target.value.id)
        if made is not None:
            walker.tell("one-hot-labels", made[0], name=target.value.id, detail="text")


def is_length(value: Value) -> bool:
    """Return whether a value is a number of samples."""
    return isinstance(value, Length)
