"""Memory of every GPU that TensorFlow would see, and who holds it, through NVML.

Free means what the driver can still hand out: memory the driver reserves for itself is neither
free nor counted as used. TensorFlow's allocator takes less than what is free, because it leaves
some for CUDA's libraries (see `oomdoctor.probe.reserve`).

NVML can fail in many ways, and none of them is an error here: what it does not tell is None, and
a note says why. Only NVIDIA's GPUs are seen.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomdoctor.facts import Gpu
from oomdoctor.probe.gpu_processes import read_processes
from oomdoctor.probe.reserve import tensorflow_reserve_bytes
from oomdoctor.probe.visible import Card, Slice, choose_visible
from oomdoctor.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from oomdoctor.facts import GpuProcess

_NO_DRIVER = "No NVIDIA driver was found, so GPU memory is unknown."

_WHY_NOT_OPENED = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": _NO_DRIVER,
    "NVML_ERROR_DRIVER_NOT_LOADED": (
        "The NVIDIA driver is installed but not loaded, so GPU memory is unknown; "
        "run nvidia-smi to see why, or pass --vram."
    ),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": (
        "The NVIDIA library and the loaded driver have different versions, as after an update, "
        "so GPU memory is unknown; reboot, or pass --vram."
    ),
    "NVML_ERROR_NO_PERMISSION": (
        "The NVIDIA driver denies access to this user, so GPU memory is unknown; pass --vram."
    ),
    "NVML_ERROR_GPU_IS_LOST": (
        "A GPU is lost: it fell off the bus or hangs, so GPU memory is unknown; reboot."
    ),
}

_IDLE_BYTES = {2: 64 * MIB, 1: GIB}
"""Used memory that an idle card may show, by version of the query: version 1 counts what the
driver reserves, several hundred MiB on large cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    version: int = 2
    error: Exception | None = None


