"""Figures that are spread over several lines: XLA's report on buffers, and a job's memory limit."""

from __future__ import annotations

from typing import Any

from oomdoctor.diagnose.events import Event, Log
from oomdoctor.diagnose.request import Request

_NEAR = 6
"""Lines between a buffer's size and its shape, and between a pod's limits and its memory."""


def xla_figures(log: Log, request: Request) -> dict[str, Any]:
    """Return the largest buffer's shape and the compiler's limit, if nothing else gives them."""
    fields: dict[str, Any] = {}
    if request.shape is None and request.bytes is not None:
        largest = max(log.of("buffer_size"), key=lambda e: (e.bytes or 0, -e.line), default=None)
        told = near(log, largest, "buffer_shape") if largest else None
        if told is not None and told.shape:
            fields |= {"shape": told.shape, "dtype": told.dtype}
            operator = near(log, largest, "buffer_op") if largest else None
            if operator is not None and not request.op:
                fields["op"] = operator.op
    if request.limit_bytes is None:
        limits = [e.limit_bytes for e in log.of("xla_remat") if e.limit_bytes]
        if limits:
            fields["limit_bytes"] = limits[-1]
    return fields


def near(log: Log, event: Event, kind: str) -> Event | None:
    """Return the event of a kind in the few lines after another one."""
    return next((e for e in log.of(kind) if 0 < e.line - event.line <= _NEAR), None)


def job_figures(log: Log) -> dict[str, Any]:
    """Return what a killed job had in use, and its limit."""
    kills = [e.bytes for e in log.of("kernel_kill") if e.bytes is not None]
    told = log.of("memory_limit")
    used = [e.bytes for e in told if e.bytes is not None]
    limits = [e.limit_bytes for e in told if e.limit_bytes is not None]
    pod = _pod_limit(log)
    return {
        "in_use_bytes": max(kills or used, default=None),
        "limit_bytes": limits[-1] if limits else pod,
    }


def _pod_limit(log: Log) -> int | None:
    requests = log.of("pod_requests")
    for limits in log.of("pod_limits"):
        memory = near(log, limits, "pod_memory")
        if memory and not any(limits.line < r.line < memory.line for r in requests):
            return memory.bytes
    return None
