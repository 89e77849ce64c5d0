"""How fast a folder of pictures is scanned, as ratios from one run.

    python tests/benchmarks/scan_speed.py [--files 100000] [--memory]

Compares, on the same warm files, a bare sequential walk that opens each file and reads 4 KiB,
oomdoctor's scan, and a loop of PIL.Image.open. With --memory also the resident memory of a scan
of 10,000 and of 1,000,000 files, each in a process of its own.
"""

import argparse
import io
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from tabulate import tabulate

from oomdoctor.inventory.scan import scan

MAX_LINKS = 30_000
"""Names per file on disk: file systems bound them, and making links is quick."""


def templates():
    """Return a few pictures as (suffix, bytes): JPEG and PNG in half, of several sizes."""
    chance = random.Random(0)
    made = []
    for number in range(24):
        size = chance.choice(((96, 96), (160, 120), (140, 100), (256, 256)))
        noise = Image.effect_noise((size[0] // 4, size[1] // 4), 90).resize(size).convert("RGB")
        buffer = io.BytesIO()
        suffix = ("png", "jpg")[number % 2]
        noise.save(buffer, "PNG" if suffix == "png" else "JPEG")
        made.append((suffix, buffer.getvalue()))
    return made


def make_files(root, count):
    """Write `count` pictures in folders of 1,000, as a dataset of classes has them."""
    pictures = templates()
    for number in range(count):
        folder = root / "train" / f"class{number // 1000:04}"
        if number % 1000 == 0:
            folder.mkdir(parents=True)
        suffix, data = pictures[number % len(pictures)]
        (folder / f"picture_{number:07}.{suffix}").write_bytes(data)


def make_links(root, count):
    """The same with links to a few files, for counts that would take long to write."""
    pictures = templates()
    store = root / ".store"
    store.mkdir(parents=True)
    made = 0
    while made < count:
        for index, (suffix, data) in enumerate(pictures):
            source = store / f"{made}_{index}.{suffix}"
            source.write_bytes(data)
            folder = root / "train" / f"class{made:07}"
            folder.mkdir(parents=True)
            for _ in range(min(MAX_LINKS, count - made)):
                os.link(source, folder / f"picture_{made:07}.{suffix}")
                made += 1
            if made >= count:
                return


def bare_walk(root):
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                file.read(4096)


def pillow_loop(root):
    for folder, _, names in os.walk(root):
        for name in names:
            with Image.open(os.path.join(folder, name)) as image:
                _ = image.size, image.mode


def oomdoctor_scan(root):
    scan([root])


def seconds(function, root):
    start = time.perf_counter()
    function(root)
    return time.perf_counter() - start


def compare(root, rounds):
    runs = {function: [] for function in (bare_walk, oomdoctor_scan, pillow_loop)}
    bare_walk(root)  # warm
    for _ in range(rounds):
        for function, times in runs.items():
            times.append(seconds(function, root))
    return {function.__name__: statistics.median(times) for function, times in runs.items()}


def peak_bytes(root):
    """Return the largest resident memory of a process that scans a folder."""
    code = (
        "import resource, sys\n"
        "from oomdoctor.inventory.scan import scan\n"
        "scan([sys.argv[1]])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, root], capture_output=True, check=True)
    return int(run.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_files(root, options.files)
        times = compare(root, options.rounds)
    bare = times["bare_walk"]
    rows = [
        (name, f"{taken:.2f}", f"{options.files / taken:,.0f}", f"{taken / bare:.2f}")
        for name, taken in times.items()
    ]
    print(f"{options.files:,} warm JPEG and PNG files, median of {options.rounds} rounds")
    print(tabulate(rows, headers=("", "seconds", "files/s", "over bare walk")))
    faster = times["pillow_loop"] / times["oomdoctor_scan"]
    print(f"\nscan / bare walk: {times['oomdoctor_scan'] / bare:.2f} (goal: at most 2)")
    print(f"Pillow loop / scan: {faster:.2f} (goal: at least 4)")
    if options.memory:
        peaks = {}
        for count in (10_000, 1_000_000):
            with tempfile.TemporaryDirectory() as folder:
                make_links(Path(folder), count)
                peaks[count] = peak_bytes(folder)
        few, many = peaks.values()
        print(f"\nresident memory: {few / 1e6:.1f} MB for 10,000 files, {many / 1e6:.1f} MB for")
        print(f"1,000,000: {(many - few) / 1e6:.1f} MB more (goal: less than 50)")
    print(f"\nthis process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
