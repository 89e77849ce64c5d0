"""Read tables: CSV and TSV, Parquet, and Arrow files (IPC, Feather)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from oomdoctor.inventory.arrow_ipc import read_arrow
from oomdoctor.inventory.delimited import read_delimited
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.opening import open_data
from oomdoctor.inventory.parquet import read_parquet
from oomdoctor.inventory.parts import Part, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield the one table of a file."""
    if not size_bytes:
        raise Unreadable("empty file")
    name = os.path.basename(path).lower()
    with sizing("a table"), open_data(path, size_bytes) as file:
        if name.endswith((".arrow", ".feather", ".ipc")):
            yield read_arrow(file, size_bytes)
        elif ".parquet" in name or name.endswith(".pq"):
            yield read_parquet(file, size_bytes)
        else:
            yield read_delimited(file, size_bytes, is_tab=".tsv" in name)
