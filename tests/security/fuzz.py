"""Feed readers with damaged files, and stop at the first that does what it must not.

    python tests/security/fuzz.py TARGET SECONDS [SEED]

A target is a line of `TARGETS`: how to make a few sound files, and what is done with a damaged
one. That may succeed or end in the one documented way; any other exception is a finding, and so
is an input that takes longer than `SECONDS_PER_INPUT` or more memory than `MEMORY_BYTES`. The
input that is tried is always in `OOMDOCTOR_FUZZ_FOLDER` (or a new folder), so that one which hangs
or kills the process can be found there.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import struct
import sys
import tarfile
import tempfile
import time
import wave
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECONDS_PER_INPUT = 10.0
MEMORY_BYTES = 512 * 2**20

Seeds = Callable[[], list[bytes]]


class Broken(AssertionError):
    """The target did what it must not."""


@dataclass(frozen=True)
class Target:
    """What is fuzzed."""

    name: str
    """The name of the file that is damaged, suffix included."""
    seeds: Seeds
    run: Callable[[Path], None]
    """Looks at the file; raises whatever it does wrong."""
    max_bytes: int = 256 * 1024
    """Size of the largest input."""
    files: int = 1
    """How many damaged files are looked at together, each in a folder of its own."""


# ---------------------------------------------------------------------- damage

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63)
_WORDS = (
    b"[", b"]", b"{", b"}", b"(", b")", b",", b":", b'"', b"'", b"null", b"NaN", b"1e999", b"-1",
    b"99999999999999999999", b"\\ud800", b"\xff\xfe", b"\0", b"\n", b"\r", b"#", b"%%", b"?", b"=!",
    b"tensorflow", b"keras", b"if x:\n    ", b"else:\n    ", b"lambda: ", b"yield ", b"await ",
    b"*", b"**", b"...", b"tf.function", b".batch", b"/", b"../", b"0x",
)  # fmt: skip


def damaged(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Return the data with a few things changed at random."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6, 12))):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.choice((1, 2, 4, 8, 40, 400)))
        kind = rng.randrange(10)
        if kind == 0 and made:
            made[at % len(made)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[at:end] = rng.randbytes(end - at)
        elif kind == 2:
            width, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
            number = rng.choice(_NUMBERS) % 2 ** (8 * width)
            made[at : at + width] = number.to_bytes(width, order)
        elif kind == 3:
            del made[at:end]
        elif kind == 4:
            made[at:at] = made[at:end] * rng.choice((1, 2, 50, 500))
        elif kind == 5:
            made[at:at] = rng.choice(_WORDS) * rng.choice((1, 1, 2, 100))
        elif kind == 6:
            made[at:end] = rng.choice(_WORDS)
        elif kind == 7:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            made[at:end] = other[start : start + rng.choice((4, 40, 400))]
        elif kind == 8:
            del made[at:]
        else:
            to = rng.randrange(len(made) + 1)
            made[to:to] = made[at:end]
    return bytes(made)


# ---------------------------------------------------------------------- what is done with them


def reader(module: str) -> Callable[[Path], None]:
    """Return a run of a reader of files: parts that make sense, or `Unreadable`."""

    def run(path: Path) -> None:
        import importlib

        read = importlib.import_module(f"oomdoctor.inventory.{module}").read
        _parts(lambda: read(str(path), path.stat().st_size))

    return run


def folder_reader(module: str) -> Callable[[Path], None]:
    """Return the same for a reader of folders."""

    def run(path: Path) -> None:
        import importlib

        read = importlib.import_module(f"oomdoctor.inventory.{module}").read_folder
        _parts(lambda: read(str(path.parent)))

    return run


def _parts(read: Callable[[], object]) -> None:
    from oomdoctor.inventory.parts import Part, Unreadable

    try:
        parts = list(read())  # type: ignore[call-overload]
    except Unreadable as error:
        if "too much memory" in str(error) or not 0 < len(str(error)) < 200:
            raise Broken(str(error)) from None
        return
    for part in parts:
        numbers = (part.samples, part.elements, part.memory_bytes, *(part.shape or ()))
        if not isinstance(part, Part) or any(n is not None and not 0 <= n < 2**80 for n in numbers):
            raise Broken(repr(part)[:500])


def image(path: Path) -> None:
    """Look at an image as a scan of a folder does."""
    from oomdoctor.inventory import headers
    from oomdoctor.inventory.images import shape_from_bytes, shape_of_file
    from oomdoctor.inventory.parts import Unreadable

    headers.answer(str(path.parent), [path.name])
    shape_from_bytes(path.read_bytes()[:4096])
    try:
        shape_of_file(str(path))
    except Unreadable:
        return


def script(path: Path) -> None:
    """Check a script or a notebook."""
    from oomdoctor.scripts.scan import FAILED, scan_scripts

    found = scan_scripts([path])
    if any(FAILED in note or len(note) > 1000 for note in found.notes):
        raise Broken(found.notes)
    for match in found.matches:
        if len(match.text) > 61 or match.line < 1 or match.column < 1:
            raise Broken(match)


def fix(path: Path) -> None:
    """Change a script where that is safe: what comes out is Python."""
    from oomdoctor.scripts.fix import fix_scripts
    from oomdoctor.scripts.scan import scan_scripts

    for change in fix_scripts(scan_scripts([path]).matches):
        compile(change.after, "changed", "exec", flags=1 << 10 | 1 << 13, dont_inherit=True)
        change.diff()


def whole_check(path: Path) -> None:
    """Run all of `check` on the folders, and print its report in every way a person reads."""
    import oomdoctor
    from oomdoctor.errors import OomDoctorError
    from oomdoctor.inventory.reading import FAILED

    try:
        report = oomdoctor.check(str(path.parent.parent), ram="8GiB", vram="4GiB")
    except OomDoctorError:
        return
    repr(report)
    json.dumps(report.to_dict())
    report._repr_html_()
    inventory = report.facts.inventory
    if inventory is not None and any(skipped.reason == FAILED for skipped in inventory.skipped):
        raise Broken(inventory.skipped)


# ---------------------------------------------------------------------- sound files


def _saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def npy() -> list[bytes]:
    """Return arrays."""
    import numpy as np

    kinds = ("<f4", "|b1", "<U5", [("a", "<f4"), ("b", "<i8", (2, 2))], "O", ">c16")
    return [_saved(lambda f, k=k: np.save(f, np.zeros((3, 2), k))) for k in kinds]


def npz() -> list[bytes]:
    """Return archives of arrays, plain and packed."""
    import numpy as np

    arrays = {"x_train": np.zeros((4, 3)), "y": np.zeros(4, "int64")}
    return [_saved(lambda f, s=s: s(f, **arrays)) for s in (np.savez, np.savez_compressed)]


def images() -> list[bytes]:
    """Return one image of each format."""
    from PIL import Image

    made = [
        _saved(lambda f, k=k: Image.new("RGB", (7, 5)).save(f, k))
        for k in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "JPEG2000")
    ]
    made.append(_saved(lambda f: Image.new("I;16", (7, 5)).save(f, "PNG")))
    return made


def zips() -> list[bytes]:
    """Return zip files of images and arrays."""

    def write(file: io.BytesIO, packing: int) -> None:
        with zipfile.ZipFile(file, "w", packing) as archive:
            archive.writestr("train/cat/a.png", images()[0])
            archive.writestr("a.x.npy", npy()[0])
            archive.writestr("b.zip", b"PK")
            archive.writestr("train/dog/", b"")

    return [_saved(lambda f, p=p: write(f, p)) for p in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)]


def tars() -> list[bytes]:
    """Return tar files, plain and packed."""

    def write(file: io.BytesIO, form: int) -> None:
        with tarfile.open(fileobj=file, mode="w", format=form) as archive:
            for name, data in (("train/a.png", images()[0]), ("b" * 150 + ".npy", npy()[0])):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                info.pax_headers = {"comment": "x" * 50}
                archive.addfile(info, io.BytesIO(data))

    forms = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    plain = [_saved(lambda f, k=k: write(f, k)) for k in forms[1:]]
    return [*plain, gzip.compress(plain[0]), __import__("lzma").compress(plain[0])]


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def records() -> list[bytes]:
    """Return TFRecord files of examples and of something else."""
    from oomdoctor.inventory.records import _masked_crc

    def feature(name: bytes, kind: int, body: bytes) -> bytes:
        return _field(1, _field(1, name) + _field(2, _field(kind, body)))

    example = _field(
        1,
        feature(b"image", 1, _field(1, images()[0]))
        + feature(b"x", 2, _field(1, bytes(40)))
        + feature(b"label", 3, _field(1, b"\x01\x80\x02")),
    )
    made = []
    for data in (example, b"something else"):
        length = struct.pack("<Q", len(data))
        made.append((length + struct.pack("<L", _masked_crc(length)) + data + bytes(4)) * 5)
    return [*made, gzip.compress(made[0])]


def tables() -> list[bytes]:
    """Return CSV files."""
    rows = "".join(f'{i},{i / 3},"word ""{i}"" and\nmore"\n' for i in range(40))
    return [("a,b,c\n" + rows).encode(), b"1;2;3\r\n4;5;6\r\n", gzip.compress(rows.encode())]


def parquets() -> list[bytes]:
    """Return Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return [_saved(lambda f, t=t: pq.write_table(t, f)) for t in _arrow_tables(pa)]


