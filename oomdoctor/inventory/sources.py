"""Who reads the chunks of a scan: this process with its workers, servers, other machines."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from oomdoctor.inventory import walk
from oomdoctor.inventory.address import is_address
from oomdoctor.inventory.images import HeaderPool
from oomdoctor.inventory.reading import Answer, ChunkReader, Headers, Memory, Reader
from oomdoctor.inventory.tally import Tally

WORKERS_AFTER_FILES = 20_000
"""Below this, starting processes costs more than they save."""

MAX_WORKERS = 8
REMOTE_FILES_AT_ONCE = 64


class Sources(Protocol):
    """Gives readers to a scan, and ends what they started."""

    def reader(self, tally: Tally) -> Reader:
        """Return a reader that adds up in a tally."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences for the report on how the data was read."""

    def __enter__(self) -> Sources:
        """Begin."""

    def __exit__(self, *error: object) -> None:
        """End whatever was started."""


class LocalSources:
    """This process reads: with workers once files are many, with many requests to a server."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._images = _Images()
        self._files = ThreadPoolExecutor(REMOTE_FILES_AT_ONCE)
        self._memory = memory

    def reader(self, tally: Tally) -> ChunkReader:
        """Return a reader that adds up in a tally."""
        return ChunkReader(tally, self._images, remote_files=self._files, memory=self._memory)

    def notes(self) -> tuple[str, ...]:
        """Return what reading from servers cost."""
        return self._images.notes()

    def __enter__(self) -> LocalSources:
        return self

    def __exit__(self, *error: object) -> None:
        self._images.close()
        self._files.shutdown(cancel_futures=True)
        if self._memory is not None:
            self._memory.close()


class _Images(Headers):
    """Headers of images, wherever they are."""

    def __init__(self) -> None:
        self._pool = HeaderPool(
            start_after=WORKERS_AFTER_FILES, workers=min(MAX_WORKERS, os.cpu_count() or 1)
        )

    def read(self, chunk: walk.Chunk, names: list[str], *, each: bool = False) -> Future[Answer]:
        if not is_address(chunk.folder):
            return self._pool.read(chunk, names, each=each)
        from oomdoctor.inventory.remote.images import read_headers

        return read_headers(chunk, names, each=each)

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self._pool.close()
