"""Time and memory against the size of hostile input: both must grow no faster than the input.

Each case makes an input of a size and looks at it, in a process of its own, at four sizes that
double. The table shows the processor's time, the peak memory above that of the smallest input, and
the power with which each grows: 1 is linear, less means that a bound was met.
A case is a line in `CASES`: add one for whatever reads what others wrote.

    python tests/benchmarks/hostile_input.py [CASE...]
"""

from __future__ import annotations

import gzip
import io
import json
import math
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DOUBLINGS = 4
LIMIT = 1.35
"""An exponent above this is not linear, whatever the machine was busy with."""
LEAST_SECONDS = 0.2
"""Below this, starting up is most of it and no exponent is told."""
LEAST_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Case:
    """One kind of hostile input."""

    name: str
    size: int
    """The smallest size; what it counts is the case's own."""
    make: Callable[[int, Path], Path]
    """Writes an input of a size into a folder and returns what to look at."""
    run: Callable[[Path], object]


# ---------------------------------------------------------------------- what is run


def check_scripts(path: Path) -> object:
    """Check scripts and notebooks."""
    from oomdoctor.scripts.scan import scan_scripts

    return scan_scripts([path])


def scan_data(path: Path) -> object:
    """Scan data."""
    from oomdoctor.inventory.scan import scan

    return scan([path])


# ---------------------------------------------------------------------- scripts and notebooks

START = "import tensorflow as tf\nimport numpy as np\n"


def text(name: str, made: Callable[[int], str]) -> Callable[[int, Path], Path]:
    """Return a maker of one text file."""

    def make(size: int, folder: Path) -> Path:
        (folder / name).write_text(made(size))
        return folder / name

    return make


def doubled(line: str) -> Callable[[int], str]:
    """Return a script with a line many times in both branches."""

    def made(size: int) -> str:
        body = f"    {line}\n" * size
        return f"{START}a = [1]\nif a:\n{body}else:\n{body}"

    return made


def traced(size: int) -> str:
    """Return functions that each trace the one before twice."""
    made = "".join(
        f"def f{i}():\n    a = tf.function(f{i - 1}); a(); b = tf.function(f{i - 1}); b()\n"
        for i in range(1, size)
    )
    return f"{START}def f0(): pass\n{made}f{size - 1}()\n"


def nested(size: int) -> str:
    """Return calls around a list that grows."""
    calls = "tf.constant(np.load('a'),\n" * 80
    return f"{START}x = {calls}[{'1,' * size}]{')' * 80}\n"


def growing(size: int) -> str:
    """Return a name that each line makes longer."""
    return f"{START}a = tf\n" + "a = a.b\n" * size


def short(size: int) -> str:
    """Return as many statements as a file can hold."""
    return START + "a;" * size


def branches(size: int) -> str:
    """Return many names, and as many branches that may change them."""
    names = "".join(f"a{i} = 1\n" for i in range(size))
    return START + names + "if x:\n    y = 1\n" * size


def notebook(*sources: str) -> str:
    """Return a notebook of some cells."""
    cells = [{"cell_type": "code", "source": source} for source in ("import keras", *sources)]
    return json.dumps({"cells": cells})


def blanks(size: int) -> str:
    """Return a cell of blanks that is not Python."""
    return notebook(" " * size + "(]")


def questions(size: int) -> str:
    """Return a cell that asks for help all the time."""
    return notebook("a ?" * size + "(\n" + " a" * size + "]")


def cells(size: int) -> str:
    """Return many cells."""
    return notebook(*["x = f(1)"] * size)


def outputs(size: int) -> str:
    """Return a notebook with outputs of many small objects."""
    return notebook("x = 1")[:-2] + ', {"cell_type": "code", "outputs": [' + "{}," * size + "0]}]}"


# ---------------------------------------------------------------------- data


def described(name: str, made: Callable[[int], object]) -> Callable[[int, Path], Path]:
    """Return a maker of a folder with a description of an array, or of a TFDS folder."""

    def make(size: int, folder: Path) -> Path:
        (folder / name).write_text(json.dumps(made(size)))
        if name == "features.json":
            info = {"splits": [{"name": "train", "shardLengths": ["1"]}]}
            (folder / "dataset_info.json").write_text(json.dumps(info))
        return folder

    return make


def array(axes: int) -> object:
    """Return an array of so many axes."""
    return {"zarr_format": 2, "shape": [3] * axes, "dtype": "<f4"}


def attributes(size: int) -> object:
    """Return an array with so many objects beside what matters."""
    return {**array(1), "x": [{}] * size}  # type: ignore[dict-item]


def tensor(axes: int) -> object:
    """Return a feature of so many axes."""
    return {"tensor": {"shape": {"dimensions": ["3"] * axes}, "dtype": "float32"}}


def features(size: int) -> object:
    """Return so many features."""
    return {"features": {f"f{i}": tensor(2) for i in range(size)}}


def binary(name: str, made: Callable[[int], bytes]) -> Callable[[int, Path], Path]:
    """Return a maker of one binary file."""

    def make(size: int, folder: Path) -> Path:
        (folder / name).write_bytes(made(size))
        return folder

    return make


