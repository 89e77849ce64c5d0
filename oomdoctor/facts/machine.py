"""The machine: its GPUs, its RAM and the limits on both."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    pid: int
    name: str | None
    """None where the process lives outside our container or belongs to someone else."""
    used_bytes: int | None
    """None where the driver does not say, as inside containers and on WSL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG slice, that TensorFlow would see."""

    index: int
    """Position among the visible devices, as in TensorFlow's `GPU:0`."""
    name: str
    total_bytes: int | None
    free_bytes: int | None
    """Memory a new process can still take."""
    reserved_bytes: int = 0
    """What TensorFlow leaves of the free memory to CUDA and its libraries."""
    used_bytes: int | None = None
    uuid: str | None = None
    is_mig: bool = False
    compute_capability: tuple[int, int] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """None means that the driver did not say who holds memory."""
    origin: str = "measured"
    """`measured`, `declared` (by --vram) or `catalogue` (by --machine)."""

    @property
    def usable_bytes(self) -> int | None:
        """What TensorFlow's allocator would get."""
        return None if self.free_bytes is None else max(0, self.free_bytes - self.reserved_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """System memory: what there is, what is free, and which limit binds."""

    total_bytes: int | None
    available_bytes: int | None
    """What can be taken now: the lowest of the system, the container and the other limits."""
    limit_bytes: int | None = None
    """The limit lower than the machine's own RAM, if any."""
    limit_source: str | None = None
    """Where that limit comes from, such as `cgroup memory.max` or `ulimit -v`."""
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    origin: str = "measured"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Machine(Readable):
    """The machine a run is compared with: this one, a declared one, or a catalogue entry."""

    ram: Memory
    gpus: tuple[Gpu, ...] = ()
    """Empty when none was seen, which does not prove that there is none: see `notes`."""
    name: str | None = None
    cpu_count: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def usable_vram_bytes(self) -> int | None:
        """What TensorFlow gets on the fullest GPU; None where no GPU is known."""
        usable = [gpu.usable_bytes for gpu in self.gpus]
        return min((size for size in usable if size is not None), default=None)
