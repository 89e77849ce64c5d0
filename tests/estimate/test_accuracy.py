"""A small part of the benchmark's grid, measured and estimated anew, with the same limits."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "estimate_accuracy.py"


@pytest.mark.tensorflow
@pytest.mark.slow
def test_the_estimate_keeps_its_limits_on_a_part_of_the_grid(tmp_path):
    command = [
        sys.executable, str(BENCHMARK), "--models", "mlp", "unet", "recommender",
        "--precisions", "float32", "--truths", str(tmp_path / "truths.csv"),
        "--output", str(tmp_path / "accuracy"),
        # Beside three other processes one step of hundreds was seen to take half as much again.
        "--above", "1",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    # Three models, two optimizers, two batch sizes: none was left out.
    assert "all: 12 cases of 3 models" in done.stdout
    assert (tmp_path / "accuracy.svg").read_text().count("<circle") == 12
