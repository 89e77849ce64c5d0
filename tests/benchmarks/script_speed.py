"""How long the checks of scripts take, beside pyflakes on the same files, each in one process.

Two trees of 10,000 files: what is installed here, most of which never mentions TensorFlow, and
training scripts, all of which do. Both programs start from files on disk, warm, and neither gets
more than one process. The limit is twice what pyflakes takes.

    python tests/benchmarks/script_speed.py [FILES]
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "scripts"
OURS = """
import sys
from oomdoctor.scripts.scan import scan_scripts
found = scan_scripts(sys.argv[1:])
print(found.files, found.lines, len(found.matches))
"""
THEIRS = """
import sys, io
from pyflakes.api import checkRecursive
from pyflakes.reporter import Reporter
checkRecursive(sys.argv[1:], Reporter(io.StringIO(), io.StringIO()))
print()
"""


def installed_tree(folder: Path, count: int) -> None:
    """Copy installed Python files, those of Keras and TensorFlow first, again if too few."""
    packages = Path(sysconfig.get_path("purelib"))
    standard = Path(sysconfig.get_path("stdlib"))
    named = [*sorted((packages / "keras").rglob("*.py"))]
    named += sorted((packages / "tensorflow").rglob("*.py"))
    others = [*sorted(packages.rglob("*.py")), *sorted(standard.rglob("*.py"))]
    files = list(dict.fromkeys(named + others))
    files = [path for path in files if path.stat().st_size < 500_000]
    step = max(1, len(files) // count)
    copy(folder, files[::step], count)


def training_tree(folder: Path, count: int) -> None:
    """Copy the training scripts that come with the repository, over and over."""
    copy(folder, sorted(FIXTURES.glob("*.py")), count)


def copy(folder: Path, files: list[Path], count: int) -> None:
    for number in range(count):
        place = folder / f"{number // 1000:02}"
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(files[number % len(files)], place / f"f{number:05}.py")


def seconds(code: str, folder: Path) -> tuple[float, str]:
    """Return the time of one process, its start included, and what it printed."""
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, folder],
        capture_output=True,
        text=True,
        check=True,
    )
    return time.perf_counter() - start, run.stdout.strip()


def main() -> None:
    """Print a row for each tree."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rows = []
    for name, make in (("installed packages", installed_tree), ("training scripts", training_tree)):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make(folder, count)
            mentions = sum(
                b"tensorflow" in content or b"keras" in content
                for content in (path.read_bytes() for path in folder.rglob("*.py"))
            )
            ours, told = seconds(OURS, folder)
            theirs, _ = seconds(THEIRS, folder)
            files, lines, _ = told.split()
            rows.append(
                (
                    name,
                    files,
                    mentions,
                    lines,
                    f"{ours:.1f} s",
                    f"{theirs:.1f} s",
                    f"{ours / theirs:.2f}",
                )
            )
    heads = ("tree", "files", "mention TF", "lines", "oomdoctor", "pyflakes", "ratio")
    print(tabulate(rows, heads))


if __name__ == "__main__":
    main()
