"""Read tables: CSV and TSV, Parquet, and Arrow files (IPC, Feather)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oomdoctor.inventory import arrow_ipc, parquet
from oomdoctor.inventory.delimited import read_delimited
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.parts import Part, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield the one table of a file."""
    if not size_bytes:
        raise Unreadable("empty file")
    name = os.path.basename(path).lower()
    with sizing("a table"):
        if name.endswith((".arrow", ".feather", ".ipc")):
            with open(path, "rb") as file:
                yield arrow_ipc.read_arrow(file, size_bytes)
        elif ".parquet" in name or name.endswith(".pq"):
            yield parquet.read_parquet(path, size_bytes)
        else:
            with open(path, "rb") as file:
                yield read_delimited(file, size_bytes, is_tab=".tsv" in name)
