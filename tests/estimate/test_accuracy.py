"""A part of the benchmark's grid, measured and estimated again, with the same limits."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "estimate_accuracy.py"


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(
    "models",
    [
        ("mlp",),
        pytest.param(("mlp", "unet", "recommender"), marks=pytest.mark.heavy),
    ],
    ids=["one model", "three models"],
)
def test_the_estimate_keeps_its_limits_on_a_part_of_the_grid(tmp_path, models):
    command = [
        sys.executable, str(BENCHMARK), "--models", *models,
        "--precisions", "float32", "--truths", str(tmp_path / "truths.csv"),
        "--output", str(tmp_path / "accuracy"),
        # Beside three other processes one step of hundreds was seen to take half as much again.
        "--above", "1",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    # Two optimizers and two batch sizes for each model: none was left out.
    cases = 4 * len(models)
    assert f"all: {cases} cases of {len(models)} models" in done.stdout
    assert (tmp_path / "accuracy.svg").read_text().count("<circle") == cases
