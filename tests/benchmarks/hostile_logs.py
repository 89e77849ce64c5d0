"""Time and memory of hostile logs, gzip files, notebooks and recordings against their size.

    python tests/benchmarks/hostile_logs.py [MEBIBYTES] [NAME...]

Each input is made in four sizes, n, 2n, 4n and 8n, and read in a process of its own. Printed are
the seconds and the peak of resident memory for each size, and the exponent of growth from the
smallest size to the largest: 1 is linear, 2 quadratic, 0 does not grow. The promise: no exponent of
time above 1.2, and memory that does not grow, for notebooks by no more than a few times their size.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

MIB = 1 << 20
BARE_SECONDS = 0.05
"""Below it a time is noise, and no exponent is told from it."""
OOM = b"OOM when allocating tensor with shape[32,64] and type float on /device:GPU:0 by allocator x"
RUN = b'{"k":"run","version":1,"command":["x"],"started_at":1.0}\n'

CHILD = """
import sys, time
from oomdoctor.api import explain_error
from oomdoctor.api.run import report_on
import oomdoctor.report.json as shown, oomdoctor.report.text, oomdoctor.report.page
from oomdoctor.report.views import view_of
what, path = sys.argv[1:]
def peak():  # ru_maxrss would be that of the process before it became this one
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
base = peak()
started = time.process_time()
if what == "recording":
    report = report_on(path)
    oomdoctor.report.page.render(report)
else:
    report = explain_error([path], redact=what == "redacted")
