"""One `FileGroup` for each kind of object that lives in this process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from oomdoctor.facts import FileGroup, ShapeSpread
from oomdoctor.inventory.dataset import Pipeline
from oomdoctor.inventory.dataset_nodes import Component, product, shape_of, tensor_bytes
from oomdoctor.units import DTYPE_BYTES, element_count

MAPPED_NOTE = "memory-mapped: takes no RAM until it is read; handing it to `fit` copies it whole"
OBJECT_NOTE = "object array: cannot be sized safely"
STRINGS_NOTE = "strings: sized by what they hold now"


def array_group(array: Any, *, name: str) -> FileGroup:
    """Return the group of a NumPy array, memory-map, tensor, or anything with shape and dtype."""
    shape = shape_of(array.shape)
    dtype, note = _dtype_of(array)
    mapped = _mapped_file(array)
    notes = [] if note is None else [note]
    if mapped is not None:
        notes.append(MAPPED_NOTE)
    memory_bytes = _odd_bytes(array) if dtype is None and note != OBJECT_NOTE else None
    return FileGroup(
        name=name,
        format="array" if mapped is None else "memmap",
        kind="array",
        files=0 if mapped is None else 1,
        samples=shape[0] if shape else None if shape is None else 1,
        stored_bytes=0 if mapped is None else _file_bytes(mapped),
        elements=product(shape),
        dtype=dtype,
        shapes=_same_shapes(shape[1:] if shape else ()),
        memory_bytes=memory_bytes,
        notes=tuple(notes),
    )


def array_list_group(arrays: Sequence[Any], *, name: str) -> FileGroup:
    """Return the group of a list with one array per sample, whose shapes may differ."""
    shapes = [tuple(int(size) for size in array.shape) for array in arrays]
    dtypes = {_dtype_of(array)[0] for array in arrays}
    notes = ["a list of arrays: making one array of it is a second copy"]
    memory_bytes = None
    if len(dtypes) > 1:
        notes.append("the arrays have different dtypes")
        memory_bytes = sum(int(array.nbytes) for array in arrays)
    elif None in dtypes:
        notes.append(OBJECT_NOTE)
    return FileGroup(
        name=name,
        format="array",
        kind="array",
        files=0,
        samples=len(arrays),
        stored_bytes=0,
        elements=sum(element_count(shape) for shape in shapes),
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        shapes=_spread(shapes),
        memory_bytes=memory_bytes,
        notes=tuple(notes),
    )


def frame_group(frame: Any, *, name: str) -> FileGroup:
    """Return the group of a pandas DataFrame, its strings counted."""
    rows, columns = (int(size) for size in frame.shape)
    dtypes = {str(dtype) for dtype in frame.dtypes}
    return FileGroup(
        name=name,
        format="frame",
        kind="table",
        files=0,
        samples=rows,
        stored_bytes=0,
        elements=rows * columns,
        dtype=_one_width(dtypes),
        shapes=_same_shapes((columns,)),
        memory_bytes=int(frame.memory_usage(index=True, deep=True).sum()),
        notes=_column_notes(frame.dtypes),
    )


def series_group(series: Any, *, name: str) -> FileGroup:
    """Return the group of a pandas Series, its strings counted."""
    rows = int(series.shape[0])
    return FileGroup(
        name=name,
        format="frame",
        kind="table",
        files=0,
        samples=rows,
        stored_bytes=0,
        elements=rows,
        dtype=_one_width({str(series.dtype)}),
        shapes=_same_shapes(()),
        memory_bytes=int(series.memory_usage(index=True, deep=True)),
        notes=_column_notes([series.dtype]),
    )


def sparse_group(matrix: Any, *, name: str) -> FileGroup:
    """Return the group of a scipy.sparse matrix: what it holds, and a note on making it dense."""
    rows, columns = (int(size) for size in matrix.shape)
    dtype = str(matrix.dtype)
    parts = ("data", "indices", "indptr", "row", "col")
    sizes = [getattr(getattr(matrix, part, None), "nbytes", 0) for part in parts]
    dense = rows * columns * DTYPE_BYTES.get(dtype, matrix.dtype.itemsize)
    return FileGroup(
        name=name,
        format="array",
        kind="array",
        files=0,
        samples=rows,
        stored_bytes=0,
        elements=rows * columns,
        dtype=dtype if dtype in DTYPE_BYTES else None,
        shapes=_same_shapes((columns,)),
        memory_bytes=sum(map(int, sizes)),
        notes=(f"sparse: making it dense takes {rows} × {columns} × width = {dense} bytes",),
    )


def sequence_group(source: Any, *, name: str) -> FileGroup:
    """Return the group of a `Sequence` or `PyDataset`, of which only the length is asked."""
    return FileGroup(
        name=name,
        format="dataset",
        kind="record",
        files=0,
        samples=None,
        stored_bytes=0,
        elements=None,
        dtype=None,
        is_exact=False,
        notes=(f"{len(source)} items, none of them read: their size is not known",),
    )


def dataset_groups(pipeline: Pipeline, *, name: str) -> tuple[FileGroup, ...]:
    """Return a group for each tensor in an element of a `tf.data.Dataset`."""
    notes = ("repeats without end: counted for one pass",) if pipeline.is_infinite else ()
    return tuple(
        _component_group(part, pipeline, name=name, is_first=place == 0, notes=notes)
        for place, part in enumerate(pipeline.spec)
    )


def _component_group(
    part: Component, pipeline: Pipeline, *, name: str, is_first: bool, notes: tuple[str, ...]
) -> FileGroup:
    shape = part.shape
    if shape is not None:
        shape = shape[len(pipeline.leading) :]
    each = product(shape)
    if part.dtype is None:
        notes = (*notes, "strings, ragged or sparse: the size of one sample is not fixed")
    elif each is None:
        notes = (*notes, "the shape of one sample is not fixed")
    known = tuple(size for size in shape or () if size is not None)
    samples = pipeline.samples
    return FileGroup(
        name=_place_name(part.path, name),
        format="dataset",
        kind="record",
        files=0,
        samples=samples,
        stored_bytes=0,
        elements=None if each is None or samples is None else each * samples,
        dtype=part.dtype,
        role="inputs" if is_first else "targets",
        shapes=None if each is None else _same_shapes(known),
        notes=notes,
    )


def _place_name(path: tuple[str | int, ...], name: str) -> str:
    if not path:
        return name
    first = ("x", "y", "sample_weight")[path[0]] if path[0] in (0, 1, 2) else str(path[0])
    return ".".join([first, *map(str, path[1:])])


def _dtype_of(array: Any) -> tuple[str | None, str | None]:
    """Return a dtype's name if its width is known, and what to say if not."""
    dtype = array.dtype
    name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    if name in DTYPE_BYTES:
        return name, None
    if name == "object":
        return None, OBJECT_NOTE
    if name == "string":
        return None, STRINGS_NOTE
    return None, f"dtype {name}: sized by the bytes it holds now"


