"""The processes that hold memory on a GPU, as far as the driver tells.

A process that both computes and draws appears in both of NVML's lists with the same bytes, so
the larger figure is kept, not the sum. Our own process is in the list like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomdoctor.facts import GpuProcess

if TYPE_CHECKING:
    from types import ModuleType

    from oomdoctor.probe.visible import Card, Slice


def read_processes(
    nvml: ModuleType, card: Card, part: Slice | None
) -> tuple[GpuProcess, ...] | None:
    """Return who holds memory, the largest first, or None where the driver does not say."""
    device: Card | Slice = card if part is None else part
    entries = _list_entries(nvml, device.handle)
    if entries is None and part is not None:
        # Some drivers list a slice's processes with its card alone.
        of_card = _list_entries(nvml, card.handle)
        entries = of_card and [
            entry for entry in of_card if entry.gpuInstanceId == part.gpu_instance
        ]
    if entries is None:
        return None
    bytes_by_pid: dict[int, int | None] = {}
    for entry in entries:
        known = [size for size in (bytes_by_pid.get(entry.pid), entry.usedGpuMemory) if size]
        bytes_by_pid[entry.pid] = max(known, default=entry.usedGpuMemory)
    processes = [
        GpuProcess(pid=pid, name=_name_of(pid), used_bytes=used)
        for pid, used in bytes_by_pid.items()
    ]
    return tuple(sorted(processes, key=lambda one: (-(one.used_bytes or 0), one.pid)))


def _list_entries(nvml: ModuleType, handle: Any) -> list[Any] | None:
    """Return the entries of both lists, or None where neither can be had."""
    both = [_list_kind(nvml, handle, kind) for kind in ("Compute", "Graphics")]
    known = [entries for entries in both if entries is not None]
    return [entry for entries in known for entry in entries] if known else None


def _list_kind(nvml: ModuleType, handle: Any, kind: str) -> list[Any] | None:
    # The third version came with driver 510, the second with 455. The name without a version
    # would do too, but hides an older driver behind an error of another class.
    for version in ("_v3", "_v2"):
        function = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version}", None)
        if function is None:
            continue
        try:
            return list(function(handle))
        except Exception as error:  # see `_ask` in `oomdoctor.probe.gpu`
            if getattr(error, "value", None) != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                return None
    return None


def _name_of(pid: int) -> str | None:
    import psutil

    try:
        name = psutil.Process(pid).name()
    except (OSError, OverflowError, ValueError, psutil.Error):
        return None
    return "".join(letter for letter in name if letter.isprintable()) or None