def read_gpus(
    nvml: ModuleType | None = None, environ: Mapping[str, str] | None = None
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return the GPUs that TensorFlow would see, and notes on what could not be told.

    Args:
        nvml: The module to ask, `pynvml` by default.
        environ: Where to look for `CUDA_VISIBLE_DEVICES`, the process's environment by default.
    """
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            return (), (
                "nvidia-ml-py is not installed, so GPU memory is unknown; "
                "pip install nvidia-ml-py, or pass --vram.",
            )
        nvml = pynvml
    _, error = _ask(nvml.nvmlInit)
    if error is not None:
        return (), (_explain_not_opened(nvml, error),)
    try:
        return _read_opened(nvml, os.environ if environ is None else environ)
    finally:
        _ask(nvml.nvmlShutdown)


def _read_opened(
    nvml: ModuleType, environ: Mapping[str, str]
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    notes: list[str] = []
    count, error = _ask(nvml.nvmlDeviceGetCount)
    if error is not None:
        return (), (_explain_not_opened(nvml, error),)
    if not count:
        return (), ("The NVIDIA driver is loaded but shows no GPU; pass --vram to check a card.",)
    cards = [card for index in range(count) if (card := _read_card(nvml, index, notes))]
    visible, hidden_notes = choose_visible(cards, environ)
    notes += hidden_notes
    gpus = [
        _read_gpu(nvml, position, card, part, notes)
        for position, (card, part) in enumerate(visible)
    ]
    return tuple(gpus), tuple(notes)


def _read_card(nvml: ModuleType, index: int, notes: list[str]) -> Card | None:
    handle, error = _ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if error is not None:
        notes.append(f"GPU {index} does not answer ({error}), so it is left out.")
        return None
    name, _ = _ask(nvml.nvmlDeviceGetName, handle)
    uuid, _ = _ask(nvml.nvmlDeviceGetUUID, handle)
    mode, _ = _ask(nvml.nvmlDeviceGetMigMode, handle)
    is_split = bool(mode) and mode[0] == 1
    return Card(
        index=index,
        handle=handle,
        name=_printable(name) or f"GPU {index}",
        uuid=uuid,
        is_split=is_split,
        slices=_read_slices(nvml, handle) if is_split else (),
    )


def _read_slices(nvml: ModuleType, card_handle: Any) -> tuple[Slice, ...]:
    slices = []
    most, _ = _ask(nvml.nvmlDeviceGetMaxMigDeviceCount, card_handle)
    for index in range(most or 0):
        # The places of a card need not all be taken, and gaps may lie between those that are.
        handle, error = _ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card_handle, index)
        if error is not None:
            continue
        slices.append(
            Slice(
                handle=handle,
                uuid=_ask(nvml.nvmlDeviceGetUUID, handle)[0],
                gpu_instance=_ask(nvml.nvmlDeviceGetGpuInstanceId, handle)[0],
                compute_instance=_ask(nvml.nvmlDeviceGetComputeInstanceId, handle)[0],
            )
        )
    return tuple(slices)


def _read_gpu(
    nvml: ModuleType, position: int, card: Card, part: Slice | None, notes: list[str]
) -> Gpu:
    device: Card | Slice = card if part is None else part
    name = card.name
    if part is not None:
        own_name, _ = _ask(nvml.nvmlDeviceGetName, part.handle)
        name = _printable(own_name) or f"{card.name} MIG"
    memory = _read_memory(nvml, device.handle)
    note = _explain_memory(nvml, position, name, memory)
    if note:
        notes.append(note)
    # Slices have the card's compute capability, and some drivers answer for the card alone.
    capability, _ = _ask(nvml.nvmlDeviceGetCudaComputeCapability, card.handle)
    processes = read_processes(nvml, card, part)
    if _is_somebody_unseen(processes, memory):
        notes.append(
            f"{format_bytes(memory.used_bytes)} of GPU {position} ({name}) is in use by "
            "processes that the driver does not show, as in a container."
        )
        processes = None
    return Gpu(
        index=position,
        name=name,
        total_bytes=memory.total_bytes,
        free_bytes=memory.free_bytes,
        reserved_bytes=tensorflow_reserve_bytes(capability) if capability else 0,
        used_bytes=memory.used_bytes,
        uuid=device.uuid,
        is_mig=part is not None,
        compute_capability=capability,
        processes=processes,
    )


def _read_memory(nvml: ModuleType, handle: Any) -> _Memory:
    version = 2
    found, error = _ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    if error is not None:
        # Drivers before 510 know the first version alone.
        version = 1
        found, error = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    if error is not None:
        return _Memory(error=error)
    if not found.total:
        return _Memory()
    return _Memory(
        total_bytes=found.total,
        free_bytes=found.free,
        used_bytes=found.used,
        version=version,
    )


def _explain_memory(nvml: ModuleType, position: int, name: str, memory: _Memory) -> str | None:
    if memory.total_bytes is not None:
        return None
    code = getattr(memory.error, "value", None)
    if memory.error is None or code == nvml.NVML_ERROR_NOT_SUPPORTED:
        return (
            f"GPU {position} ({name}) reports no memory of its own, as GPUs that share system "
            "RAM do (Jetson, GB10): what it takes comes out of RAM, so count RAM once."
        )
    return f"The memory of GPU {position} ({name}) is unknown: {memory.error}."


def _is_somebody_unseen(processes: tuple[GpuProcess, ...] | None, memory: _Memory) -> bool:
    used = memory.used_bytes or 0
    return processes == () and used >= _IDLE_BYTES[memory.version]


def _explain_not_opened(nvml: ModuleType, error: Exception) -> str:
    code = getattr(error, "value", None)
    for name, sentence in _WHY_NOT_OPENED.items():
        if code is not None and code == getattr(nvml, name, None):
            return sentence
    return f"The NVIDIA driver cannot be asked ({error}), so GPU memory is unknown; pass --vram."


def _ask(function: Callable[..., Any], *arguments: Any) -> tuple[Any, Exception | None]:
    """Return a driver function's answer, or the reason why there is none."""
    try:
        return function(*arguments), None
    except Exception as error:
        # Besides its own errors the binding raises others: for bytes that are not text, or for
        # a library older than itself. None of them may end a run that does not need the GPU.
        return None, error


def _printable(text: str | None) -> str:
    return "".join(letter for letter in text or "" if letter.isprintable()).strip()
