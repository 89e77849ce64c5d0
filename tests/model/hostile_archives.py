"""`.keras` archives that nobody would save: small files that ask for much."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path

MIB = 2**20


def write_bomb(path: Path, *, mib: int = 4095) -> None:
    """Write an archive whose `config.json` unpacks to so many MiB of blanks, within a second.

    One compressed MiB is repeated: after a full flush no block refers to another.
    """
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(b" " * MIB) + compressor.flush(zlib.Z_FULL_FLUSH)
    data = block * mib + compressor.flush()
    name = b"config.json"
    about = (20, 0, 8, 0, 33, 0, len(data), mib * MIB, len(name), 0)
    local = struct.pack("<4s5H3L2H", b"PK\3\4", *about) + name
    central = struct.pack("<4sH5H3L5H2L", b"PK\1\2", 20, *about, 0, 0, 0, 0, 0) + name
    size = len(local) + len(data)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(central), size, 0)
    path.write_bytes(local + data + central + end)


def write_config(path: Path, text: str, *, members: int = 0) -> None:
    """Write an archive with a configuration, and so many empty members beside it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", text)
        for number in range(members):
            archive.writestr(f"asset{number}", b"")


def write_huge_layer(path: Path, *, inputs: int = 10**9, units: int = 10**5) -> None:
    """Write a model that Keras's safe mode accepts, with a layer that no machine can hold."""
    layers = [
        ("InputLayer", {"batch_shape": [None, inputs], "dtype": "float32", "name": "inputs"}),
        ("Dense", {"units": units, "name": "dense"}),
    ]
    config = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {
            "name": "huge",
            "layers": [
                {"module": "keras.layers", "class_name": name, "config": settings}
                for name, settings in layers
            ],
        },
        "registered_name": None,
    }
    write_config(path, json.dumps(config))