oomdoctor.report.text.render(view_of(report, verbose=True))
taken = time.process_time() - started
print(taken, (peak() - base) * 1024)
"""


def repeated(line: bytes) -> Callable[[Path, int], Path]:
    """Return what writes a log of one line again and again."""

    def write(folder: Path, size: int) -> Path:
        path = folder / "train.log"
        with path.open("wb") as file:
            block = line * (MIB // len(line) + 1)
            for _ in range(size // MIB):
                file.write(block[:MIB])
            file.write(b"\n" + OOM + b"\n")
        return path

    return write


def random_words(folder: Path, size: int) -> Path:
    """A jumble of the words that patterns look for."""
    from oomdoctor.diagnose.patterns import NEEDLES

    chance = random.Random(1)
    words = [needle for needle, _, _ in NEEDLES] + [" ", "\n", "9" * 20, "GiB ", "shape[1,2]"]
    path = folder / "train.log"
    block = "".join(chance.choice(words) for _ in range(60_000)).encode()
    path.write_bytes((block * (size // len(block) + 1))[:size])
    return path


def bomb(folder: Path, size: int) -> Path:
    """A gzip file of zeros: `size` is what is unpacked, times 64."""
    path = folder / "bomb.log.gz"
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(b"Epoch 1/5\n") + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush a block does not refer to those before it, so it can be repeated.
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(start + block * (64 * size // MIB))
    return path


def members(folder: Path, size: int) -> Path:
    """A gzip file of a great many empty members."""
    path = folder / "members.log.gz"
    empty = gzip.compress(b"")
    path.write_bytes(empty * (size // len(empty)))
    return path


def packed_noise(folder: Path, size: int) -> Path:
    """A gzip file of noise without a line break."""
    path = folder / "noise.log.gz"
    noise = random.Random(1).randbytes(MIB).replace(b"\n", b"") * (size // MIB)
    path.write_bytes(gzip.compress(noise, 1))
    return path


def notebook(cell: str, head: str = '{"cells": [', tail: str = "]}") -> Callable[[Path, int], Path]:
    """Return what writes a notebook of one piece of JSON again and again."""

    def write(folder: Path, size: int) -> Path:
        path = folder / "a.ipynb"
        count = size // len(cell)
        path.write_text(head + ",".join([cell] * count) + tail)
        return path

    return write


def recording(*lines: bytes) -> Callable[[Path, int], Path]:
    """Return what writes a recording of some lines again and again, the clock running."""

    def write(folder: Path, size: int) -> Path:
        place = folder / "recording"
        place.mkdir(exist_ok=True)
        (place / "outside.jsonl").write_bytes(RUN)
        with (place / "inside.jsonl").open("wb") as file:
            for number, at in enumerate(_clock(size, sum(map(len, lines)))):
                for line in lines:
                    file.write(line.replace(b"TIME", at).replace(b"N", b"%d" % number) + b"\n")
        return place

    return write


def _clock(size: int, length: int) -> Iterator[bytes]:
    return (b"%d.5" % n for n in range(size // (length + 8)))


GPUS = json.dumps([[n, n, 1 << 30] for n in range(200)]).encode()
KINDS: dict[str, tuple[str, Callable[[Path, int], Path]]] = {
    "log: training": ("log", repeated(b"10/1563 [==>...] - ETA: 12s - loss: 0.1 - acc: 0.9\n")),
    "log: messages": ("log", repeated(OOM + b"\n")),
    "log: messages, redacted": ("redacted", repeated(OOM + b" /home/a/b\n")),
    "log: words": ("log", random_words),
    "log: no line break": ("log", repeated(b"memory allocation Killed ")),
    "log: carriage returns": ("log", repeated(b"1/9 [==>] memory used: 12 MB\r")),
    "log: empty lines": ("log", repeated(b"\n")),
    "log: zeros": ("log", repeated(b"\0")),
    "log: figures": ("log", repeated(b"memory used: 123456 MB, rss: 17 GB\n")),
    "log: dump": ("log", repeated(b"1 Chunks of size 123456 totalling 1KiB\nLimit:   123456\n")),
    "gzip: bomb": ("log", bomb),
    "gzip: members": ("log", members),
    "gzip: noise": ("log", packed_noise),
    "notebook: cells": ("log", notebook("{}")),
    "notebook: outputs": ("log", notebook('{"outputs":[{"text":["Killed\\n"]}]}')),
    "notebook: one text": ("log", notebook("x", '{"cells":[{"outputs":[{"text":"', '"}]}]}')),
    "notebook: nested": ("log", notebook("[" * 1000)),
    "recording: samples": ("recording", recording(b'{"k":"s","t":TIME,"rss":123456789}')),
    "recording: steps": ("recording", recording(b'{"k":"b","t":TIME,"step":N,"epoch":1,"rss":9}')),
    "recording: gpus": ("recording", recording(b'{"k":"s","t":TIME,"gpus":' + GPUS + b"}")),
    "recording: phases": (
        "recording",
        recording(
            b'{"k":"begin","t":TIME,"phase":"epoch","label":"N"}',
            b'{"k":"finish","t":0,"phase":"predict"}',
            b'{"k":"s","t":TIME,"rss":123456789}',
        ),
    ),
    "recording: suspicions": (
        "recording",
        recording(b'{"k":"suspicion","kind":"objects_kept","what":"xN","count":1,"step":1}'),
    ),
    "recording: notes": ("recording", recording(b'{"k":"note","text":"note N"}')),
    "recording: nonsense": ("recording", recording(b'{"k":' * 100)),
    "recording: no line break": ("recording", recording(b"x" * 1_000_000)),
}


def measured(what: str, path: Path) -> tuple[float, int]:
    """Return the seconds and the bytes that reading it takes in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, what, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr[-2000:]}")
    seconds, size = done.stdout.split()
    return float(seconds), int(size)


def main() -> None:
    """Print the table."""
    smallest = int(float(sys.argv[1] if len(sys.argv) > 1 else "2") * MIB)
    wanted = sys.argv[2:]
    print(f"{'input':<26} {'seconds at n, 2n, 4n, 8n':<30} exp.  {'MiB above the start':<26} of 8n")
    for name, (what, write) in KINDS.items():
        if wanted and not any(word in name for word in wanted):
            continue
        rows = []
        for factor in (1, 2, 4, 8):
            with tempfile.TemporaryDirectory() as folder:
                path = write(Path(folder), factor * smallest)
                rows.append(measured(what, path))
        first, last = rows[0][0], rows[-1][0]
        exponent = math.log(last / first, 8) if first > BARE_SECONDS else math.nan
        times = " ".join(f"{seconds:7.2f}" for seconds, _ in rows)
        sizes = " ".join(f"{size / MIB:6.0f}" for _, size in rows)
        share = rows[-1][1] / (8 * smallest)
        print(f"{name:<26} {times}  {exponent:4.2f}  {sizes}  {share:4.1f}x", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[2]))
    main()