def _odd_bytes(array: Any) -> int | None:
    if str(getattr(array.dtype, "name", "")) == "string":
        return tensor_bytes(array)
    size = getattr(array, "nbytes", None)
    return None if size is None else int(size)


def _mapped_file(array: Any) -> str | None:
    """Return the file a memory-map, or a view of one, lies in."""
    while array is not None:
        if type(array).__name__ == "memmap":
            filename = getattr(array, "filename", None)
            return "" if filename is None else os.fspath(filename)
        array = getattr(array, "base", None)
    return None


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # deleted, or made from an open file without a name
        return 0


def _one_width(dtypes: set[str]) -> str | None:
    only = next(iter(dtypes)) if len(dtypes) == 1 else None
    return only if only in DTYPE_BYTES else None


def _column_notes(dtypes: Any) -> tuple[str, ...]:
    odd = sum(1 for dtype in dtypes if str(dtype) not in DTYPE_BYTES)
    return (f"{odd} columns without a fixed width, sized by what they hold now",) if odd else ()


def _same_shapes(shape: tuple[int | None, ...]) -> ShapeSpread | None:
    known = tuple(size for size in shape if size is not None)
    if len(known) < len(shape):
        return None
    return ShapeSpread(smallest=known, median=known, largest=known, most_common=known, distinct=1)


def _spread(shapes: list[tuple[int, ...]]) -> ShapeSpread:
    ordered = sorted(shapes, key=lambda shape: (element_count(shape), shape))
    common = Counter(ordered)
    return ShapeSpread(
        smallest=ordered[0],
        median=ordered[len(ordered) // 2],
        largest=ordered[-1],
        most_common=max(common, key=lambda shape: (common[shape], shape)),
        distinct=len(common),
    )
