"""Bytes to words and back, and the width of each dtype.

Inside oomdoctor sizes are whole bytes. People read binary units with binary names
(1 GiB = 2**30); people may write either kind (1 GB = 10**9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from oomdoctor.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_UNIT_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1024**4,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024**4,
}

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*\Z")

MAX_AXES = 8
"""Of one sample: TensorFlow's tensors have few more."""

MAX_DIGITS = 18
"""Of a number that a person writes: with more, it is no size of anything, but a mistake."""

DTYPE_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes one element holds in memory. A bool tensor holds a whole byte per element."""


def parse_size(text: str | int) -> int:
    """Return the bytes a size stands for.

    Example:
        >>> parse_size("2.7GiB")
        2899102924
        >>> parse_size("16GB")
        16000000000
    """
    if isinstance(text, int) and not isinstance(text, bool):
        if text < 0:
            raise UsageError(f"A size cannot be negative: {text}.")
        return text
    if not isinstance(text, str):
        raise UsageError(f"{text!r} is not a size: write '2.7GiB', '16GB', or whole bytes.")
    match = _SIZE.match(text)
    factor = _UNIT_BYTES.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise UsageError(f"{text!r:.60} is not a size: write 2.7GiB, 16GB, 512MiB or plain bytes.")
    whole, _, fraction = match[1].partition(".")
    if len(whole) > MAX_DIGITS:
        raise UsageError(f"{text!r:.60} is larger than any memory.")
    # Integer arithmetic keeps large sizes exact; the fraction alone goes through a float.
    return int(whole or 0) * factor + int(float(f"0.{fraction or 0}") * factor)


def parse_image_size(size: object) -> tuple[int, ...]:
    """Return height, width and perhaps channels, from `150x150x3` or a sequence of numbers.

    Example:
        >>> parse_image_size("150x150x3")
        (150, 150, 3)
    """
    parts = size.lower().replace("×", "x").split("x") if isinstance(size, str) else size
    numbers: tuple[int, ...] = ()
    if isinstance(parts, Sequence) and all(_is_count(str(part).strip()) for part in parts):
        numbers = tuple(int(part) for part in parts)
    if len(numbers) not in (2, 3) or min(numbers) < 1:
        raise UsageError(f"{size!r:.60} is not an image size: write 150x150 or 150x150x3.")
    return numbers


Sizes = tuple[int, ...] | dict[str, tuple[int, ...]]


def parse_input_size(size: object) -> Sizes:
    """Return the shape of one sample, or of each named input of one.

    Example:
        >>> parse_input_size("224x224x3"), parse_input_size("200")
        ((224, 224, 3), (200,))
        >>> parse_input_size(["ids=512", "image=224x224x3"])
        {'ids': (512,), 'image': (224, 224, 3)}
    """
    if isinstance(size, Mapping) and size:
        return {str(name): _dims(value) for name, value in size.items()}
    words = [size] if isinstance(size, str) else size
    if not words or not isinstance(words, Sequence) or not isinstance(words[0], str):
        return _dims(size)
    if len(words) == 1 and "=" not in words[0]:
        return _dims(words[0])
    sizes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, value = str(word).rpartition("=")
        if not equals or not name:
            raise UsageError(f"{word!r:.60} does not say which input it is for: {_INPUT_SIZES}.")
        if name in sizes:
            raise UsageError(f"The input {name!r:.60} has two sizes.")
        sizes[name] = _dims(value)
    return sizes


_INPUT_SIZES = (
    "write 224x224x3 for an image, 200 for a sequence, or ids=200 for the input that is called ids"
)


def _dims(size: object) -> tuple[int, ...]:
    parts: object = size
    if isinstance(size, str):
        parts = size.lower().replace("×", "x").split("x")
    elif isinstance(size, int):
        parts = [size]
    numbers: tuple[int, ...] = ()
    if isinstance(parts, Sequence) and all(_is_count(str(part).strip()) for part in parts):
        numbers = tuple(int(part) for part in parts)
    if not 1 <= len(numbers) <= MAX_AXES or min(numbers) < 1:
        raise UsageError(f"{size!r:.60} is not the size of an input: {_INPUT_SIZES}.")
    return numbers


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def format_bytes(size_bytes: float | None, *, unknown: str = "unknown") -> str:
    """Return a size as a person reads it; tables write an unknown one as a dash.

    Example:
        >>> format_bytes(4396410000)
        '4.09 GiB'
        >>> format_bytes(None)
        'unknown'
    """
    if size_bytes is None:
        return unknown
    sign = "-" if size_bytes < 0 else ""
    value = abs(float(size_bytes))
    if value < KIB:
        return f"{sign}{value:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= KIB
        # 999.5 and up would print as "1000": one unit further reads better.
        if value < 999.5 or unit == "PiB":
            break
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{sign}{value:.{digits}f} {unit}"


def dtype_bytes(dtype: str) -> int:
    """Return the bytes one element of a dtype holds.

    Example:
        >>> dtype_bytes("float32")
        4
    """
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        known = ", ".join(DTYPE_BYTES)
        raise UsageError(f"{dtype!r} is not a dtype oomdoctor knows: use one of {known}.") from None


def element_count(shape: tuple[int, ...]) -> int:
    """Return how many elements a shape holds.

    Example:
        >>> element_count((150, 150, 3))
        67500
    """
    total = 1
    for size in shape:
        total *= size
    return total
