"""Mistakes that hold a whole dataset in memory."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts.checks_pictures import consumed, sized
from oomdoctor.scripts.layout import Layout, computed, product
from oomdoctor.scripts.values import Array, Dataset, Items, Length, Number, Sequence, Text, Value
from oomdoctor.units import GIB

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

KERAS_BATCH = 32
"""What a batch is taken to hold that says nothing of it."""
FEW_BATCHES = 10
"""A shuffle buffer of fewer batches than this is no mistake of size."""
_DEPTH = 10
"""Lists in lists that are looked into; a list may hold itself."""


def cache(walker: Walker, node: ast.Call, dataset: Dataset, given: Arguments) -> None:
    """Tell of a cache that keeps all that passes through it in RAM."""
    file = given.get(0, "filename")
    has_file = bool(node.args or node.keywords) and file != Text("")
    if has_file or dataset.content in ("small", "paths"):
        return
    check = "cache-of-batches" if dataset.is_batched else "cache-in-ram"
    size = sized(dataset.layout, dataset.count)
    walker.tell(check, node, name=_receiver(node), count=dataset.batch_size, **size)


def shuffle(walker: Walker, node: ast.Call, dataset: Dataset, size: Value) -> None:
    """Tell of a shuffle buffer that holds batches, or everything."""
    count = size.value if isinstance(size, Number) and isinstance(size.value, int) else None
    if dataset.content in ("small", "paths", "table"):
        return
    each = dataset.layout.size_bytes if dataset.layout else None
    per_element = (dataset.batch_size or KERAS_BATCH) if dataset.is_batched else 1
    held = count * per_element if count is not None else None
    if held is not None and dataset.count is not None:
        held = min(held, dataset.count)
    taken = product(held, each)
    if dataset.is_batched and dataset.batch_size != 1 and (count is None or count >= FEW_BATCHES):
        more: dict[str, Any] = {}
        if taken is not None and count is not None and each:
            more = {"size_bytes": taken, "size": computed((held or 0,), each)}
        walker.tell(
            "shuffle-of-whole-batches",
            node,
            name=_receiver(node),
            count=count,
            parts=dataset.batch_size,
            is_fixable=_follows_batch(node, dataset),
            **more,
        )
    elif isinstance(size, Length) and dataset.content == "samples":
        known = sized(dataset.layout, dataset.count)
        detail = "pictures" if dataset.is_pictures else "unknown"
        walker.tell("shuffle-of-everything", node, name=_receiver(node), detail=detail, **known)
    elif taken is not None and taken >= GIB and dataset.is_pictures and held is not None:
        walker.tell(
            "shuffle-of-pictures",
            node,
            name=_receiver(node),
            count=count,
            size_bytes=taken,
            size=computed((held,), each or 0),
        )


def _follows_batch(node: ast.Call, dataset: Dataset) -> bool:
    """Return whether `.batch(…)` stands directly before, so that the two can change places."""
    before = node.func.value if isinstance(node.func, ast.Attribute) else None
    return (
        before is dataset.batch
        and isinstance(before, ast.Call)
        and isinstance(before.func, ast.Attribute)
        and before.func.attr == "batch"
    )


def is_read(array: Array) -> bool:
    """Return whether an array is known to come from a file."""
    return array.load is not None or array.is_hdf5 or array.is_whole


def slices(walker: Walker, node: ast.Call, given: Arguments) -> None:
    """Tell of a pipeline that is made from whole arrays."""
    consumed(walker, given.get(0, "tensors"))
    for array in whole_arrays(given.get(0, "tensors")):
        if not array.is_hdf5:
            loaded(walker, array)
        if array.pictures is None and array.size is None and is_read(array):
            walker.tell("slices-of-whole-array", node)


def constant(walker: Walker, node: ast.Call, given: Arguments) -> None:
    """Tell of a whole array that becomes one tensor, on the GPU where there is one."""
    value = given.get(0, "value")
    consumed(walker, value)
    if isinstance(value, Array) and value.size is None and is_read(value):
        name = node.args[0].id if node.args and isinstance(node.args[0], ast.Name) else None
        walker.tell("array-as-constant", node, name=name)


def float64(walker: Walker, node: ast.Call, array: Array) -> None:
    """Tell of an array that is made eight bytes wide."""
    argument = node.args[0] if node.args else None
    is_text = isinstance(argument, ast.Constant)
    can_fix = array.dtype == "uint8" and (is_text or argument is not None)
    _widened(walker, node, array, _receiver(node), can_fix)


def widened(
    walker: Walker,
    node: ast.AST,
    array: Array,
    source: ast.expr | None,
    *,
    can_fix: bool = False,
    numpy: str | None = None,
) -> None:
    """Tell of arithmetic, or of a function, that gives float64 of bytes."""
    name = source.id if isinstance(source, ast.Name) else None
    _widened(walker, node, array, name, can_fix, numpy=numpy)


def _widened(
    walker: Walker, node: ast.AST, array: Array, name: str | None, can_fix: bool, **more: Any
) -> None:
    size = sized(Layout(array.dims, "float64"), array.count)
    is_known = array.is_whole or array.size == "builtin"
    more = {"detail": "pictures" if is_known else "unknown", **more, **size}
    walker.tell("bytes-to-float64", node, name=name, is_fixable=can_fix, **more)


def handed_over(walker: Walker, value: Value) -> None:
    """Tell of whole arrays that a model or a generator is given."""
    consumed(walker, value)
    for array in whole_arrays(value):
        loaded(walker, array)


def loaded(walker: Walker, array: Array) -> None:
    """Tell of what was read whole and is now handed over whole."""
    if array.size is not None:
        return
    if array.pictures is not None:
        more = sized(Layout(array.dims, array.dtype), array.count)
        walker.tell("pictures-read-into-list", array.pictures, **more)
    elif array.load is not None and not array.is_mapped:
        detail = "hdf5" if array.is_hdf5 else "packed" if array.is_packed else "plain"
        path = array.load.args[0] if array.load.args else None
        is_text = isinstance(path, ast.Constant) and isinstance(path.value, str)
        walker.tell(
            "load-without-memory-map",
            array.load,
            detail=detail,
            name=str(path.value) if is_text and isinstance(path, ast.Constant) else None,
        )


def whole_arrays(value: Value) -> list[Array]:
    """Return the arrays of the inputs: of a tuple of inputs and labels, the inputs alone."""
    for _ in range(_DEPTH):
        if isinstance(value, Array):
            return [value]
        if isinstance(value, Items):
            value = value.parts[0] if value.parts else None
        elif isinstance(value, Sequence):
            value = value.item
    return []


def _receiver(node: ast.Call) -> str | None:
    """Return the variable a chain of methods begins with."""
    inner: ast.expr = node
    while True:
        if isinstance(inner, ast.Call):
            inner = inner.func
        elif isinstance(inner, ast.Attribute):
            inner = inner.value
        else:
            return inner.id if isinstance(inner, ast.Name) else None
