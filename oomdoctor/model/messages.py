"""What an error says: whether memory ran out, and the sentence that says most."""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Keras writes some of its errors in bold."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python or TensorFlow could not get memory, in one of its ways to say so."""
    name, text = type(error).__name__, str(error)
    return (
        isinstance(error, MemoryError)
        or name == "ResourceExhaustedError"
        or (name == "InternalError" and ("Dst tensor is not initialized" in text or "OOM" in text))
    )


def oom_line(error: BaseException) -> str:
    """Return the sentence of an out-of-memory error that says what was asked for."""
    lines = str(error).splitlines() or [type(error).__name__]
    return next((line.strip() for line in lines if "OOM when" in line), lines[0])[:500]


def first_line(error: Exception) -> str:
    """Return the line of an error that says most; Keras puts where it happened first."""
    text = _COLOURS.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith("Exception encountered")]
    return (telling or lines or [type(error).__name__])[0][:300]
