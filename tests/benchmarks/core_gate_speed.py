"""How long the gate on data and scripts takes where nothing but the core is installed.

Makes a virtual environment, installs this checkout without extras, asserts that TensorFlow is not
there, and times whole processes of `oomdoctor check DATA SCRIPTS`. The limit is one second. On a
machine that others use, the processor's seconds tell more than the clock's.

    python tests/benchmarks/core_gate_speed.py [RUNS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).parent.parent.parent
TARGETS = {
    "data and scripts": ("fixtures/datasets/shapes", "fixtures/scripts"),
    "scripts alone": ("fixtures/scripts",),
    "data alone": ("fixtures/datasets/shapes",),
}


def main() -> None:
    """Print a row for each target."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True)
        absent = subprocess.run(
            [python, "-c", "import tensorflow"], capture_output=True, check=False
        )
        assert absent.returncode != 0, "TensorFlow is installed here"
        # As a user has it: byte code is kept, and nothing but the installed copy is seen.
        unset = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        rows = []
        for name, paths in TARGETS.items():
            taken, worked = [], []
            for _ in range(runs + 1):  # the first one compiles
                start, before = time.perf_counter(), processor_seconds()
                run = subprocess.run(
                    [f"{folder}/bin/oomdoctor", "check", *paths, "--ram", "8GiB"],
                    capture_output=True,
                    check=False,
                    cwd=ROOT,
                    env=environment,
                )
                taken.append(time.perf_counter() - start)
                worked.append(processor_seconds() - before)
                assert run.returncode in (0, 1), run.stderr
            figures = (statistics.median(taken[1:]), max(taken[1:]), statistics.median(worked[1:]))
            rows.append((name, *(f"{figure:.2f} s" for figure in figures)))
    print(tabulate(rows, ("oomdoctor check", "median", "worst", "processor, median")))


def processor_seconds() -> float:
    """Return what child processes have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
