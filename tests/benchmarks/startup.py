"""What starting costs: `--help` against a bare argparse, and `check` on 100 files.

    python tests/benchmarks/startup.py

Wall time of whole processes for --help, taken in turns; process time (user and system, children
included) for check.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

ROUNDS = 15


def wall(*args):
    start = time.perf_counter()
    subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def process_time(*args):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *args], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    argparse, helps = [], []
    for _ in range(ROUNDS):
        argparse.append(wall("-c", "import argparse"))
        helps.append(wall("-m", "oomdoctor", "--help"))
    ratio = statistics.median(helps) / statistics.median(argparse)
    print(f"import argparse: {statistics.median(argparse) * 1000:.0f} ms")
    print(f"oomdoctor --help: {statistics.median(helps) * 1000:.0f} ms")
    print(f"ratio: {ratio:.2f} (goal: at most 3)")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(100):
            Image.new("RGB", (64, 64)).save(Path(folder) / f"{number:03}.png")
        times = [process_time("-m", "oomdoctor", "check", folder) for _ in range(ROUNDS)]
    taken = statistics.median(times)
    print(f"\noomdoctor check on 100 files: {taken:.2f} s of process time (goal: at most 0.5)")


if __name__ == "__main__":
    main()
