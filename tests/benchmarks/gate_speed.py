"""How long the gate takes on data and scripts, with the core alone: no TensorFlow is installed.

    python -m venv core && core/bin/pip install .
    python tests/benchmarks/gate_speed.py core/bin/oomdoctor

Prints the best of several runs, as a clock on the wall and as time of the processor: the latter
does not depend on what else the machine does.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUNS = 7
FORMATS = ("text", "json", "markdown", "sarif", "junit", "github", "gitlab")
SETTINGS = """\
machine = ["colab-t4", "rtx3060-laptop"]
datasets = ["shapes"]
scripts = ["scripts"]
"""


def timed(command: list[str], folder: Path) -> tuple[float, float]:
    """Return the seconds one run took, by both clocks."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), done.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, spent


def main(program: str) -> None:
    """Time every format in a small project."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(FIXTURES / "datasets" / "shapes", folder / "shapes")
        shutil.copytree(FIXTURES / "scripts", folder / "scripts")
        (folder / "oomdoctor.toml").write_text(SETTINGS)
        files = sum(path.is_file() for path in folder.rglob("*"))
        print(f"{files} files, 2 machines, best of {RUNS} runs")
        print(f"{'format':<10}{'wall':>8}{'processor':>12}")
        for format_ in FORMATS:
            command = [str(Path(program).absolute()), "check", "--format", format_]
            runs = [timed(command, folder) for _ in range(RUNS)]
            wall, spent = min(run[0] for run in runs), min(run[1] for run in runs)
            print(f"{format_:<10}{wall:>6.2f} s{spent:>10.2f} s")


if __name__ == "__main__":
    main(sys.argv[1])
