"""A ceiling on the memory a process may take, whoever sets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit on RAM, and what it still leaves."""

    limit_bytes: int
    available_bytes: int
    source: str
    """Where it is set, as a person would look for it: `cgroup memory.max`, `ulimit -v` …"""


def lowest(limits: list[Limit]) -> Limit | None:
    """Return the limit that leaves the least, or None where there is none."""
    return min(limits, key=lambda one: (one.available_bytes, one.limit_bytes), default=None)
