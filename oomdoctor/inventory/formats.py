"""Which module reads which file, by its name alone: this is asked once for every file."""

from __future__ import annotations

import os
import re

_HERE = "oomdoctor.inventory"
ARCHIVES = f"{_HERE}.archives"
ARRAYS = f"{_HERE}.arrays"
AUDIO = f"{_HERE}.audio"
HDF5 = f"{_HERE}.hdf5"
RECORDS = f"{_HERE}.records"
TABLES = f"{_HERE}.tables"
TEXT = f"{_HERE}.text"
TFDS = f"{_HERE}.tfds"
ZARR = f"{_HERE}.zarr"

READERS: dict[str, str] = {
    "npy": ARRAYS,
    "npz": ARRAYS,
    "tfrecord": RECORDS,
    "tfrecords": RECORDS,
    "tfrec": RECORDS,
    "records": RECORDS,
    "record": RECORDS,
    "h5": HDF5,
    "hdf5": HDF5,
    "hdf": HDF5,
    "csv": TABLES,
    "tsv": TABLES,
    "parquet": TABLES,
    "pq": TABLES,
    "arrow": TABLES,
    "feather": TABLES,
    "ipc": TABLES,
    "zip": ARCHIVES,
    "tar": ARCHIVES,
    "tgz": ARCHIVES,
    "tbz2": ARCHIVES,
    "txz": ARCHIVES,
    "wav": AUDIO,
    "wave": AUDIO,
    "txt": TEXT,
    "jsonl": TEXT,
    "ndjson": TEXT,
}
"""Reader modules by the last suffix, in small letters and without its dot."""

_PACKED = frozenset(("gz", "bz2", "xz"))
_PACKED_READERS = {
    **{(kind, "gz"): READERS[kind] for kind in ("csv", "tsv", "jsonl", "ndjson")},
    **{(kind, "gz"): RECORDS for kind in ("tfrecord", "tfrecords", "tfrec")},
    **{("tar", suffix): ARCHIVES for suffix in _PACKED},
}

# As TensorFlow Datasets and Beam name their shards: mnist-train.tfrecord-00000-of-00010.
_SHARD = re.compile(r"(tfrecords?|tfrec|records?|csv|tsv|jsonl|parquet)-\d+-of-\d+\Z")

NOT_DATA = frozenset(
    (
        *("c", "cfg", "conf", "cpp", "css", "h", "html", "ini", "ipynb", "java", "js", "json"),
        *("lock", "log", "md", "pdf", "py", "pyc", "r", "rst", "sh", "sql", "sty", "tex", "toml"),
        *("ts", "xml", "yaml", "yml"),
        # Weights and saved models lie beside data and are none.
        *("ckpt", "index", "keras", "onnx", "pb", "pbtxt", "pt", "pth", "safetensors", "tflite"),
    )
)
"""Last suffixes of files that lie beside data and are none."""

NOT_DATA_NAMES = frozenset(
    (
        *(".ds_store", "thumbs.db", "desktop.ini", "_success", "checkpoint", "dockerfile"),
        *("license", "licence", "license.txt", "makefile", "readme", "readme.txt"),
        *("checksums.txt", "md5sums", "requirements.txt", "sha256sums"),
    )
)
"""Whole names of such files, in small letters."""


def reader_for(name: str) -> str | None:
    """Return the module that reads a file of this name, or None where no reader does.

    Example:
        >>> reader_for("images-train.tfrecord-00000-of-00010")
        'oomdoctor.inventory.records'
        >>> reader_for("notes.md") is None
        True
    """
    stem, dot, suffix = name.lower().rpartition(".")
    if not dot or is_not_data(name):
        return None
    reader = READERS.get(suffix)
    if reader is not None:
        return reader
    if suffix in _PACKED:
        return _PACKED_READERS.get((stem.rpartition(".")[2], suffix))
    # Only a shard's suffix has a dash in it, so most names never meet the pattern.
    if "-" in suffix and (match := _SHARD.match(suffix)):
        return READERS[match[1]]
    return None


def is_not_data(name: str) -> bool:
    """Return whether a file of this name lies beside data without being any.

    Example:
        >>> is_not_data("train.py"), is_not_data("Thumbs.db"), is_not_data("x.npy")
        (True, True, False)
    """
    small = name.lower()
    return (
        small.rpartition(".")[2] in NOT_DATA
        or small in NOT_DATA_NAMES
        or small.startswith("._")  # what macOS leaves beside each file on foreign disks
        or small.endswith(("~", ".weights.h5"))
    )


def folder_reader_for(folder: str) -> str | None:
    """Return the module that reads a whole folder, or None for a plain folder of files."""
    return folder_reader_by(
        frozenset(name for name in DESCRIPTIONS if os.path.isfile(os.path.join(folder, name)))
    )


DESCRIPTIONS = ("dataset_info.json", "features.json", ".zarray", ".zgroup", "zarr.json")


def folder_reader_by(names: frozenset[str]) -> str | None:
    """Return the same by the names of files in the folder."""
    if names >= {"dataset_info.json", "features.json"}:
        return TFDS
    if names & {".zarray", ".zgroup", "zarr.json"}:
        return ZARR
    return None
