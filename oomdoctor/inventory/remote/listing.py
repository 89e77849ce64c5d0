"""What is in a folder on a server, by pages, so that no folder is too large to be listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.remote.server import Server, reason_for, server_of

PAGE_ENTRIES = 1000
INDEX_LIMIT_BYTES = 64 * 1024 * 1024
_NAME_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder, as a listing names it."""

    name: str
    is_folder: bool
    size_bytes: int | None
    stamp: str
    """Changes when the content does: an etag, or the time of the last change. Empty if unknown."""


def pages_of(folder: str) -> Iterator[list[Entry]]:
    """Yield the entries of a folder, some thousand at a time.

    Raises:
        Unreadable: It cannot be listed, or not to its end.
    """
    server = server_of(folder)
    try:
        if server.is_http:
            yield from _index_pages(server, folder)
        elif hasattr(server.files, "_iterdir"):
            yield from _streamed_pages(server, folder)
        else:
            yield from _whole_pages(server, folder)
    except Unreadable:
        raise
    except GeneratorExit:
        raise
    # A client library may fail in any way; the words are ours.
    except Exception as error:
        raise Unreadable(f"folder cannot be read ({reason_for(error)})") from error


def _streamed_pages(server: Server, folder: str) -> Iterator[list[Entry]]:
    """Yield pages as an S3 server sends them: a bucket need not fit in memory."""
    bucket, key, _ = server.files.split_path(folder)
    prefix = f"{key.rstrip('/')}/" if key else ""

    async def begin() -> AsyncIterator[dict[str, Any]]:
        await server.files.set_session()
        found: AsyncIterator[dict[str, Any]] = server.files._iterdir(bucket, prefix=prefix)
        return found

    objects = server.start(begin()).result()

    async def page() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for item in objects:
            found.append(item)
            if len(found) == PAGE_ENTRIES:
                break
        return found

    while True:
        found = server.start(page()).result()
        server.traffic.requests += 1
        if not found:
            return
        yield list(_entries(found, f"{bucket}/{prefix}"))


def _whole_pages(server: Server, folder: str) -> Iterator[list[Entry]]:
    """Yield pages of a listing that the client library gives whole."""

    async def ask() -> list[dict[str, Any]]:
        if hasattr(server.files, "_ls"):
            found = await server.files._ls(folder, detail=True)
        else:
            found = await asyncio.to_thread(server.files.ls, folder, detail=True)
        return list(found)

    found = iter(_entries(server.start(server.request(ask)).result(), ""))
    while page := list(islice(found, PAGE_ENTRIES)):
        yield page


def _entries(found: list[dict[str, Any]], prefix: str) -> Iterator[Entry]:
    for item in found:
        path = str(item.get("name", ""))
        if path.startswith(prefix) and "/" in path[len(prefix) :].rstrip("/"):
            path = path[len(prefix) :]  # a key with empty folders in it: passed over below
        name = path.rstrip("/").rpartition("/")[2]
        if not _is_name(name) or path.rstrip("/") == prefix.rstrip("/"):
            continue
        size = item.get("size")
        stamp = next((item[key] for key in _STAMPS if item.get(key)), "")
        yield Entry(
            name,
            item.get("type") == "directory",
            size if isinstance(size, int) and size >= 0 else None,
            str(stamp)[:200],
        )


_STAMPS = ("ETag", "etag", "md5Hash", "oid", "blob_id", "LastModified", "mtime", "updated")


def _index_pages(server: Server, folder: str) -> Iterator[list[Entry]]:
    """Yield the links of a web server's index that lead to what is in the folder."""
    address = folder.rstrip("/") + "/"
    text = server.start(server.page(address, INDEX_LIMIT_BYTES)).result()
    names: dict[str, bool] = {}
    for link in _links(text):
        target = urljoin(address, link)
        parts, own = urlsplit(target), urlsplit(address)
        if (parts.scheme, parts.netloc) != (own.scheme, own.netloc) or parts.query:
            continue
        if not parts.path.startswith(own.path):
            continue
        below = parts.path[len(own.path) :]
        name = unquote(below.rstrip("/"))
        if _is_name(name) and "/" not in below.rstrip("/"):
            names.setdefault(name, below.endswith("/"))
    entries = (Entry(name, is_folder, None, "") for name, is_folder in names.items())
    while page := list(islice(entries, PAGE_ENTRIES)):
        yield page


def weigh_remote(folder: str, *, most: int) -> tuple[int, int]:
    """Return how many files lie below a folder, at most so many, and their bytes."""
    server = server_of(folder)
    files = stored_bytes = 0
    stack = [folder]
    while stack and files < most:
        inner = stack.pop()
        for page in pages_of(inner):
            found = {f"{inner.rstrip('/')}/{entry.name}": entry for entry in page}
            stack.extend(path for path, entry in found.items() if entry.is_folder)
            sizes = {path: entry.size_bytes for path, entry in found.items() if not entry.is_folder}
            files += len(sizes)
            # A web server does not list sizes: it is asked for the first byte of each.
            asked = [server.start(server.get(p, 0, 1)) for p, size in sizes.items() if size is None]
            stored_bytes += sum(size or 0 for size in sizes.values())
            stored_bytes += sum(answer.result()[1] or 0 for answer in asked)
    return files, stored_bytes


def _links(text: str) -> Iterator[str]:
    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag == "a":
                found.extend(value for key, value in attrs if key == "href" and value)

    found: list[str] = []
    parser = Parser()
    for start in range(0, len(text), _PARSED_AT_ONCE):
        parser.feed(text[start : start + _PARSED_AT_ONCE])
        yield from found
        found.clear()


_PARSED_AT_ONCE = 64 * 1024


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _NAME_LIMIT and name not in (".", "..") and "/" not in name
