"""Whole datasets of decoded images that code gathers in a list, a dictionary or an array."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts.layout import Layout, bytes_of, computed, for_each, product
from oomdoctor.scripts.values import (
    Array,
    Function,
    Items,
    Length,
    Listing,
    Loop,
    Maker,
    Number,
    Picture,
    Sequence,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.walker import Walker

MAX_SOURCES = 20
"""Loops' sources within sources that are looked into."""
MAX_PLACES = 8
"""Places that fill one list."""
MAX_INSIDE = 4
"""Tuples in tuples that are looked into."""
MANY = 1000
"""Turns from which a loop with a number of its own is taken to go through a dataset."""


def is_whole(over: Value) -> bool:
    """Return whether a loop over a value has a turn for each sample of a dataset."""
    waiting = [over]
    for _ in range(MAX_SOURCES):
        if not waiting:
            break
        over = waiting.pop()
        if isinstance(over, Listing) or (isinstance(over, Sequence) and over.is_whole):
            return True
        if not isinstance(over, Maker):
            continue
        if over.kind == "range":
            item = over.item
            if isinstance(item, Length) or (isinstance(item, Number) and (item.value or 0) >= MANY):
                return True
        elif isinstance(over.source, Items):
            waiting += over.source.parts
        else:
            waiting.append(over.source)
    return False


def as_picture(value: Value) -> Picture | None:
    """Return a value as an image, or a file's array, that was read in this turn."""
    if isinstance(value, Picture):
        return value
    if isinstance(value, Tensor) and value.is_picture:
        return Picture(value.layout or Layout(), ast.Pass())
    if isinstance(value, Array) and value.load is not None and value.size == "part":
        return Picture(Layout(value.dims, value.dtype), value.load)
    if isinstance(value, (Items, Sequence)):
        parts = value.parts if value.parts else (value.item,) if isinstance(value, Sequence) else ()
        return next(filter(None, map(_plain, parts[:4])), None)
    return None


def _plain(value: Value) -> Picture | None:
    return None if isinstance(value, (Items, Sequence)) else as_picture(value)


def gathers(walker: Walker, loops: list[Loop]) -> bool:
    """Return whether what these loops keep is kept for each sample of a dataset."""
    if walker.in_getitem or walker.is_traced or walker.is_rare:
        return False
    if any(function.yields for function in walker.functions if isinstance(function, Function)):
        return False
    return any(is_whole(loop.over) for loop in loops)


def appended(walker: Walker, node: ast.AST, into: Sequence, value: Value, name: str | None) -> None:
    """Tell of a list that gets the image of each file."""
    picture = as_picture(value)
    loops = walker.loops[into.depth :]
    if not loops:
        return
    if picture is None:
        into.is_whole = into.is_whole or any(is_whole(loop.over) for loop in loops)
        return
    if name is not None and any(name in loop.assigned for loop in loops):
        return  # it is emptied again: a batch
    if into.depth == 0:  # else it is one chunk of many
        into.pictures = into.pictures or node
        into.item = value
    if gathers(walker, loops):
        into.is_whole = True
        if len(into.told) < MAX_PLACES:
            into.told = (*into.told, (node, picture.layout, name))
        _wide(walker, picture)


def stored(walker: Walker, node: ast.Assign, target: ast.Subscript, value: Value) -> None:
    """Tell of an array or a dictionary that gets the image of each file by its place."""
    picture = as_picture(value)
    holder = walker.value(target.value)
    if picture is None or not isinstance(holder, (Array, Maker)) or not walker.loops:
        return
    is_dictionary = isinstance(holder, Maker) and holder.kind == "dict"
    is_array = isinstance(holder, Array) and not holder.is_filled
    if not (is_dictionary or is_array) or not isinstance(target.value, (ast.Name, ast.Attribute)):
        return
    name = target.value.id if isinstance(target.value, ast.Name) else None
    depth = walker.makers[name][1] if name in walker.makers else 0
    if isinstance(holder, Maker) and isinstance(holder.item, Number):
        depth = int(holder.item.value or 0)
    loops = walker.loops[depth:]
    if not loops or any(name in loop.assigned for loop in loops if name):
        return
    if gathers(walker, loops):
        layout, count = picture.layout, None
        if isinstance(holder, Array):
            layout, count = Layout(holder.dims, holder.dtype), holder.count
            if isinstance(target.value, ast.Name):
                walker.bind(target.value, Array(dtype=holder.dtype, dims=holder.dims, count=count,
                                                pictures=node, is_whole=True))  # fmt: skip
        told(walker, node, layout, name, count)


def listed(walker: Walker, node: ast.AST, over: Value, item: Value) -> None:
    """Tell of a comprehension that reads the image of each file."""
    picture = as_picture(item)
    if picture is not None and is_whole(over) and gathers(walker, walker.loops):
        told(walker, node, picture.layout, None)
        _wide(walker, picture)


def consumed(walker: Walker, value: Value, depth: int = 0) -> None:
    """Tell of the images of all files that are put to use: made an array, returned, handed over."""
    if isinstance(value, Items) and depth < MAX_INSIDE:
        for part in value.parts:
            consumed(walker, part, depth + 1)
    elif isinstance(value, Sequence) and value.told and not walker.foreign:
        for node, layout, name in value.told:
            told(walker, node, layout, name)
        value.told = ()
    elif (
        isinstance(value, Array)
        and value.is_whole
        and isinstance(value.pictures, ast.Call)
        and not walker.foreign
        and not walker.has_told(value.pictures)
    ):
        told(walker, value.pictures, Layout(value.dims, value.dtype), None, value.count)


def _wide(walker: Walker, picture: Picture) -> None:
    """Tell of images that are kept as float64."""
    if picture.widened is not None and picture.layout.dtype == "float64":
        more = sized(picture.layout)
        walker.tell("bytes-to-float64", picture.widened, detail="pictures", **more)


def told(
    walker: Walker, node: ast.AST, layout: Layout, name: str | None, count: int | None = None
) -> None:
    """Tell of images in RAM, with their size as far as it is known."""
    walker.tell("pictures-read-into-list", node, name=name, **sized(layout, count))


def sized(layout: Layout | None, count: int | None = None, times: int = 1) -> dict[str, Any]:
    """Return what a finding says of a size."""
    each = bytes_of(layout.dims, layout.dtype) if layout else None
    if each is None or each == 0:
        return {}
    if count is None:
        return {"size": for_each(each * times)}
    return {"size_bytes": product(count, times, each), "size": computed((count, times), each)}
