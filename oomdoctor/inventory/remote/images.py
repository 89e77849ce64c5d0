"""Headers of images on a server: one request for each, many at a time."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from oomdoctor.inventory import headers
from oomdoctor.inventory.images import BITS_OF_DTYPE, shape_from_bytes
from oomdoctor.inventory.opening import join
from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.remote.server import Server, reason_for, server_of
from oomdoctor.inventory.walk import Chunk

if TYPE_CHECKING:
    from oomdoctor.inventory.headers import Found, Shape

FIRST_BYTES = 16 * 1024
"""Asked for where the size is not known."""
LEAST_BYTES = 2 * 1024
MOST_BYTES = 64 * 1024
_SHARE = 25
"""One part in so many of a file is asked for: what a camera writes before the frame of a JPEG (EXIF
with a preview) grows with the image."""


def read_headers(chunk: Chunk, names: list[str], *, each: bool = False) -> Future[dict[str, Any]]:
    """Start reading some images of a chunk; the answer is that of `headers.answer`."""
    server = server_of(chunk.folder)
    return server.start(_read_all(server, chunk, names, each=each))


async def _read_all(
    server: Server, chunk: Chunk, names: list[str], *, each: bool
) -> dict[str, Any]:
    work = [_read_one(server, join(chunk.folder, name), chunk.sizes.get(name)) for name in names]
    found = await asyncio.gather(*work)
    return headers.add_up(zip(names, found, strict=True), each=each)


async def _read_one(server: Server, address: str, size: int | None) -> Found:
    """Return the shape and the size of an image, or why it has none."""
    if size == 0:
        return headers.EMPTY
    wanted = FIRST_BYTES
    if size is not None:
        wanted = min(size, max(LEAST_BYTES, min(MOST_BYTES, size // _SHARE)))
    try:
        data, whole = await server.get(address, 0, wanted)
        size = size if size is not None else whole
        if size is None:
            return "the server does not say how large it is"
        return await _shape(server, address, data, size), size
    except (headers.HeaderError, Unreadable) as error:
        return str(error)
    # A client library may fail in any way; the words are ours.
    except Exception as error:
        return reason_for(error)


async def _shape(server: Server, address: str, data: bytes, size: int) -> Shape:
    at = 0
    for _ in range(headers.MAX_SEGMENTS):
        try:
            return headers.parse_header(data, size, at=at)
        except headers.NeedsMore as error:
            if error.at >= size or at >= MOST_BYTES * 16:
                raise headers.HeaderError(headers.BROKEN) from None
            at = error.at
            data, _ = await server.get(address, at, min(size, at + MOST_BYTES))
            if len(data) < 10:
                raise headers.HeaderError(headers.BROKEN) from None
        except headers.NeedsPillow:
            found = shape_from_bytes(data)
            if found is None and len(data) < min(size, MOST_BYTES):
                data, _ = await server.get(address, 0, min(size, MOST_BYTES))
                found = shape_from_bytes(data)
            if found is None:
                raise Unreadable(headers.NOT_AN_IMAGE) from None
            (height, width, channels), dtype = found
            elements = height * width * channels
            if elements > size * headers.MAX_RATIO["other"]:
                raise headers.HeaderError(headers.LIES) from None
            return height, width, channels, BITS_OF_DTYPE[dtype]
    raise headers.HeaderError(headers.BROKEN)
