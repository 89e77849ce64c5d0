"""Objects on a server as files that are read by ranges, never whole."""

from __future__ import annotations

import io
import os
from typing import BinaryIO, cast

from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.remote.server import Server, reason_for, server_of

WINDOW_BYTES = 64 * 1024
"""Read at least at once: headers are read in many small steps."""

LIMIT_BYTES = 16 * 1024 * 1024
LIMIT_REQUESTS = 256
TOO_DEAR = "would take too many requests to size: copy it to this machine"


class RangeFile(io.RawIOBase):
    """A file that asks for what is read of it, a window at a time, within bounds."""

    is_remote = True

    def __init__(self, server: Server, address: str, size_bytes: int) -> None:
        super().__init__()
        self._server = server
        self._address = address
        self._size = size_bytes
        self._position = 0
        self._window = b""
        self._window_at = 0
        self._left_bytes = LIMIT_BYTES
        self._left_requests = LIMIT_REQUESTS

    @property
    def is_nearly_spent(self) -> bool:
        """Whether most of what may be read of it was read."""
        return self._left_requests * 2 < LIMIT_REQUESTS or self._left_bytes * 2 < LIMIT_BYTES

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read in any order."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + position)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes: fewer than asked for only at the end."""
        left = max(0, self._size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        at = self._position - self._window_at
        if not 0 <= at <= at + wanted <= len(self._window):
            self._fetch(max(wanted, min(WINDOW_BYTES, left)))
            at = 0
        data = self._window[at : at + wanted]
        self._position += len(data)
        return data

    def _fetch(self, count: int) -> None:
        if count > self._left_bytes or not self._left_requests:
            raise Unreadable(TOO_DEAR)
        start = self._position
        self._left_requests -= 1
        self._left_bytes -= count
        try:
            got = self._server.start(self._server.get(self._address, start, start + count))
            self._window = got.result()[0]
        # A client library may fail in any way; the words are ours.
        except Exception as error:
            raise Unreadable(reason_for(error)) from None
        self._window_at = start


def open_remote(address: str, size_bytes: int | None) -> BinaryIO:
    """Return an object as a file."""
    size = size_of_object(address) if size_bytes is None else size_bytes
    return cast(BinaryIO, RangeFile(server_of(address), address, size))


def size_of_object(address: str) -> int:
    """Return the stored bytes of an object, by a request for its first byte if need be."""
    server = server_of(address)

    async def ask() -> int:
        if server.is_http:
            _, size = await server.get(address, 0, 1)
            if size is None:
                raise Unreadable("the server does not say how large it is")
            return size
        info = await server.info(address)
        return int(info.get("size") or 0)

    try:
        return server.start(ask()).result()
    except Exception as error:
        raise Unreadable(reason_for(error)) from None
