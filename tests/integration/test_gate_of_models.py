"""The gate with models: one trace for all targets, and a pull request that raises the peak."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

APP = """\
import keras

def build(width={width}):
    with open("built.txt", "a") as file:
        file.write("x")
    model = keras.Sequential([
        keras.Input((64,)),
        keras.layers.Dense(256, name="first"),
        keras.layers.Dense(width, name="second"),
        keras.layers.Dense(10, name="{last}"),
    ])
    model.compile("adam", "mse")
    return model
"""
SETTINGS = """\
machine = ["colab-t4", "rtx3060-laptop"]
baseline = "base.json"
[[models]]
model = "app:build"
batch-size = [8, 16]
jit = "off"
"""


def run(project, *args, expect=0):
    result = subprocess.run(
        [sys.executable, "-m", "oomdoctor", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
        # Two versions of a module within a second would look the same to the byte-code cache.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert result.returncode == expect, result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    return result.stdout


def test_a_pull_request_that_raises_the_peak_fails_and_shows_the_layers(tmp_path):
    (tmp_path / "oomdoctor.toml").write_text(SETTINGS)
    (tmp_path / "app.py").write_text(APP.format(width=256, last="last"))
    run(tmp_path, "check", "--update-baseline")
    assert (tmp_path / "built.txt").read_text() == "x"  # one build, one trace, four reports

    told = run(tmp_path, "check")
    assert "the same" in told
    recorded = json.loads((tmp_path / "base.json").read_text())
    assert [peak["subject"] for peak in recorded["peaks"]] == [
        "app:build, batch 16, without XLA",
        "app:build, batch 8, without XLA",
    ]
    assert {peak["threads"] for peak in recorded["peaks"]} == {os.cpu_count()}

    (tmp_path / "app.py").write_text(APP.format(width=512, last="renamed"))
    text = ("--also", "text=told.txt")
    told = json.loads(run(tmp_path, "check", "--format", "json", *text, expect=1))
    assert [part["target"] for part in told["reports"]] == ["colab-t4"] * 2 + ["rtx3060-laptop"] * 2
    assumed = " ".join(told["reports"][0]["estimate"]["assumptions"])
    assert "for a GPU, without the scratch memory of CPU kernels" in assumed
    growth = told["reports"][0]["growth"]
    assert growth["growth_bytes"] > growth["allowed_bytes"] > 0
    changed = {layer["name"]: layer for layer in growth["layers"]}
    assert changed["second"]["bytes_at_peak"] > changed["second"]["recorded_bytes"]
    assert changed["renamed"]["recorded_bytes"] is None
    assert changed["last"]["bytes_at_peak"] is None
    assert sum(
        (layer["bytes_at_peak"] or 0) - (layer["recorded_bytes"] or 0) for layer in changed.values()
    ) == pytest.approx(growth["growth_bytes"], abs=1024)

    told = (tmp_path / "told.txt").read_text()
    assert "What changed in app:build, batch 8, without XLA" in told
    assert "second" in told
    assert all(len(line) <= 80 for line in told.splitlines())


def test_estimate_compares_with_the_baseline_too_and_records_beside_it(tmp_path):
    (tmp_path / "app.py").write_text(APP.format(width=256, last="last"))
    estimate = ("estimate", "app:build", "--vram", "6GiB", "--baseline", "b.json")
    run(tmp_path, *estimate, "--batch-size", "8", "--update-baseline")
    told = run(tmp_path, *estimate, "--batch-size", "4")
    assert "app:build, batch 4 is not in the baseline" in " ".join(told.split())
    (tmp_path / "app.py").write_text(APP.format(width=512, last="last"))
    told = run(tmp_path, *estimate, "--batch-size", "8", "--format", "github", expect=1)
    assert told.startswith("::error file=pyproject.toml,line=1,title=OD503 peak-above-baseline::")