def zip_members(size: int) -> bytes:
    """Return a zip of many small members that call themselves images."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(size):
            archive.writestr(f"a/{i}.webp", b"RIFF\0\0\0\0WEBPVP8 ")
    return file.getvalue()


def tar_headers(size: int) -> bytes:
    """Return a tar of global headers."""
    file = io.BytesIO()
    for block in range(size):
        body = b"".join(b"23 %011d=1234567\n" % (block * 20_000 + i) for i in range(20_000))
        info = tarfile.TarInfo("g")
        info.type, info.size = tarfile.XGLTYPE, len(body)
        file.write(info.tobuf() + body + b"\0" * (-len(body) % 512))
    return file.getvalue() + b"\0" * 1024


def zeros(size: int) -> bytes:
    """Return so many MiB of zeros, packed."""
    file = io.BytesIO()
    with gzip.open(file, "wb") as packed:
        for _ in range(size):
            packed.write(bytes(2**20))
    return file.getvalue()


def empty_streams(size: int) -> bytes:
    """Return so many packed files of nothing, one after the other."""
    return gzip.compress(b"") * size


def npy_header(size: int) -> bytes:
    """Return an array whose header is a list of fields."""
    fields = [("f", "<f4", (3, 3))] * size
    header = repr({"descr": fields, "fortran_order": False, "shape": (1,)}).encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header + bytes(1000)


def jpeg_segments(size: int, folder: Path) -> Path:
    """Return a folder of JPEG files with many segments before their size."""
    segments = b"\xff\xd8" + (b"\xff\xfe\x00\x03x" * 1900)
    for i in range(size):
        (folder / f"{i}.jpg").write_bytes(segments)
    return folder


def parquet_footer(size: int) -> bytes:
    """Return a Parquet footer that is one list of empty structs."""
    count, number = b"", size
    while number > 127:
        count += bytes([number & 127 | 128])
        number >>= 7
    footer = b"\x29\xfc" + count + bytes([number]) + bytes(size) + b"\0"
    return b"PAR1" + footer + struct.pack("<L", len(footer)) + b"PAR1"


def record_images(size: int) -> bytes:
    """Return TFRecords of a feature with many values that call themselves images."""
    from oomdoctor.inventory.records import _masked_crc

    def field(number: int, body: bytes) -> bytes:
        length, left = b"", len(body)
        while left > 127:
            length += bytes([left & 127 | 128])
            left >>= 7
        return bytes([number << 3 | 2]) + length + bytes([left]) + body

    images = field(1, b"RIFF\0\0\0\0WEBPVP8 ") * size
    data = field(1, field(1, field(1, b"image") + field(2, field(1, images))))
    length = struct.pack("<Q", len(data))
    return (length + struct.pack("<L", _masked_crc(length)) + data + bytes(4)) * 8


def links(size: int, folder: Path) -> Path:
    """Return data with links to folders that hold it, and to each other."""
    for i in range(size):
        (folder / f"d{i}").mkdir()
        (folder / f"d{i}" / "up").symlink_to("/")
        (folder / f"d{i}" / "next").symlink_to(folder / f"d{(i + 1) % size}")
    return folder


def copies(size: int) -> str:
    """Return a script that copies the images of a folder from name to name."""
    lines = ["import os, cv2, keras, numpy as np", "a0 = []", "for n in os.listdir('d'):"]
    lines += ["    a0.append(cv2.imread(n))", "a1 = np.array(a0)"]
    lines += [f"a{i + 1} = a{i} / 2.0" for i in range(1, size)]
    return "\n".join(lines) + "\n"


def listings(size: int) -> str:
    """Return a script whose loops go through loops of listings."""
    head = "import os, cv2, keras\nx = []\na = os.listdir('d')\n"
    body = "a = enumerate(zip(a, a))\nfor i, n in a:\n    x.append(cv2.imread(n))\n"
    return head + body * size


def modules(size: int) -> str:
    """Return a script that imports and calls modules that are nowhere, and its own folder's."""
    lines = ["import keras"]
    for i in range(size):
        lines += [f"from m{i} import *", f"from a{i % 7} import f{i}", f"f{i}(f{i}(1)).fit(x)"]
    return "\n".join(lines) + "\n"


def methods(size: int) -> str:
    """Return a script with methods that call each other in loops."""
    lines = ["import keras", "class A:"]
    for i in range(size):
        lines += [
            f"    def f{i}(self, x):",
            "        for i in x:",
            f"            self.f{(i * 7) % size}(x)",
        ]
    return "\n".join([*lines, "A().f0(1)"]) + "\n"


