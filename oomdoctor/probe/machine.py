"""This machine, or one that the user declares, as a value to compare with.

Available RAM is the lowest of what the system, the container, Slurm and `ulimit -v` leave. A limit
is reported as such only where it is lower than the machine's own RAM.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from oomdoctor.facts import Gpu, Machine, Memory
from oomdoctor.probe.cgroup import read_cgroup_limit
from oomdoctor.probe.host import Host, read_address_space_limit, read_host, read_slurm_limit
from oomdoctor.probe.limit import lowest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from oomdoctor.probe.limit import Limit


def probe_machine(
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
    nvml: ModuleType | None = None,
    with_gpus: bool = True,
    host: Host | None = None,
) -> Machine:
    """Return this machine: RAM, the limit that binds, swap, processors and GPUs.

    Args:
        root: Where the file system starts; a recorded tree in tests.
        environ: The environment to read Slurm's and CUDA's variables from, the process's own by
            default.
        nvml: The module to ask about GPUs, `pynvml` by default.
        with_gpus: False leaves the GPUs out and does not load NVML.
        host: What the operating system says, read from it by default.
    """
    environ = os.environ if environ is None else environ
    host = read_host() if host is None else host
    ram, limit = _bind(host, _read_limits(root, environ, host))
    notes = _explain_system(root, limit)
    gpus: tuple[Gpu, ...] = ()
    if with_gpus:
        from oomdoctor.probe.gpu import read_gpus

        gpus, gpu_notes = read_gpus(nvml, environ)
        notes += gpu_notes
    return Machine(ram=ram, gpus=gpus, cpu_count=host.cpu_count, notes=notes)


def declare_machine(base: Machine, *, ram: int | None = None, vram: int | None = None) -> Machine:
    """Return a machine with its RAM or its GPUs replaced by what the user declares.

    Declared memory is taken as all free: the user says what a run may take. Notes on what has
    been replaced are dropped.

    Args:
        base: The machine to start from.
        ram: Bytes of RAM, or None to keep the machine's.
        vram: Bytes of one GPU, or None to keep the machine's.
    """
    memory, gpus, notes = base.ram, base.gpus, base.notes
    if ram is not None:
        memory = Memory(total_bytes=ram, available_bytes=ram, origin="declared")
        notes = tuple(note for note in notes if _is_on_gpus(note))
    if vram is not None:
        gpus = (
            Gpu(
                index=0,
                name="declared GPU",
                total_bytes=vram,
                free_bytes=vram,
                origin="declared",
            ),
        )
        notes = tuple(note for note in notes if not _is_on_gpus(note))
    return replace(base, ram=memory, gpus=gpus, notes=notes)


def _is_on_gpus(note: str) -> bool:
    """Say what a note is about: every note of `probe.gpu` says GPU or MIG, and no other does."""
    return "GPU" in note or "MIG" in note


def _read_limits(root: Path, environ: Mapping[str, str], host: Host) -> list[Limit]:
    found = (
        read_cgroup_limit(root),
        read_slurm_limit(environ, resident_bytes=host.resident_bytes),
        read_address_space_limit(virtual_bytes=host.virtual_bytes),
    )
    return [limit for limit in found if limit is not None]


def _bind(host: Host, limits: list[Limit]) -> tuple[Memory, Limit | None]:
    total = host.total_bytes
    limit = lowest([one for one in limits if total is None or one.limit_bytes < total])
    available = [host.available_bytes, limit.available_bytes if limit else None]
    known = [size for size in available if size is not None]
    memory = Memory(
        total_bytes=total,
        available_bytes=min(known, default=None),
        limit_bytes=limit.limit_bytes if limit else None,
        limit_source=limit.source if limit else None,
        swap_total_bytes=host.swap_total_bytes,
        swap_free_bytes=host.swap_free_bytes,
    )
    return memory, limit


def _explain_system(root: Path, limit: Limit | None) -> tuple[str, ...]:
    notes = []
    if _is_wsl(root):
        notes.append(
            "This is WSL 2: its RAM is what Windows lends it, half by default; "
            "`memory=` in .wslconfig raises it."
        )
    if limit is not None and limit.source == "ulimit -v":
        notes.append(
            "`ulimit -v` limits address space, of which TensorFlow reserves more than it uses."
        )
    return tuple(notes)


def _is_wsl(root: Path) -> bool:
    try:
        version = (root / "proc/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "microsoft" in version.lower()