def arrows() -> list[bytes]:
    """Return Arrow files, packed and plain."""
    import pyarrow as pa
    import pyarrow.feather as feather

    return [
        _saved(lambda f, t=t, c=c: feather.write_feather(t, f, compression=c))
        for t in _arrow_tables(pa)
        for c in ("uncompressed", "lz4")
    ]


def _arrow_tables(pa: object) -> list[object]:
    lists = pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32(), 2))  # type: ignore[attr-defined]
    mixed = {"a": [1, 2, 3] * 3, "b": ["x", "yy", None] * 3, "c": lists}
    return [pa.table(mixed), pa.table({"x": [0.5] * 20})]  # type: ignore[attr-defined]


def sounds() -> list[bytes]:
    """Return a WAV file."""

    def write(file: io.BytesIO) -> None:
        with wave.open(file, "wb") as sound:
            sound.setnchannels(2)
            sound.setsampwidth(2)
            sound.setframerate(16_000)
            sound.writeframes(bytes(400))

    return [_saved(write)]


def lines() -> list[bytes]:
    """Return JSON Lines files."""
    made = b'{"text": "one"}\n{"text": "two"}\n\n{"text": "three"}' * 5
    return [made, gzip.compress(made)]


def hdf5s() -> list[bytes]:
    """Return HDF5 files."""
    import h5py
    import numpy as np

    def write(file: io.BytesIO) -> None:
        with h5py.File(file, "w") as made:
            made.create_dataset("x", data=np.zeros((10, 5)), compression="gzip")
            made["inner/y"] = np.zeros(10, [("a", "<f4"), ("b", "S3")])
            made["names"] = ["one", "two"]

    return [_saved(write)]


