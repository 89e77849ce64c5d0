"""The allocation that failed, put together from the messages about it.

One failure is reported several times: by the allocator ("ran out of memory trying to allocate"), by
its dump, by the op ("OOM when allocating tensor with shape"), by the exception. The exception is
what the user sees, so it chooses; the others fill in what it leaves out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oomdoctor.diagnose.events import Dump, Event, Log, places
from oomdoctor.diagnose.sizes import tensor_bytes

FAILURES = (
    "oom_tensor",
    "bfc_failure",
    "xla_failure",
    "xla_hbm",
    "xla_remat",
    "async_failure",
    "torch_failure",
    "copy_failure",
    "dst_failure",
    "plain_failure",
    "dump",
)
"""Kinds that say a device's allocator failed, the most telling first.

A dump comes last: where a log was cut, it may be all that is left of the failure.
"""

_GPU_OF_ALLOCATOR = re.compile(r"GPU_(?:async_)?(\d{1,3})", re.IGNORECASE)
_HOST_ALLOCATORS = ("cpu", "mkl", "bfc_cpu_allocator", "gpu_host", "cuda_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for, where, by whom, and what there was."""

    event: Event | None = None
    bytes: int | None = None
    is_rounded: bool = False
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    allocator: str | None = None
    op: str | None = None
    dump: Dump | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None

    @property
    def is_on_host(self) -> bool:
        """Whether it is the CPU's memory that ran out."""
        return (self.device or "").startswith("CPU")


def find_request(log: Log) -> Request:
    """Return the failed allocation, with None for what the log does not say."""
    event = _telling(log)
    if event is None:
        return Request()
    header = _header(log, event)
    dump = _dump(log, header or event)
    allocator = event.allocator or (header.allocator if header else None)
    allocator = allocator or (dump.allocator if dump else None)
    size, is_rounded = _size(event, header)
    device = event.device or _device(allocator) or (header.device if header else None)
    shape, dtype = event.shape, event.dtype
    constant = _constant(log, size) if shape is None else None
    if constant is not None:
        shape, dtype = constant.shape, constant.dtype
        size, is_rounded = tensor_bytes(shape, dtype) or size, False
    return Request(
        event=event,
        bytes=size,
        is_rounded=is_rounded,
        shape=shape,
        dtype=dtype,
        device=device,
        allocator=allocator,
        op=_op(log, event, header),
        dump=dump,
        limit_bytes=_limit(log, dump, device),
        in_use_bytes=_in_use(log, dump),
    )


def _in_use(log: Log, dump: Dump | None) -> int | None:
    if dump is not None:
        in_use = dump.in_use_bytes if dump.in_use_bytes is not None else dump.sum_bytes
        if in_use is not None:
            return in_use
        # The chunks of a dump that was cut off are not all there are.
        if dump.chunks and dump.limit_bytes is not None:
            return sum(size * count for size, count in dump.chunks)
    return next((e.bytes for e in log.of("xla_hbm") if e.limit_bytes), None)


def _constant(log: Log, size: int | None) -> Event | None:
    """The constant of a graph that could not be copied: 1.x names it after the error."""
    for failure in log.of("dst_failure", "copy_failure"):
        for told in log.of("const_shape"):
            exact = tensor_bytes(told.shape, told.dtype)
            is_same = size is None or exact is None or abs(exact - size) <= 0.01 * exact
            if 0 <= told.line - failure.line <= 3 and told.shape and is_same:
                return told
    return None


def _telling(log: Log) -> Event | None:
    """The most informative message: the exception's own where there is one."""
    tensors = log.of("oom_tensor")
    raised = [event for event in tensors if "OP_REQUIRES" not in event.text]
    for events in (raised, tensors):
        if events:
            return events[0]
    for kind in FAILURES[1:]:
        events = log.of(kind)
        sized = [event for event in events if event.bytes is not None]
        if events:
            return (sized or events)[0]
    return None


