"""Variables that have a shape and take no memory, so that a model of any size can be traced.

A trace reads no values. While `reserving()` is in force, the values of large new Keras variables
are views of one read-only piece of address space, which the system backs with its page of zeros:
they can be read, as zeros, and cost nothing. Initialisers are not called, and what is assigned from
Python (weights that are loaded, above all) is dropped. A model that trains while it is being built
gets memory for what a step writes, as TensorFlow copies a buffer that others share.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.units import GIB, KIB, format_bytes

LEAST_BYTES = 64 * KIB
"""Smaller variables are made as usual: counters, rates and random states have values that count."""

MADE_AS_USUAL = ("bool", "float8_e4m3fn", "float8_e5m2", "string")
"""Dtypes that bytes cannot be read as."""

_kept: dict[int, tuple[mmap.mmap, Any]] = {}
"""The address space by its size, and the tensor over it: held for good, so that no kernel ever
takes itself for the only owner of the buffer and writes into it."""


@dataclass
class Reserved:
    """What would have been taken."""

    bytes: int = 0


@contextlib.contextmanager
def reserving() -> Iterator[Reserved]:
    """Let Keras variables that this thread creates take no memory."""
    import tensorflow as tf
    from keras import Variable

    thread, reserved = threading.get_ident(), Reserved()
    originals = {
        name: Variable.__dict__.get(name)
        for name in ("_initialize_with_initializer", "_direct_assign", "numpy")
    }
    initialize, assign, numpy = (getattr(Variable, name) for name in originals)

    def reserve(self: Any, initializer: Any) -> None:
        size = _bytes_of(self)
        if size < LEAST_BYTES or self._dtype in MADE_AS_USUAL or threading.get_ident() != thread:
            initialize(self, initializer)
            return
        with tf.init_scope(), tf.device("CPU:0"):
            self._initialize(_zeros(self._shape, tf.as_dtype(self._dtype), size))
        self._oomdoctor_reserved = True
        reserved.bytes += size

    def drop(self: Any, value: Any) -> None:
        if not (tf.executing_eagerly() and is_reserved(self)):
            assign(self, value)

    def read(self: Any) -> Any:
        import numpy as np

        if not is_reserved(self):
            return numpy(self)
        zero = np.zeros((), tf.as_dtype(self._dtype).as_numpy_dtype)
        return np.broadcast_to(zero, tuple(self._shape))

    for name, own in zip(originals, (reserve, drop, read), strict=True):
        setattr(Variable, name, own)
    try:
        yield reserved
    finally:
        for name, original in originals.items():
            if original is None:
                delattr(Variable, name)
            else:
                setattr(Variable, name, original)


def is_reserved(variable: Any) -> bool:
    """Return whether a variable has no memory."""
    return getattr(variable, "_oomdoctor_reserved", False)


def _bytes_of(variable: Any) -> int:
    import tensorflow as tf

    size = int(tf.as_dtype(variable._dtype).size)
    for dim in variable._shape:
        size *= dim
    return size


def _zeros(shape: tuple[int, ...], dtype: Any, size_bytes: int) -> Any:
    """Return a tensor of zeros that takes no memory."""
    import tensorflow as tf

    space = _space(size_bytes)[:size_bytes]
    return tf.reshape(tf.bitcast(tf.reshape(space, (-1, dtype.size)), dtype), shape)


def _space(size_bytes: int) -> Any:
    """Return address space that is at least so large, as a tensor of bytes."""
    import numpy as np
    import tensorflow as tf

    for known, (_, tensor) in _kept.items():
        if known >= size_bytes:
            return tensor
    # Read-only and private: no promise of memory is asked of the system, whatever its settings.
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    length = max(GIB, 1 << (size_bytes - 1).bit_length())
    try:
        space = mmap.mmap(-1, length, flags=flags, prot=mmap.PROT_READ)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"A variable of {format_bytes(size_bytes)} is more than this machine can address."
        ) from error
    address = np.frombuffer(space, np.uint8).ctypes.data
    # DLPack hands on no array that is marked as read-only, so the mark is left out.
    array = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(address))
    tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    _kept[length] = (space, tensor)
    return tensor