def zarrs() -> list[bytes]:
    """Return descriptions of arrays, of the second version and the third."""
    second = {"zarr_format": 2, "shape": [10, 4], "dtype": "<f4", "chunks": [5, 4]}
    structured = {**second, "dtype": [["a", "<f4"], ["b", "<i8", [2]]]}
    third = {"zarr_format": 3, "node_type": "array", "shape": [3], "data_type": "float32"}
    return [json.dumps(made).encode() for made in (second, structured, third)]


def tfds_features() -> list[bytes]:
    """Return what describes the features of a TFDS folder."""
    shape = {"dimensions": ["28", "28", "1"]}
    inner = {
        "image": {"image": {"shape": shape, "dtype": "uint8"}},
        "label": {"classLabel": {"numClasses": "10"}},
        "words": {"sequence": {"feature": {"tensor": {"dtype": "int64"}}, "length": "5"}},
    }
    made = {"featuresDict": {"features": inner}}
    return [json.dumps(made).encode(), json.dumps({"content": json.dumps(made)}).encode()]


def tfds_info() -> list[bytes]:
    """Return what describes the splits of a TFDS folder."""
    splits = [{"name": "train", "shardLengths": ["10", "20"], "numBytes": "5"}, {"name": "test"}]
    return [json.dumps({"name": "mine", "splits": splits}).encode()]