def _header(log: Log, event: Event) -> Event | None:
    """The allocator's own line about the same request: of the same size, or the nearest before."""
    headers = log.of("bfc_failure")
    if event.kind == "bfc_failure" or not headers:
        return event if event.kind == "bfc_failure" else None
    exact = tensor_bytes(event.shape, event.dtype or "float32") or event.bytes
    same = [h for h in headers if exact and h.bytes and abs(h.bytes - exact) <= 0.01 * exact]
    before = [header for header in headers if header.line <= event.line]
    return (same or before[-1:] or headers)[0]


def _dump(log: Log, event: Event) -> Dump | None:
    dumps = [dump for dump in log.dumps if _fits_allocator(dump, event)] or list(log.dumps)
    if not dumps:
        return None
    return min(dumps, key=lambda dump: abs(dump.line - event.line))


def _fits_allocator(dump: Dump, event: Event) -> bool:
    return not dump.allocator or not event.allocator or dump.allocator == event.allocator


def _size(event: Event, header: Event | None) -> tuple[int | None, bool]:
    """The bytes asked for, and whether they are rounded."""
    exact = tensor_bytes(event.shape, event.dtype)
    if exact is not None:
        return exact, False
    if event.shape is not None:
        # Before 1.5 no type was printed; nearly every tensor is float32.
        guess = tensor_bytes(event.shape, "float32")
        if header is None or header.bytes is None or guess is None:
            return guess, True
        return (guess, False) if abs(guess - header.bytes) <= 0.01 * guess else (header.bytes, True)
    if event.bytes is not None and not event.is_rounded:
        return event.bytes, False
    if header is not None and header.bytes is not None:
        return header.bytes, header.is_rounded
    return event.bytes, event.is_rounded


def _device(allocator: str | None) -> str | None:
    match = _GPU_OF_ALLOCATOR.match(allocator or "")
    if match:
        return f"GPU:{match[1]}"
    return "CPU:0" if (allocator or "").lower().startswith(_HOST_ALLOCATORS) else None


def _limit(log: Log, dump: Dump | None, device: str | None) -> int | None:
    if dump is not None and dump.limit_bytes is not None:
        return dump.limit_bytes
    if device is not None and device.startswith("CPU"):
        return None
    hbm = [event.limit_bytes for event in log.of("xla_hbm") if event.limit_bytes]
    total = [e.total_bytes for e in log.of("async_free") if e.total_bytes]
    if total and log.has("async_failure"):
        return total[0]
    cards = [card for card in log.of("card") if card.limit_bytes is not None]
    same = [card for card in cards if device is None or card.device == device]
    found = hbm + [card.limit_bytes for card in same[-1:]]
    return found[0] if found else None


def _op(log: Log, event: Event, header: Event | None) -> str | None:
    """The op that asked: the node nearest after the message, or what the allocator names."""
    if event.op:
        return event.op
    nodes = [node for node in log.of("node", "detected_node") if node.op]
    after = [node for node in nodes if 0 <= node.line - event.line <= 12]
    before = [node for node in nodes if 0 < event.line - node.line <= 60]
    if after:
        return after[0].op
    tags = [tag for tag in log.of("op_tag") if 0 <= tag.line - event.line <= 12]
    if tags and not (tags[0].op or "").startswith("__inference"):
        return f"{tags[0].name} ({tags[0].op})" if tags[0].name else tags[0].op
    if header is not None and header.op:
        return header.op
    return before[-1].op if before else None


def failing_gpus(log: Log) -> set[str]:
    """Return the GPUs whose allocator failed."""
    devices = set()
    for event in log.of(*FAILURES):
        device = event.device or _device(event.allocator)
        if device and device.startswith("GPU"):
            devices.add(device)
    return devices


def evidence_of(log: Log, request: Request, *more: Event) -> tuple[tuple[int, str], ...]:
    """Return the lines that show a device's failure, with some more."""
    shown = list(more) + ([request.event] if request.event else log.of(*FAILURES)[:1])
    lines = dict(places(shown, 4))
    if request.dump is not None:
        lines.update(dict(request.dump.places[:3]))
    return tuple(sorted(lines.items()))
