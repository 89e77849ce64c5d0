"""The benchmark's grid: a model measured and estimated anew, and all of it against kept truths."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "estimate_accuracy.py"
FAR_OFF = 0.25
"""Single steps of the same model differ by a tenth; an estimate that is wrong is off by more."""


def run_benchmark(output, *arguments):
    command = [sys.executable, str(BENCHMARK), "--output", str(output), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.tensorflow
@pytest.mark.slow
def test_every_case_of_a_model_measured_here_lies_inside_its_interval(tmp_path):
    done = run_benchmark(
        tmp_path / "accuracy", "--models", "mlp", "--precisions", "float32",
        "--truths", str(tmp_path / "truths.csv"),
    )  # fmt: skip
    # Two optimizers and two batch sizes: none was left out.
    assert "all: 4 cases of 1 models" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
    assert (tmp_path / "accuracy.svg").read_text().count("<circle") == 4
    with (tmp_path / "accuracy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        # The middle of a dozen steps. A single step may be a lucky or an unlucky one, so how many
        # of them the interval holds is a question for the whole grid.
        assert int(row["low"]) <= int(row["measured"]) <= int(row["high"]), row
        assert abs(float(row["estimate_error"])) <= FAR_OFF, row


@pytest.mark.tensorflow
@pytest.mark.heavy
def test_the_estimate_keeps_its_limits_on_the_whole_grid(tmp_path):
    done = run_benchmark(
        tmp_path / "accuracy", "--precisions", "float32", "--no-measure"
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
