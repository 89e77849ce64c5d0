"""Sizes and shapes as logs print them.

TensorFlow and NumPy print binary sizes (`3.72GiB`, `157.00M`, `55.2 GiB`, `128. TiB`); its own
`MB` is 2**20 too. Programs that print their memory mostly divide by 1024 whatever they call it,
so every unit here is binary.
"""

from __future__ import annotations

import re

from oomdoctor.units import DTYPE_BYTES, element_count

_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_SIZE = re.compile(
    r"\s*(\d{1,20}(?:\.\d{0,12})?|\.\d{1,12})\s*([kmgtpe]?)i?(?:b|bytes?)?\s*\Z", re.I
)
_MOST_DIMENSIONS = 32

TF_DTYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "float32_ref": "float32",
    "float_ref": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
    "s64": "int64",
    "u32": "uint32",
    "u64": "uint64",
    "pred": "bool",
}
"""Names in TensorFlow's and XLA's messages that differ from those in Python."""


def printed_bytes(text: str | None) -> int | None:
    """Return the bytes of a printed size, or None.

    Example:
        >>> printed_bytes("3.72GiB")
        3994319585
        >>> printed_bytes("157.00M")
        164626432
    """
    match = _SIZE.match(text or "")
    if match is None:
        return None
    number, power = match[1], _POWER[match[2].lower()]
    if "." not in number:
        return int(number) << (10 * power)
    return int(float(number) * 1024**power)


def printed_shape(text: str | None) -> tuple[int, ...] | None:
    """Return a printed shape such as `32,64,250,250`, or None where a dimension is not a number."""
    parts = [part.strip() for part in (text or "").split(",")]
    parts = [part for part in parts if part]
    if text is None or len(parts) > _MOST_DIMENSIONS:
        return None
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        return None
    return tuple(int(part) for part in parts)


def dtype_name(printed: str | None) -> str | None:
    """Return a dtype as Python names it.

    Example:
        >>> dtype_name("float"), dtype_name("<f8"), dtype_name("DT_HALF")
        ('float32', 'float64', 'float16')
    """
    if not printed:
        return None
    text = re.fullmatch(r"['\"]?[<>|=]?U(\d{1,9})['\"]?", printed)
    if text:  # str in capitals, unsigned integers not
        return f"u{text[1]}"
    name = printed.strip("'\"<>|=").removeprefix("DT_").lower()
    code = re.fullmatch(r"([fiu])([1248])", name)
    if code:
        kind = {"f": "float", "i": "int", "u": "uint"}[code[1]]
        return f"{kind}{8 * int(code[2])}"
    return TF_DTYPES.get(name, name)


def item_bytes(dtype: str | None) -> int | None:
    """Return the bytes of one element; None for dtypes without a fixed width."""
    if dtype is None:
        return None
    if dtype in DTYPE_BYTES:
        return DTYPE_BYTES[dtype]
    text = re.fullmatch(r"([us])(\d{1,9})", dtype)
    if text:  # NumPy's fixed-width strings: four bytes a letter as str, one as bytes
        return int(text[2]) * (4 if text[1] == "u" else 1)
    if dtype == "object" or dtype.startswith(("datetime64", "timedelta64")):
        return 8
    return 1 if dtype in ("qint8", "quint8") else None


def tensor_bytes(shape: tuple[int, ...] | None, dtype: str | None) -> int | None:
    """Return what a tensor of this shape takes."""
    item = item_bytes(dtype)
    if shape is None or item is None:
        return None
    total = element_count(shape) * item
    return total if total < 2**63 else None
