"""Every object below an address, in chunks, as `inventory.walk` gives those of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from oomdoctor.errors import InputError
from oomdoctor.inventory import formats, walk
from oomdoctor.inventory.address import shown
from oomdoctor.inventory.opening import join
from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.remote.listing import Entry, pages_of
from oomdoctor.inventory.remote.server import cannot_list, server_of

LISTED_AHEAD = 16
"""Folders whose first page is asked for before it is their turn."""

MAX_FOLDERS = 1_000_000

Pages = Iterator[list[Entry]]


def walk_remote(address: str) -> Iterator[walk.Chunk]:
    """Yield what lies below an address, or the one object that it names."""
    server = server_of(address)
    plain = address.partition("?")[0] if server.is_http else address
    folder, _, name = plain.rstrip("/").rpartition("/")
    if not plain.endswith("/") and _is_file(address, name):
        if plain != address:
            server.signed[plain] = address
        chunk = walk.Chunk(folder, ())
        walk.sort_file(chunk, name)
        yield chunk
        return
    with ThreadPoolExecutor(LISTED_AHEAD) as threads:
        try:
            yield from _walk(plain.rstrip("/"), threads)
        except _CannotList as error:
            raise cannot_list(address, error.cause) from None
        finally:
            threads.shutdown(cancel_futures=True)


class _CannotList(Exception):
    """The folder that was asked about cannot be listed at all."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


def _is_file(address: str, name: str) -> bool:
    server = server_of(address)
    if server.is_http:
        # A web server does not say; a name with a data file's suffix is taken for a file.
        chunk = walk.Chunk("", ())
        walk.sort_file(chunk, name)
        return bool(chunk.images or chunk.others)
    try:
        return server.start(server.info(address)).result().get("type") == "file"
    except Exception as error:
        raise cannot_list(address, error) from None


def _walk(root: str, threads: ThreadPoolExecutor) -> Iterator[walk.Chunk]:
    stack: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    ahead: dict[str, Future[tuple[list[Entry], Pages]]] = {}
    seen = 0
    while stack:
        for folder, _ in stack[-LISTED_AHEAD:]:
            if folder not in ahead:
                ahead[folder] = threads.submit(_first_page, folder)
        folder, parts = stack.pop()
        seen += 1
        if seen > MAX_FOLDERS:
            raise InputError(f"{shown(root)} has more than {MAX_FOLDERS:,} folders: name one.")
        inner: set[str] = set()
        try:
            first, pages = ahead.pop(folder).result()
            yield from _chunks(folder, parts, first, pages, inner)
        except Unreadable as error:
            if not parts:
                raise _CannotList(error.__cause__ or error) from None
            yield walk.Chunk(folder, parts, skipped=[(str(error), "")])
        # Popped from the end, so the first name goes last.
        stack.extend((join(folder, name), (*parts, name)) for name in sorted(inner, reverse=True))


def _first_page(folder: str) -> tuple[list[Entry], Pages]:
    pages = pages_of(folder)
    return next(pages, []), pages


def _chunks(
    folder: str, parts: tuple[str, ...], first: list[Entry], pages: Pages, inner: set[str]
) -> Iterator[walk.Chunk]:
    # Only the first page is asked: a description of the folder is among its first thousand.
    special = formats.folder_reader_by(frozenset(e.name for e in first if not e.is_folder))
    chunk = walk.Chunk(folder, parts, special=special)
    page = first
    while page:
        for entry in page:
            if entry.is_folder:
                if not entry.name.startswith(".") and special != formats.ZARR:
                    inner.add(entry.name)
                continue
            walk.sort_file(chunk, entry.name)
            if entry.size_bytes is not None:
                chunk.sizes[entry.name] = entry.size_bytes
            if entry.stamp:
                chunk.stamps[entry.name] = entry.stamp
            if len(chunk) >= walk.CHUNK_FILES:
                yield chunk
                chunk = walk.Chunk(folder, parts, special=special)
        page = next(pages, [])
    if len(chunk):
        yield chunk
