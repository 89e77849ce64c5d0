"""The same scan on several machines: chunks of a listing go to the workers of a Dask cluster.

This process lists and adds up, workers read. A worker returns one tally for some thousand files,
and tallies are merged in the order of the listing, so that the answer is that of a local scan, bit
for bit. Chunks of a worker that dies are read by another one.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from oomdoctor._optional import import_optional
from oomdoctor._version import __version__
from oomdoctor.errors import InputError
from oomdoctor.inventory import walk
from oomdoctor.inventory.sources import LocalSources
from oomdoctor.inventory.tally import Tally

UNIT_FILES = 4000
"""Files that are sent to a worker at once: dear enough for the way there and back."""
_UNITS_PER_WORKER = 4
_CONNECT_SECONDS = 20


def read_unit(chunks: list[walk.Chunk]) -> Tally:
    """Return what some chunks hold. Runs on a worker."""
    tally = Tally(is_part=True)
    with LocalSources() as sources:
        reader = sources.reader(tally)
        for chunk in chunks:
            reader.read(chunk)
        reader.finish()
    return tally


class Cluster:
    """Workers of a Dask cluster as the sources of a scan."""

    def __init__(self, client: Any, *, owns: tuple[Any, ...] = ()) -> None:
        """Use a client.

        Args:
            client: A `distributed.Client`.
            owns: What is to be closed when the scan ends: a client and a cluster of our own.
        """
        self._client = client
        self._owns = owns
        self._notes: tuple[str, ...] = ()
        self.workers = 0

    @classmethod
    def at(cls, address: str) -> Cluster:
        """Connect to a scheduler, such as `tcp://10.0.0.5:8786`."""
        client = _distributed().Client
        try:
            connected = client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, TimeoutError, ValueError):
            raise InputError(
                f"No Dask scheduler answers at {address}: start one with `dask scheduler`, and "
                "workers with `dask worker ADDRESS`."
            ) from None
        return cls(connected, owns=(connected,))

    @classmethod
    def local(cls, workers: int) -> Cluster:
        """Start workers on this machine."""
        distributed = _distributed()
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        )
        client = distributed.Client(cluster, set_as_default=False)
        return cls(client, owns=(client, cluster))

    def __enter__(self) -> Cluster:
        self._notes = self._look_at_versions()
        return self

    def __exit__(self, *error: object) -> None:
        for owned in self._owns:
            owned.close()

    def reader(self, tally: Tally) -> ClusterReader:
        """Return a reader that adds up in a tally."""
        return ClusterReader(self._client, tally, most=max(2, _UNITS_PER_WORKER * self.workers))

    def notes(self) -> tuple[str, ...]:
        """Return a sentence if versions differ."""
        return self._notes

    def _look_at_versions(self) -> tuple[str, ...]:
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            found = self._client.run(_version)
        except TimeoutError:
            raise InputError("The Dask cluster has no workers: start one or more.") from None
        except ImportError:
            found = {}
        except Exception as error:
            if "oomdoctor" not in str(error):
                raise
            found = {}
        if not found:
            raise InputError(
                "The workers of the Dask cluster cannot import oomdoctor: install version "
                f"{__version__} there."
            )
        self.workers = len(found)
        others = sorted({version for version in found.values() if version != __version__})
        if not others:
            return ()
        return (
            f"Workers of the cluster have oomdoctor {', '.join(others)}, this machine has "
            f"{__version__}: install one version, or figures may differ.",
        )


class ClusterReader:
    """Sends chunks to workers, and merges what they return in order."""

    def __init__(self, client: Any, tally: Tally, *, most: int) -> None:
        self._client = client
        self._tally = tally
        self._most = most
        self._unit: list[walk.Chunk] = []
        self._special: set[str] = set()
        self._under_way: deque[Any] = deque()

    def read(self, chunk: walk.Chunk) -> None:
        """Send a chunk with others, and merge what came back."""
        if chunk.special is not None:
            # One worker reads the whole folder; its other chunks hold nothing more.
            if chunk.folder in self._special:
                chunk.special, chunk.others = None, []
                chunk.unknown = []
            self._special.add(chunk.folder)
        if not chunk.folder.startswith("/") and "://" not in chunk.folder:
            chunk.folder = os.path.abspath(chunk.folder)  # a worker is in another folder
        self._unit.append(chunk)
        if sum(map(len, self._unit)) >= UNIT_FILES:
            self._send()

    def count_rest(self, chunk: walk.Chunk) -> None:
        """Count what nobody reads of a chunk."""
        bare = walk.Chunk(chunk.folder, chunk.parts, special=chunk.special)
        bare.skipped, bare.unknown = chunk.skipped, chunk.unknown
        if len(bare):
            part = Tally(is_part=True)
            with LocalSources() as sources:
                sources.reader(part).count_rest(bare)
            self._tally.merge(part)

    def finish(self) -> None:
        """Wait for what is under way."""
        self._send()
        while self._under_way:
            self._collect()

    def _send(self) -> None:
        if not self._unit:
            return
        # Not pure: two folders that look alike are two folders.
        self._under_way.append(self._client.submit(read_unit, self._unit, pure=False))
        self._unit = []
        while len(self._under_way) > self._most:
            self._collect()

    def _collect(self) -> None:
        self._tally.merge(self._under_way.popleft().result())


def _version() -> str:
    """Return the version of oomdoctor where this runs: on a worker."""
    return __version__


def _distributed() -> Any:
    return import_optional("distributed", extra="dask", purpose="to scan on several machines")
