"""The memory of common GPUs, to recognize a limit far below it.

Names are matched as words in what the driver calls the card. Cards sold with several sizes, parts
of a card (MIG, GRID, vGPU) and names that are not here are unknown.
"""

from __future__ import annotations

import re

from oomdoctor.units import GIB

_GIB_BY_NAME = {
    "gt 1030": 2,
    "gtx 960m": 2,
    "gtx 970m": 3,
    "gtx 970": 4,
    "gtx 980": 4,
    "gtx 980 ti": 6,
    "gtx titan x": 12,
    "gtx 1050 ti": 4,
    "gtx 1070": 8,
    "gtx 1070 ti": 8,
    "gtx 1080": 8,
    "gtx 1080 ti": 11,
    "titan x": 12,
    "titan xp": 12,
    "titan v": 12,
    "titan rtx": 24,
    "gtx 1650": 4,
    "gtx 1660": 6,
    "gtx 1660 ti": 6,
    "rtx 2060": 6,
    "rtx 2060 super": 8,
    "rtx 2070": 8,
    "rtx 2070 super": 8,
    "rtx 2080": 8,
    "rtx 2080 super": 8,
    "rtx 2080 ti": 11,
    "rtx 3060 ti": 8,
    "rtx 3070": 8,
    "rtx 3070 ti": 8,
    "rtx 3090": 24,
    "rtx 3090 ti": 24,
    "rtx 4060": 8,
    "rtx 4070": 12,
    "rtx 4090": 24,
    "rtx a4000": 16,
    "rtx a5000": 24,
    "rtx a6000": 48,
    "quadro p5000": 16,
    "quadro p6000": 24,
    "quadro rtx 5000": 16,
    "quadro rtx 6000": 24,
    "quadro rtx 8000": 48,
    "tesla k40m": 12,
    "tesla k40c": 12,
    "tesla k80": 12,
    "tesla m40": 12,
    "tesla m60": 8,
    "tesla p4": 8,
    "tesla p40": 24,
    "tesla p100-pcie-16gb": 16,
    "tesla p100-sxm2-16gb": 16,
    "tesla t4": 16,
    "tesla v100-sxm2-16gb": 16,
    "tesla v100-pcie-16gb": 16,
    "tesla v100-sxm2-32gb": 32,
    "tesla v100-pcie-32gb": 32,
    "a100-sxm4-40gb": 40,
    "a100-pcie-40gb": 40,
    "a100-sxm4-80gb": 80,
    "a100 80gb": 80,
    "a10g": 24,
    "nvidia a10": 24,
    "nvidia l4": 24,
    "h100": 80,
}
_PART_OF_A_CARD = re.compile(r"\b(?:mig|grid|vgpu)\b|with max-q|laptop", re.IGNORECASE)


def card_bytes(name: str | None) -> int | None:
    """Return what a card of this name holds, or None.

    Example:
        >>> card_bytes("NVIDIA GeForce GTX 1080 Ti") == 11 * 2**30
        True
        >>> card_bytes("A100-SXM4-40GB MIG 1g.5gb") is None
        True
    """
    if not name or _PART_OF_A_CARD.search(name):
        return None
    low = f" {' '.join(name.lower().split())} "
    known = [known for known in _GIB_BY_NAME if f" {known} " in low]
    return _GIB_BY_NAME[max(known, key=len)] * GIB if known else None
