"""Each target of `fuzz.py`: for a second always, for a minute when asked for with `-m heavy`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fuzz.py")
SPEC = importlib.util.spec_from_file_location("oomdoctor_fuzz", SCRIPT)
FUZZ = importlib.util.module_from_spec(SPEC)
sys.modules["oomdoctor_fuzz"] = FUZZ  # dataclasses look their module up
SPEC.loader.exec_module(FUZZ)


def fuzzed(target, seconds, tmp_path):
    """Return how many damaged files a target survived; fail with what it did not survive."""
    run = subprocess.run(
        [sys.executable, str(SCRIPT), target, str(seconds)],
        env={**os.environ, "OOMDOCTOR_FUZZ_FOLDER": str(tmp_path)},
        capture_output=True, text=True, timeout=seconds + 300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"{run.stderr[-3000:]}\nthe input is in {tmp_path}"
    return json.loads(run.stdout.splitlines()[-1])["inputs"]


@pytest.mark.parametrize("target", FUZZ.TARGETS)
def test_damaged_files_are_refused_or_read(target, tmp_path):
    assert fuzzed(target, 1, tmp_path) > 0


@pytest.mark.heavy
@pytest.mark.parametrize("target", FUZZ.TARGETS)
def test_damaged_files_are_refused_or_read_for_a_minute(target, tmp_path):
    assert fuzzed(target, 60, tmp_path) > 0


def test_a_target_that_fails_is_found(tmp_path):
    code = (
        "import runpy; from pathlib import Path\n"
        f"made = runpy.run_path({str(SCRIPT)!r})\n"
        "def run(path):\n    assert b'\\xff' not in path.read_bytes()\n"
        "target = made['Target']('a.bin', lambda: [bytes(100)], run)\n"
        f"made['fuzz'](target, 30, 0, Path({str(tmp_path)!r}))"
    )

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "AssertionError" in run.stderr
    assert b"\xff" in (tmp_path / "0" / "a.bin").read_bytes()