def beside(name: str, seeds: Seeds, run: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return a run with one sound file beside the damaged one."""

    def run_beside(path: Path) -> None:
        other = path.parent / name
        if not other.exists():
            other.write_bytes(seeds()[0])
        run(path)

    return run_beside


MISTAKES = b"""\
import tensorflow as tf, numpy as np
ds = tf.data.TFRecordDataset("a").batch(32).shuffle(1000).cache()  # a comment
for x in list(ds):
    kept = []
    for y in tf.data.Dataset.from_tensor_slices(np.load("x.npy")):
        kept.append(tf.reduce_mean(y))
        model = tf.keras.Model()
        model.fit_generator(ds, 10, validation_data=ds)
        model.predict(y)
strategy = tf.distribute.MirroredStrategy(["a", "b", "c"])
with strategy.scope():
    model = tf.keras.Sequential()
model.fit(ds, epochs=3)
(a, b), (c, d) = tf.keras.datasets.cifar10.load_data()
a = a / 255.0
@tf.function
def step(n): return n * 2
for i in range(10): step(i)
if a:
    b = (a, (b, c))
else:
    b = zip(a, enumerate(b))
class Batches(tf.keras.utils.Sequence):
    def __getitem__(self, i):
        return list(ds.as_numpy_iterator())[i]
"""


def scripts() -> list[bytes]:
    """Return training scripts: those of the fixtures."""
    folder = Path(__file__).parents[2] / "fixtures" / "scripts"
    return [MISTAKES, *(path.read_bytes() for path in sorted(folder.rglob("*.py"))[:40])]


def notebooks() -> list[bytes]:
    """Return notebooks made of the same."""
    made = []
    for code in scripts()[:10]:
        cells = [
            {"cell_type": "markdown", "source": ["# Title"]},
            {"cell_type": "code", "source": "%matplotlib inline\n!ls\nx = 1\ny?"},
            {"cell_type": "code", "source": code.decode().splitlines(True), "outputs": [{"a": 1}]},
        ]
        made.append(json.dumps({"cells": cells, "nbformat": 4}).encode())
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": "import keras"}]}]}
    return [*made, json.dumps(old).encode()]


TARGETS: dict[str, Target] = {
    "npy": Target("a.npy", npy, reader("arrays")),
    "npz": Target("a.npz", npz, reader("arrays")),
    "image": Target("a.webp", images, image),
    "zip": Target("a.zip", zips, reader("archives")),
    "tar": Target("a.tar", tars, reader("archives")),
    "tfrecord": Target("a.tfrecord", records, reader("records")),
    "csv": Target("a.csv", tables, reader("tables")),
    "parquet": Target("a.parquet", parquets, reader("tables")),
    "arrow": Target("a.arrow", arrows, reader("tables")),
    "wav": Target("a.wav", sounds, reader("audio")),
    "jsonl": Target("a.jsonl", lines, reader("text")),
    "hdf5": Target("a.h5", hdf5s, reader("hdf5")),
    "zarr": Target(".zarray", zarrs, folder_reader("zarr")),
    "zarr3": Target("zarr.json", zarrs, folder_reader("zarr")),
    "tfds_features": Target(
        "features.json", tfds_features,
        beside("dataset_info.json", tfds_info, folder_reader("tfds")),
    ),
    "tfds_info": Target(
        "dataset_info.json", tfds_info,
        beside("features.json", tfds_features, folder_reader("tfds")),
    ),
    "script": Target("a.py", scripts, script),
    "fix": Target("a.py", scripts, fix, max_bytes=16 * 1024),  # libcst takes 50 µs a word
    "notebook": Target("a.ipynb", notebooks, script),
    "check_npy": Target("a.npy", npy, whole_check, files=50),
    "check_tfrecord": Target("a.tfrecord", records, whole_check, files=50),
    "check_zip": Target("train.zip", zips, whole_check, files=50),
    "check_csv": Target("a.csv", tables, whole_check, files=50),
    "check_zarr": Target(".zarray", zarrs, whole_check, files=50),
    "check_notebook": Target("a.ipynb", notebooks, whole_check, files=50),
}  # fmt: skip
"""Everything that reads what others wrote; a new reader adds its line."""


# ---------------------------------------------------------------------- the run


def fuzz(target: Target, seconds: float, seed: int, folder: Path) -> int:
    """Try damaged files until the time is up; return how many, or raise what was found."""
    rng = random.Random(seed)
    seeds = target.seeds()
    paths = [folder / str(i) / target.name for i in range(target.files)]
    for path in paths:
        path.parent.mkdir()
    for sound in seeds:
        paths[0].write_bytes(sound)
        target.run(paths[0])  # imports everything, before memory is limited
    _limit_memory()
    tried = 0
    until = time.monotonic() + seconds
    pool = list(seeds) * 20
    while time.monotonic() < until:
        for path in paths:
            # Damage adds up in some: a third of all start from what was damaged before.
            data = damaged(rng.choice(pool if rng.random() < 0.3 else seeds), rng, seeds)
            data = data[: target.max_bytes]
            path.write_bytes(data)
            pool[rng.randrange(len(pool))] = data
            tried += 1
        start = time.monotonic()
        target.run(paths[0])
        if time.monotonic() - start > SECONDS_PER_INPUT:
            raise Broken(f"took {time.monotonic() - start:.0f} s")
    return tried


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    """Fuzz one target."""
    name, seconds = sys.argv[1], float(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    shared = "/dev/shm" if os.path.isdir("/dev/shm") else None  # never waits for a disk
    folder = os.environ.get("OOMDOCTOR_FUZZ_FOLDER") or tempfile.mkdtemp(
        prefix="oomdoctor-fuzz-", dir=shared
    )
    tried = fuzz(TARGETS[name], seconds, seed, Path(folder))
    print(json.dumps({"target": name, "inputs": tried, "seed": seed}))


if __name__ == "__main__":
    main()
