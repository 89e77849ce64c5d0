"""Sets the memory limit of `--vram` on real GPUs, as soon as TensorFlow is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomdoctor.units import MIB, format_bytes

if TYPE_CHECKING:
    from oomdoctor.profile.inside import Inside


def limit_gpus(tensorflow: Any, inside: Inside) -> None:
    """Limit the first GPU; a CPU's limit was set in the environment.

    Args:
        tensorflow: The module, just imported.
        inside: Says what to limit, and takes the note.
    """
    limit = inside.settings.vram_bytes
    if limit is None:
        return
    gpus = tensorflow.config.list_physical_devices("GPU")
    if not gpus:
        inside.note(
            f"--vram {format_bytes(limit)} was emulated on the CPU, with the allocator that "
            "TensorFlow has on a GPU."
        )
        return
    configuration = tensorflow.config.LogicalDeviceConfiguration(memory_limit=limit // MIB)
    tensorflow.config.set_logical_device_configuration(gpus[0], [configuration])
