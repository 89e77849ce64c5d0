"""A server's file system, and one place where its requests are counted, bounded and retried."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from oomdoctor._optional import import_optional
from oomdoctor.errors import InputError, MissingPackageError
from oomdoctor.inventory.address import EXTRAS, scheme_of, shown
from oomdoctor.inventory.parts import Unreadable

AT_ONCE = 128
"""Requests under way at a time: with 20 ms of latency that is 6,400 objects a second."""

ATTEMPTS = 3
_PAUSE_SECONDS = 0.25
REQUEST_SECONDS = 60.0

NO_RANGES = "the server does not send parts of files"
NO_RANGES_LIMIT_BYTES = 1024 * 1024
"""Of a server that sends whole files only, this much of the beginning is read."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Traffic:
    """What reading from a server cost so far."""

    requests: int = 0
    received_bytes: int = 0
    retries: int = 0


class Temporary(Exception):
    """A request failed in a way that may pass."""


class Server:
    """The file system of one scheme, as fsspec's own configuration sets it up."""

    def __init__(self, scheme: str) -> None:
        fsspec = import_optional("fsspec", extra="remote", purpose="to read data on servers")
        try:
            # Listings are not kept: a bucket may have more objects than memory has room for.
            self.files: Any = fsspec.filesystem(scheme, use_listings_cache=False)
        except ImportError:
            raise MissingPackageError(
                f"{EXTRAS[scheme]} is needed to read {scheme}:// addresses: "
                f"pip install {EXTRAS[scheme]}"
            ) from None
        self.is_http = scheme in ("http", "https")
        self.traffic = Traffic()
        self.signed: dict[str, str] = {}
        """Whole addresses of objects that were named with a query, such as a signature."""
        self._is_async = bool(getattr(self.files, "async_impl", False))
        self._lock = threading.Lock()
        asyn = import_optional("fsspec.asyn", extra="remote", purpose="to read data on servers")
        self._loop: asyncio.AbstractEventLoop = (
            self.files.loop if self._is_async else asyn.get_loop()
        )
        # Made by the loop that uses it.
        self._turn: asyncio.Semaphore = self.start(_semaphore()).result()

    def start(self, work: Awaitable[Answer]) -> Future[Answer]:
        """Begin some asynchronous work on the loop of fsspec."""

        async def run() -> Answer:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    async def get(self, address: str, start: int, end: int) -> tuple[bytes, int | None]:
        """Return a range of an object, and the size of the whole if the server says it."""
        return await self.request(lambda: self._get(address, start, end))

    async def request(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a request when it is its turn, and again if it fails in a way that may pass."""
        async with self._turn:
            for attempt in range(ATTEMPTS):
                with self._lock:
                    self.traffic.requests += 1
                    self.traffic.retries += attempt > 0
                try:
                    return await asyncio.wait_for(ask(), REQUEST_SECONDS)
                except Exception as error:
                    if attempt == ATTEMPTS - 1 or not _may_pass(error):
                        raise
                await asyncio.sleep(_PAUSE_SECONDS * 4**attempt)
        raise AssertionError("unreachable")

    async def _get(self, address: str, start: int, end: int) -> tuple[bytes, int | None]:
        if self.is_http:
            data, size = await self._get_http(address, start, end)
        elif self._is_async:
            data, size = await self.files._cat_file(address, start=start, end=end), None
        else:
            data = await asyncio.to_thread(self.files.cat_file, address, start=start, end=end)
            size = None
        with self._lock:
            self.traffic.received_bytes += len(data)
        return data, size

    async def _get_http(self, address: str, start: int, end: int) -> tuple[bytes, int | None]:
        """Return a range, and read no more than that from a server that sends the whole."""
        session = await self.files.set_session()
        address = self.signed.get(address, address)
        # Packed on the way, a range would be one of the packed bytes.
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        options = {**self.files.kwargs}
        options["headers"] = {**options.get("headers", {}), **headers}
        async with session.get(self.files.encode_url(address), **options) as answer:
            if answer.status == 416:  # the range begins behind the end
                return b"", _whole_size(answer)
            _raise_for(answer.status)
            if answer.status == 206:
                return await _read(answer, end - start), _whole_size(answer)
            if end > NO_RANGES_LIMIT_BYTES:
                answer.close()
                raise Unreadable(NO_RANGES)
            data = await _read(answer, end)
            answer.close()  # the rest is not wanted
            return data[start:], answer.content_length

    async def info(self, address: str) -> dict[str, Any]:
        """Return what the server says about one object or folder."""

        async def ask() -> dict[str, Any]:
            if self._is_async:
                found = await self.files._info(address)
            else:
                found = await asyncio.to_thread(self.files.info, address)
            return dict(found)

        return await self.request(ask)

    async def page(self, address: str, limit_bytes: int) -> str:
        """Return the text of a web page, such as the index of a folder."""

        async def ask() -> str:
            session = await self.files.set_session()
            async with session.get(self.files.encode_url(address), **self.files.kwargs) as answer:
                _raise_for(answer.status)
                if answer.content_type != "text/html":
                    answer.close()
                    raise Unreadable("not a list of files")
                data = await _read(answer, limit_bytes + 1)
            if len(data) > limit_bytes:
                raise Unreadable(f"list of files longer than {limit_bytes // 2**20} MiB")
            with self._lock:
                self.traffic.received_bytes += len(data)
            return data.decode("utf-8", "replace")

        return await self.request(ask)


async def _semaphore() -> asyncio.Semaphore:
    return asyncio.Semaphore(AT_ONCE)


async def _read(answer: Any, limit_bytes: int) -> bytes:
    """Return at most so much of what a server sends."""
    blocks: list[bytes] = []
    left = limit_bytes
    while left > 0:
        block = await answer.content.read(left)
        if not block:
            break
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def _whole_size(answer: Any) -> int | None:
    total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    return int(total) if total.isdigit() and len(total) < 20 else None


def _raise_for(status: int) -> None:
    if status < 400:
        return
    if status in (401, 403):
        raise PermissionError
    if status in (404, 410):
        raise FileNotFoundError
    if status in (408, 425, 429) or status >= 500:
        raise Temporary
    raise Unreadable(f"the server answered {status}")


def _may_pass(error: Exception) -> bool:
    if isinstance(error, (Temporary, TimeoutError, asyncio.TimeoutError, ConnectionError)):
        return True
    # aiohttp's are not imported for their names: they are there only if it is installed.
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"ClientConnectionError", "ClientPayloadError", "ServerDisconnectedError"})


def reason_for(error: BaseException) -> str:
    """Return why an object was passed over, without a word of the server's own.

    A message of a client library may quote addresses with keys and signatures.
    """
    if isinstance(error, Unreadable):
        return str(error)
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "vanished during the scan"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return "the server did not answer in time"
    if isinstance(error, (Temporary, ConnectionError)) or _may_pass_name(error):
        return "the server could not be reached"
    return f"cannot be read ({type(error).__name__})"


def _may_pass_name(error: BaseException) -> bool:
    return isinstance(error, Exception) and _may_pass(error)


@lru_cache(maxsize=len(EXTRAS))
def _server(scheme: str) -> Server:
    return Server(scheme)


def server_of(address: str) -> Server:
    """Return the server of an address, set up once for each scheme."""
    return _server(scheme_of(address))


def cannot_list(address: str, error: BaseException) -> InputError:
    """Return the sentence for an address whose content cannot be listed."""
    name = type(error).__name__
    where = shown(address)
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return InputError(
            f"{where}: no credentials were found. Configure them as for any program of this "
            "service, or set FSSPEC_S3_ANON=true for a public bucket."
        )
    if isinstance(error, FileNotFoundError):
        return InputError(f"{where} does not exist: give the address of a folder or a file.")
    if isinstance(error, PermissionError):
        return InputError(f"{where} may not be read: check the credentials and the address.")
    return InputError(f"{where} cannot be read: {reason_for(error)}.")
