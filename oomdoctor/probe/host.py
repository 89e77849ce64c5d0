"""RAM, swap and processors of this host, and the limits set on this process alone.

Available means what the kernel says can be taken without swapping, page cache included. Two
limits are read here: what Slurm granted to the job on this node, and the address space of this
process (`ulimit -v`). What other processes of a Slurm job already hold is not known and not
subtracted; limits on processor time are ignored.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomdoctor.probe.limit import Limit
from oomdoctor.units import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the operating system says about the host and about this process."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    cpu_count: int | None = None
    """Processors this process may run on."""
    resident_bytes: int = 0
    """RAM that this process holds already."""
    virtual_bytes: int = 0
    """Address space that this process holds already."""


def read_host() -> Host:
    """Return the host's memory and processors; what cannot be read is None."""
    import psutil

    total, available = _read_ram()
    swap_total, swap_free = _read_swap()
    process = psutil.Process()
    try:
        held = process.memory_info()
        resident, virtual = held.rss, held.vms
    except (OSError, psutil.Error):
        resident = virtual = 0
    return Host(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=swap_total,
        swap_free_bytes=swap_free,
        cpu_count=_count_processors(process),
        resident_bytes=resident,
        virtual_bytes=virtual,
    )


def read_slurm_limit(environ: Mapping[str, str], *, resident_bytes: int = 0) -> Limit | None:
    """Return what Slurm granted this job on this node, or None outside a job.

    Slurm writes mebibytes. Zero asks for all memory of the node, which is no limit.
    """
    for name, counted_by in (
        ("SLURM_MEM_PER_NODE", None),
        ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"),
        ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"),
    ):
        mebibytes = _whole_number(environ.get(name))
        count = 1 if counted_by is None else _whole_number(environ.get(counted_by))
        # A share per GPU or processor says nothing without their number.
        if mebibytes and count:
            limit = mebibytes * count * MIB
            return Limit(
                limit_bytes=limit,
                available_bytes=max(0, limit - resident_bytes),
                source=f"Slurm {name}",
            )
    return None


def read_address_space_limit(*, virtual_bytes: int = 0) -> Limit | None:
    """Return the limit that `ulimit -v` sets on this process, or None where there is none."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    except (OSError, ValueError):
        return None
    if limit == resource.RLIM_INFINITY or limit <= 0:
        return None
    return Limit(
        limit_bytes=limit, available_bytes=max(0, limit - virtual_bytes), source="ulimit -v"
    )


def _read_ram() -> tuple[int | None, int | None]:
    import psutil

    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, psutil.Error):
        return None, None
    return memory.total, memory.available


def _read_swap() -> tuple[int | None, int | None]:
    import psutil

    try:
        with warnings.catch_warnings():
            # Some containers hide /proc/vmstat, which only costs us the paging counters.
            warnings.simplefilter("ignore", RuntimeWarning)
            swap = psutil.swap_memory()
    except (OSError, RuntimeError, psutil.Error):
        return None, None
    return swap.total, swap.free


def _count_processors(process: object) -> int | None:
    import psutil

    try:
        # Slurm and `docker --cpuset-cpus` give fewer than the host has; tf.data heeds that too.
        return len(process.cpu_affinity()) or None  # type: ignore[attr-defined]
    except (AttributeError, OSError, psutil.Error):
        return psutil.cpu_count()


def _whole_number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
