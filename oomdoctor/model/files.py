"""Arrays in a file, or a folder of images → the samples that a model is fed from them.

Only headers are read. Labels of an image folder are left to the model's loss.
"""

from __future__ import annotations

import os

from oomdoctor.errors import InputError
from oomdoctor.inventory import arrays
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.inventory.scan import scan
from oomdoctor.model.samples import Samples, Tree
from oomdoctor.units import DTYPE_BYTES

PAIRS = (("x", "y"), ("x_train", "y_train"), ("X", "y"), ("X_train", "y_train"), ("arr_0", "arr_1"))
"""What inputs and targets are called in a file of several arrays; `numpy.savez` numbers them."""

CHANNELS = 3
"""Keras's loaders decode every image to this many, unless they are told otherwise."""

WHAT_IT_TAKES = (
    "give a .npy or .npz file, a folder of images, or module:callable, a function that returns a "
    "dataset or arrays"
)


def read_files(path: str) -> Samples:
    """Return what a model is fed from a path.

    Args:
        path: A `.npy` file with inputs, an `.npz` file with inputs and targets, or a folder of
            images.
    """
    if os.path.isdir(path):
        return _of_images(path)
    try:
        parts = list(arrays.read(path, os.path.getsize(path)))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {WHAT_IT_TAKES}.") from error
    except Unreadable as error:
        raise InputError(f"{path} holds no arrays ({error}): {WHAT_IT_TAKES}.") from error
    chosen = _pair(path, parts)
    counts = {part.samples for part in chosen}
    if len(counts) != 1:
        raise InputError(f"The arrays in {path} differ in length.")
    leaves = [_leaf(path, part) for part in chosen]
    return Samples(
        ["tuple", *leaves] if len(leaves) > 1 else leaves[0],
        count=counts.pop(),
        held_bytes=sum(_bytes_of(part) for part in chosen),
    )


def _pair(path: str, parts: list[Part]) -> list[Part]:
    """Return the inputs, and the targets if there are some."""
    if len(parts) == 1:
        return parts
    named = {part.name: part for part in parts}
    for names in PAIRS:
        if all(name in named for name in names):
            return [named[name] for name in names]
    known = ", ".join(sorted(named)[:5])
    raise InputError(f"{path} holds {known}: call the inputs x and the targets y.")


def _leaf(path: str, part: Part) -> Tree:
    if part.shape is None or part.dtype is None or part.samples is None:
        raise InputError(f"{path} holds objects or text, which cannot be sized: save numbers.")
    dtype = "float32" if part.dtype in ("float64", "float128") else part.dtype
    return ["leaf", list(part.shape), dtype, None]


def _bytes_of(part: Part) -> int:
    return (part.elements or 0) * DTYPE_BYTES.get(part.dtype or "", 0)


def _of_images(folder: str) -> Samples:
    """Return the size of the largest image; loaders give all images one size."""
    groups = [group for group in scan([folder]).groups if group.kind == "image"]
    shapes = [group.shapes for group in groups if group.shapes is not None]
    if not shapes:
        raise InputError(f"{folder} holds no images: {WHAT_IT_TAKES}.")
    size = tuple(max(known.largest[axis] for known in shapes) for axis in (0, 1))
    notes: tuple[str, ...] = ()
    if len({known.largest[:2] for known in shapes}) > 1 or any(s.distinct > 1 for s in shapes):
        notes = (
            f"Images differ in size: if the model has none of its own, the largest is fed, "
            f"{size[0]}x{size[1]}; --input-size says which one they are resized to.",
        )
    count = sum(group.samples or 0 for group in groups)
    return Samples(None, count=count, notes=notes, image_size=(*size, CHANNELS))
