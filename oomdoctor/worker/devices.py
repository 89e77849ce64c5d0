"""The device's memory, set up before the model is built."""

from __future__ import annotations

import os
from typing import Any

from oomdoctor.units import MIB

FIRST_REGION_BYTES = 2 * MIB
"""What the allocator takes for the first small tensor; the rest of the limit is left for one."""


def prepare_devices(limit_bytes: int | None) -> list[tuple[int, int]]:
    """Set up the device's memory; return the regions of a CPU's allocator.

    A CPU's limit was set in the environment, a GPU's is set here.
    """
    import tensorflow as tf

    for index, gpu in enumerate(tf.config.list_physical_devices("GPU")):
        if index == 0 and limit_bytes is not None:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=limit_bytes // MIB)
            tf.config.set_logical_device_configuration(gpu, [limit])
        else:
            tf.config.experimental.set_memory_growth(gpu, True)
    if tf.config.list_physical_devices("GPU"):
        return []
    return take_one_region(limit_bytes)


def take_one_region(limit_bytes: int | None) -> list[tuple[int, int]]:
    """Let the CPU's allocator take its memory in one piece, as TensorFlow does on a GPU.

    By itself it grows in regions that double in size, between which free memory cannot be
    joined. One large tensor, never written to, makes it take everything at once; the system
    gives pages only as they are used.

    Returns:
        Address and size of the small first region and of the large one; empty if that failed.
    """
    import tensorflow as tf

    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if limit_bytes is not None and limit_bytes < machine_bytes:
        size = limit_bytes // MIB * MIB - FIRST_REGION_BYTES
    else:
        # A region is a power of two unless the limit cuts it, and the system must promise it.
        size = 1 << (machine_bytes.bit_length() - 1)
    if size <= 0:
        return []
    first = (address_of(tf.constant([0], tf.uint8)), FIRST_REGION_BYTES)
    try:
        large = tf.raw_ops.Empty(shape=[size // MIB, MIB], dtype=tf.uint8, init=False)
    except tf.errors.ResourceExhaustedError:
        return []
    return [first, (address_of(large), size)]


def address_of(tensor: Any) -> int:
    """Return where a tensor on the CPU is stored."""
    import numpy as np

    return int(np.frombuffer(memoryview(tensor), dtype=np.uint8).ctypes.data)


def device_name() -> str:
    """Return the device that is measured."""
    import tensorflow as tf

    return "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"


def memory_info(name: str) -> int:
    """Return `current` or `peak` bytes of the measured device."""
    import tensorflow as tf

    return int(tf.config.experimental.get_memory_info(device_name())[name])
