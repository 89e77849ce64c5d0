"""A folder of images: checked by their headers and ends, decoded by TensorFlow in parallel."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.source import Column, Source
from oomdoctor.inventory import headers, walk
from oomdoctor.inventory.names import split_of

NAMED = 5
"""Bad files that a message names; all of them are in `bad_files`."""

_NOT_DECODED = "a format that TensorFlow does not decode"
_CUT_OFF = "cut off or damaged"
_ENDS = ((b"\xff\xd8", b"\xff\xd9"), (b"\x89PNG", b"IEND"), (b"GIF8", b"\x3b"))
_TAIL_BYTES = 64


class BadFileWarning(UserWarning):
    """Says how many files were left out, and names some."""


def open_images(
    folder: str,
    *,
    image_size: tuple[int, ...] | None,
    dtype: str,
    with_labels: bool,
    on_bad: str,
    any_size: bool = False,
) -> Source:
    """Return a folder of images as a source of paths, which are decoded later.

    Args:
        folder: Class folders, or images that lie flat.
        image_size: Height, width and perhaps channels; None takes the size that all have.
        dtype: `float32`, or `uint8` for a quarter of the memory.
        with_labels: Whether the folders below it are classes.
        on_bad: `error` or `skip`.
        any_size: The images will not be decoded, so sizes may differ.
    """
    import numpy as np

    paths, classes, sizes, bad = _checked(folder)
    if bad and on_bad == "error":
        raise InputError(f'{_told(bad)}: repair or remove them, or pass on_bad="skip".')
    if not paths:
        raise InputError(f"{folder} holds no images that TensorFlow can decode. {_told(bad)}")
    if bad:
        warnings.warn(f"{_told(bad)}: left out.", BadFileWarning, stacklevel=5)
    names = sorted({name for name in classes if name is not None})
    has_labels = with_labels and None not in classes
    splits = [name for name in names if split_of(name)]
    if has_labels and len(splits) == len(names):
        raise UsageError(
            f"{folder} holds the splits {', '.join(splits)}, not classes: give one of them, such "
            f"as {os.path.join(folder, splits[0])}."
        )
    if any_size and len(sizes) > 1:
        image_size = (0, 0)
    target = _target(folder, image_size, sizes)
    values: list[Any] = [np.array([os.fsencode(path) for path in paths], object)]
    columns = [Column("path", (), "string")]
    if has_labels:
        number_of = {name: number for number, name in enumerate(names)}
        values.append(np.array([number_of[name] for name in classes if name is not None], np.int32))
        columns.append(Column("label", (), "int32"))
    decode = image_decoder(target, dtype, is_sized=sizes == {target[:2]})
    return Source(
        columns=tuple(columns),
        sizes=[len(paths)],
        read=lambda block: values,
        image_shape=target,
        row_bytes=int(np.prod(target)) * (4 if dtype == "float32" else 1),
        has_labels=has_labels,
        class_names=tuple(names) if has_labels else None,
        bad_files=tuple(f"{path} ({reason})" for path, reason in bad),
        decode=lambda path, *label: (decode(_read_file(path)), *label),
        name_of=lambda row: paths[row],
    )


def image_decoder(target: tuple[int, ...], dtype: str, *, is_sized: bool) -> Callable[[Any], Any]:
    """Return a TensorFlow function from an encoded image to its pixels."""
    import tensorflow as tf

    def decode(content: Any) -> Any:
        image = tf.io.decode_image(content, channels=target[2], expand_animations=False)
        if not is_sized:
            image = tf.image.resize(image, target[:2])
        if dtype == "uint8" and not is_sized:
            image = tf.round(image)
        image = tf.cast(image, dtype)
        return tf.ensure_shape(image, target)

    return decode


def why_undecodable(path: str) -> str | None:
    """Return why TensorFlow does not decode a file; None if it does."""
    import tensorflow as tf

    try:
        tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
    except tf.errors.ResourceExhaustedError:
        return None  # memory ran out, which is no fault of the file's
    except tf.errors.OpError:
        return _CUT_OFF
    return None


def _read_file(path: Any) -> Any:
    import tensorflow as tf

    return tf.io.read_file(path)


def _checked(
    folder: str,
) -> tuple[list[str], list[str | None], set[tuple[int, int]], list[tuple[str, str]]]:
    """Return the images that can be decoded, their classes and sizes, and the bad files."""
    found: list[tuple[str, str | None]] = []
    for chunk in walk.walk(folder):
        name = chunk.parts[0] if chunk.parts else None
        found += [(os.path.join(chunk.folder, image), name) for image in chunk.images]
    found.sort(key=lambda pair: pair[0])
    paths: list[str] = []
    classes: list[str | None] = []
    sizes: set[tuple[int, int]] = set()
    bad: list[tuple[str, str]] = []
    for path, name in found:
        try:
            sizes.add(_size_of(path))
        except (headers.HeaderError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            bad.append((path, str(reason)))
            continue
        paths.append(path)
        classes.append(name)
    return paths, classes, sizes, bad


def _size_of(path: str) -> tuple[int, int]:
    """Return the height and width of an image whose beginning and end are in order."""
    with open(path, "rb", buffering=0) as file:
        head = file.read(headers.FIRST_BYTES)
        size_bytes = os.fstat(file.fileno()).st_size
        try:
            height, width, *_ = headers.parse_header(head, size_bytes, file.fileno())
        except headers.NeedsPillow:
            raise headers.HeaderError(_NOT_DECODED) from None
        tail = os.pread(file.fileno(), _TAIL_BYTES, max(0, size_bytes - _TAIL_BYTES))
    end = next((end for start, end in _ENDS if head.startswith(start)), b"")
    # Cameras add data of their own after the end of a JPEG: only then it is decoded to know.
    if end not in tail and (reason := why_undecodable(path)):
        raise headers.HeaderError(reason)
    return height, width


def _target(
    folder: str, image_size: tuple[int, ...] | None, sizes: set[tuple[int, int]]
) -> tuple[int, ...]:
    if image_size is not None:
        return (*image_size, 3)[:3]
    if len(sizes) > 1:
        low, high = min(sizes), max(sizes)
        raise UsageError(
            f"The images in {folder} are of {len(sizes)} sizes, from {low[0]}x{low[1]} to "
            f"{high[0]}x{high[1]}: pass image_size=, such as (256, 256)."
        )
    return (*next(iter(sizes)), 3)


def _told(bad: list[tuple[str, str]]) -> str:
    if not bad:
        return ""
    named = ", ".join(f"{path} ({reason})" for path, reason in bad[:NAMED])
    more = f" and {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
    verb = "files cannot be decoded" if len(bad) > 1 else "file cannot be decoded"
    return f"{len(bad):,} {verb}: {named}{more}"
