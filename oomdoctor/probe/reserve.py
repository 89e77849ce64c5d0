"""Memory that TensorFlow leaves free on a GPU for CUDA's context, cuDNN and cuBLAS.

The allocator's limit is what is free when it starts, less this reserve. The figures are those of
`MinSystemMemory` in TensorFlow 2.13 and later (gpu_device.cc). Not counted: builds without
optimisation double it, Tegra has its own, and `TF_DEVICE_MIN_SYS_MEMORY_IN_MB` overrides it.
"""

from __future__ import annotations

from oomdoctor.units import MIB

_RESERVE_FROM_MAJOR = ((9, 1800 * MIB), (8, 1536 * MIB), (7, 1050 * MIB), (0, 500 * MIB))


def tensorflow_reserve_bytes(compute_capability: tuple[int, int]) -> int:
    """Return the bytes that TensorFlow's allocator leaves free on a card.

    Example:
        >>> tensorflow_reserve_bytes((8, 6)) // 1024**2
        1536
    """
    major = compute_capability[0]
    return next(reserve for first, reserve in _RESERVE_FROM_MAJOR if major >= first)