CASES = [
    Case("script: copies of copies", 3000, text("a.py", copies), check_scripts),
    Case("script: listings in loops", 1000, text("a.py", listings), check_scripts),
    Case("script: modules of a project", 2000, text("a.py", modules), check_scripts),
    Case("script: methods that call on", 2000, text("a.py", methods), check_scripts),
    Case("script: tuples in branches", 1000, text("a.py", doubled("a = (a, a)")), check_scripts),
    Case("script: zip of zips", 800, text("a.py", doubled("a = zip(a, a)")), check_scripts),
    Case("script: functions traced again", 500, text("a.py", traced), check_scripts),
    Case("script: calls around a list", 15_000, text("a.py", nested), check_scripts),
    Case("script: names that grow", 5000, text("a.py", growing), check_scripts),
    Case("script: a word in two bytes", 15_000, text("a.py", short), check_scripts),
    Case("script: names and branches", 500, text("a.py", branches), check_scripts),
    Case("notebook: blanks", 2**17, text("a.ipynb", blanks), check_scripts),
    Case("notebook: questions", 2**15, text("a.ipynb", questions), check_scripts),
    Case("notebook: outputs", 2_500_000, text("a.ipynb", outputs), check_scripts),
    Case("notebook: cells", 1200, text("a.ipynb", cells), check_scripts),
    Case("zarr: axes", 200_000, described(".zarray", array), scan_data),
    Case("zarr: attributes", 400_000, described(".zarray", attributes), scan_data),
    Case("tfds: axes", 20_000, described("features.json", tensor), scan_data),
    Case("tfds: features", 1000, described("features.json", features), scan_data),
    Case("npy: fields in a header", 300, binary("a.npy", npy_header), scan_data),
    Case("jpeg: segments", 100, jpeg_segments, scan_data),
    Case("zip: members", 2500, binary("a.zip", zip_members), scan_data),
    Case("tar: global headers", 8, binary("a.tar", tar_headers), scan_data),
    Case("tar.gz: zeros", 64, binary("a.tar.gz", zeros), scan_data),
    Case("csv.gz: zeros", 64, binary("a.csv.gz", zeros), scan_data),
    Case("csv.gz: empty streams", 25_000, binary("a.csv.gz", empty_streams), scan_data),
    Case("tfrecord: images", 10_000, binary("a.tfrecord", record_images), scan_data),
    Case("parquet: structs", 2**20, binary("a.parquet", parquet_footer), scan_data),
    Case("links", 200, links, scan_data),
]


# ---------------------------------------------------------------------- measuring


def run_one(index: int, size: int) -> None:
    """Make and look at one input, and print what it took: run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        case = CASES[index]
        # A child makes it, so that its memory is not counted here.
        maker = [sys.executable, __file__, "--make", str(index), str(size), folder]
        path = Path(subprocess.run(maker, capture_output=True, text=True, check=True).stdout)
        case.run(case.make(1, Path(other)))  # imports what is needed
        before_bytes = _peak_bytes()
        start = time.process_time()
        case.run(path)
        print(json.dumps([time.process_time() - start, _peak_bytes() - before_bytes]))


def _peak_bytes() -> int:
    # Not ru_maxrss, which begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def measured(index: int, size: int) -> tuple[float, int]:
    """Return the seconds that one input takes, and the bytes above those of the smallest."""
    command = [sys.executable, __file__, "--run", str(index), str(size)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak_bytes = json.loads(run.stdout)
    return seconds, peak_bytes


def exponent_of_time(seconds: list[float]) -> float | None:
    """Return the power with which time grows from the second to the last size."""
    if seconds[-1] < LEAST_SECONDS:
        return None
    return math.log2(seconds[-1] / seconds[1]) / (len(seconds) - 2)


def exponent_of_memory(sizes: list[int]) -> float | None:
    """Return the same of memory, by its increases: some was there before and is used first."""
    last, before = sizes[-1] - sizes[-2], sizes[-2] - sizes[-3]
    if sizes[-1] < LEAST_BYTES or last <= 0 or before <= 0:
        return None
    return math.log2(last / before)


def main() -> None:
    """Print the table, and fail where something grows faster than its input."""
    from tabulate import tabulate

    wanted = sys.argv[1:]
    rows, too_fast = [], []
    for index, case in enumerate(CASES):
        if wanted and not any(word in case.name for word in wanted):
            continue
        found = [measured(index, case.size * 2**i) for i in range(DOUBLINGS)]
        seconds = [time for time, _ in found]
        above = [peak for _, peak in found]
        growth = exponent_of_time(seconds), exponent_of_memory(above)
        if any(power is not None and power > LIMIT for power in growth):
            too_fast.append(case.name)
        shown = [f"{value:.2f}" for value in seconds] + [f"{b / 2**20:.0f}" for b in above]
        powers = ["-" if power is None else f"{power:.2f}" for power in growth]
        rows.append([case.name, case.size, *shown, *powers])
        print(f"{case.name}: {', '.join(shown)} ({', '.join(powers)})", file=sys.stderr)
    sizes = ["n", "2n", "4n", "8n"]
    head = [
        "case",
        "n",
        *(f"s, {s}" for s in sizes),
        *(f"MiB, {s}" for s in sizes),
        "time",
        "memory",
    ]
    print(tabulate(rows, head, disable_numparse=True))
    if too_fast:
        sys.exit(f"faster than its input grows: {', '.join(too_fast)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--make"]:
        print(CASES[int(sys.argv[2])].make(int(sys.argv[3]), Path(sys.argv[4])), end="")
    elif sys.argv[1:2] == ["--run"]:
        run_one(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
