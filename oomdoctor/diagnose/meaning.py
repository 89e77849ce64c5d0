"""From names and numbers to the user's own code: the batch, the layer, the line, the holders.

Nothing here is certain, and what is inferred is called an estimate. A fitting batch is an upper
bound: at the moment of failure the step was not over, so the true peak is higher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oomdoctor.diagnose.events import Dump, Frame, Log
from oomdoctor.diagnose.layers import is_keras_3, layer_of
from oomdoctor.diagnose.request import Request
from oomdoctor.diagnose.stage import creates_weights
from oomdoctor.facts import MemoryMap
from oomdoctor.units import format_bytes

_LIBRARY = re.compile(
    r"(?:site|dist)-packages|[/\\]lib[/\\]python\d|[/\\](?:tensorflow|keras)[/\\](?:python|src)[/\\]"
    r"|^<frozen|tensorflow_core|importlib|ipykernel_launcher"
)
_CELL = re.compile(r"^<ipython-input-|[/\\]ipykernel_\d{1,9}[/\\]\d{1,20}\.py$")
"""The file that IPython and Jupyter give a cell."""
_WEIGHTS = re.compile(
    r"Backprop(?:Filter|Kernel)|Initializer|initializer|[Kk]ernel/|/Assign|random_uniform"
    r"|truncated_normal|RandomUniform|RandomStandardNormal|TruncatedNormal|AssignVariable"
    r"|embeddings|UnsortedSegmentSum|Adam|Momentum|VarHandleOp|ReadVariableOp"
)
_BY_HAND = re.compile(r"(?:Fill|Zeros|Ones|Const|_EagerConst|Random|StatelessRandom|Tile|Range)")
LARGEST_BATCH = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What the failed request has to do with the user's code."""

    layer: str | None = None
    source_line: str | None = None
    batch_dimension: int | None = None
    batch_size: int | None = None
    fitting_batch: int | None = None
    holders: tuple[tuple[str, int], ...] = ()
    memory_map: MemoryMap | None = None
    notes: tuple[str, ...] = ()


def explain(log: Log, request: Request, batch_size: int | None = None) -> Meaning:
    """Return the meaning of the failed request."""
    dimension, size, notes = _batch(log, request, batch_size)
    fitting = _fitting(request, size) if dimension is not None else None
    if fitting is not None and size is not None and fitting < size:
        notes.append(
            f"Dimension {dimension} is the batch size, {size}. At most {fitting} can fit, given "
            "the limit and what was in use (an upper bound). "
            f"Try {max(1, min(fitting, size // 2))} first."
        )
    return Meaning(
        layer=layer_of(request.op, is_numbered=is_keras_3(log)),
        source_line=_source_line(log),
        batch_dimension=dimension,
        batch_size=size,
        fitting_batch=fitting,
        holders=_holders(log, request),
        memory_map=_memory_map(request.dump),
        notes=tuple(notes),
    )


def is_weight(op: str | None) -> bool:
    """Whether an op's name says that its tensor is as large as a weight, whatever the batch."""
    return bool(op and "/" in op and _WEIGHTS.search(op))


def _batch(
    log: Log, request: Request, given: int | None
) -> tuple[int | None, int | None, list[str]]:
    shape = request.shape
    if not shape:
        return None, given, []
    if given is not None:
        return *_dimension_of(shape, given), []
    if is_weight(request.op):
        return (
            None,
            None,
            ["The tensor is as large as a weight: the batch size does not change it."],
        )
    if creates_weights(log, request):
        return None, None, ["It failed while weights were being created, before the first batch."]
    shapes = {event.shape for event in log.of("oom_tensor") if event.shape}
    firsts = {other[0] for other in shapes if other}
    if len(shapes) > 1 and len(firsts) == 1:
        return 0, shape[0], []
    is_made_by_hand = bool(_BY_HAND.match(request.op or ""))
    if len(shape) >= 3 and shape[0] <= LARGEST_BATCH and not is_made_by_hand:
        return (None, None, []) if _looks_like_kernel(shape) else (0, shape[0], [])
    return None, None, []


def _looks_like_kernel(shape: tuple[int, ...]) -> bool:
    """Whether it is a convolution's kernel: small windows first, channels last."""
    return len(shape) >= 4 and max(shape[:-2]) <= 11 and min(shape[-2:]) >= 16


def _dimension_of(shape: tuple[int, ...], batch: int) -> tuple[int | None, int | None]:
    if batch in shape:
        return shape.index(batch), batch
    # Layers over time or windows fold the batch into the first dimension.
    if batch > 1 and shape[0] % batch == 0:
        return 0, batch
    return None, batch


def _fitting(request: Request, batch: int | None) -> int | None:
    """An upper bound: even if all memory shrank with the batch, no more would fit."""
    limit, asked = request.limit_bytes, request.bytes
    if not limit or not asked or not batch or batch < 2:
        return None
    needed = (request.in_use_bytes or 0) + asked
    if needed <= limit:
        return None
    return max(1, min(batch - 1, batch * limit // needed))


def _holders(log: Log, request: Request) -> tuple[tuple[str, int], ...]:
    """Who holds most: ops where they are listed, XLA's buffers, or chunks by size."""
    listed = [(f"op {event.op}", event.bytes or 0) for event in log.of("usage")]
    listed = listed or _buffers(log)
    # A dump that was cut off shows some chunks, and not those that matter.
    if listed or request.dump is None or request.in_use_bytes is None:
        return tuple(sorted(listed, key=lambda pair: -pair[1])[:5])
    item = request.bytes
    held = []
    for size, count in request.dump.chunks:
        chunks = "chunk" if count == 1 else "chunks"
        like = ", as large as the one that failed" if item and size == _rounded(item) else ""
        held.append((f"{count} {chunks} of {format_bytes(size)}{like}", size * count))
    return tuple(sorted(held, key=lambda pair: -pair[1])[:5])


def _memory_map(dump: Dump | None) -> MemoryMap | None:
    """The chunks by address, where the dump shows all that the allocator held."""
    if dump is None or not dump.runs:
        return None
    used = sum(used for _, used in dump.runs)
    if dump.in_use_bytes and used < 0.95 * dump.in_use_bytes:
        return None  # a dump that was cut off
    return MemoryMap(
        runs=dump.runs, sizes=dump.sizes, largest_free_bytes=dump.free_largest_bytes or 0
    )


def _buffers(log: Log) -> list[tuple[str, int]]:
    """XLA's peak buffers: a size, and a few lines on its shape."""
    shapes = log.of("buffer_shape")
    found = []
    for size in log.of("buffer_size"):
        shape = next((s for s in shapes if 0 < s.line - size.line <= 6 and s.shape), None)
        dimensions = "×".join(map(str, shape.shape)) if shape and shape.shape else "unknown"
        dtype = f" of {shape.dtype}" if shape and shape.dtype else ""
        found.append((f"a buffer of shape {dimensions}{dtype}", size.bytes or 0))
    return found


def _rounded(size: int) -> int:
    return -(-size // 256) * 256


def _source_line(log: Log) -> str | None:
    """The innermost line of the user's own code in the last traceback."""
    known = [frame for frame in log.frames if frame.source_line]
    own = [frame for frame in known if not _LIBRARY.search(frame.file)]
    return _named(own[-1]) if own else None


def _named(frame: Frame) -> str:
    if _CELL.search(frame.file):
        return f"the cell, line {frame.source_line}"
    name = re.split(r"[/\\]", frame.file)[-1]
    return f"{name}:{frame.source_line}"
