"""How long `diagnose` takes beside a bare loop over the same log.

    python tests/benchmarks/diagnose_speed.py [GIGABYTES]

Prints a row for each kind of log: training output with a crash at the end, the same with a message
in every hundredth line, and one dump after another, which is the worst. Then a dump of 500 kB.
The promise: at most five times a bare `for line in file`, and less than 100 ms for the dump.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from oomdoctor.diagnose.run import diagnose_files, diagnose_text

CRASH = (
    "2024-07-12 14:20:01.7: W tensorflow/core/framework/op_kernel.cc:1828] OP_REQUIRES failed at "
    "conv.h:452 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[32,64,250,250] and "
    "type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n"
)
CHUNK = (
    "2024-07-12 14:20:01.7: I tensorflow/tsl/framework/bfc_allocator.cc:1095] InUse at 7f91{n:08x} "
    "of size {size} next {n}\n"
)
STATS = "Limit:      40231108608\nInUse:      39851412480\nMaxInUse:   39875904000\n"


def training(chance: random.Random, every: int | None) -> Iterator[str]:
    """Yield lines of a run, with a message in every so many."""
    for number in range(20_000):
        yield (
            f"{number % 1563}/1563 [=====>.......] - ETA: {chance.randint(1, 90)}s - "
            f"loss: {chance.random():.4f} - accuracy: {chance.random():.4f}\n"
        )
        if every and number % every == 0:
            yield "W cpu.cc:82] Allocation of 153600000 exceeds 10% of free system memory.\n"


def dump() -> Iterator[str]:
    """Yield a dump of about 500 kB."""
    yield CRASH
    yield "W bfc.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1GiB\n"
    for number in range(4000):
        yield CHUNK.format(n=number, size=256 * (number % 97 + 1))
    yield STATS


def write(path: Path, lines: Iterable[str], size_bytes: int) -> None:
    """Repeat the lines until the file is large enough, and end it with a crash."""
    block = "".join(lines).encode()
    with path.open("wb") as file:
        for _ in range(size_bytes // len(block) + 1):
            file.write(block)
        file.write(CRASH.encode())


def compare(name: str, path: Path) -> None:
    """Print the time of a bare loop, of `diagnose`, and their ratio."""
    started = time.process_time()
    with path.open(encoding="utf-8") as file:
        lines = sum(1 for _ in file)
    bare = time.process_time() - started
    started = time.process_time()
    diagnosis = diagnose_files([path], sys.stdin.buffer)
    taken = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{name:<28} {path.stat().st_size / 1e9:5.2f} GB {lines:>11,} lines  bare {bare:6.2f} s  "
        f"diagnose {taken:6.2f} s  {taken / bare:5.2f}x  peak {peak} MB  {diagnosis.cause}"
    )


def main() -> None:
    """Print the table."""
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else "1") * 1e9)
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        for name, lines in (
            ("training, crash at the end", training(chance, None)),
            ("a message every 100 lines", training(chance, 100)),
            ("dump after dump", dump()),
        ):
            write(path, lines, size)
            compare(name, path)
    text = "".join(dump())
    diagnose_text(text[:1000])
    started = time.process_time()
    diagnose_text(text)
    print(f"a dump of {len(text) / 1000:.0f} kB: {1000 * (time.process_time() - started):.0f} ms")


if __name__ == "__main__":
    main()
