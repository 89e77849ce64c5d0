"""For each treatment: the naive program raises the real OOM, the treated one finishes.

Both run under the same limit of TensorFlow's own allocator. Programs share processes where what
one leaves behind is little, because a failed one waits ten seconds for memory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
SCRIPT = Path(__file__).parent / "treated.py"
LEFT_OVER_MIB = 6
"""No program may fail because of those before it."""


def run(folder, limit_mib, *programs):
    """Return the outcome of each program, in one process."""
    environ = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if limit_mib is not None:
        environ |= settings_for_the_cpu(limit_mib * MIB)
    result = subprocess.run(
        [sys.executable, SCRIPT, *programs],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [answer["program"] for answer in found] == list(programs)
    assert all(answer["before"] <= LEFT_OVER_MIB for answer in found), found
    return [answer["outcome"] for answer in found]


DATA = ("subset", "stream_dataset", "mmap", "chunked_training")


def test_data_that_does_not_fit(tmp_path):
    treated = [f"{name}:treated" for name in DATA]
    naive = ["stream_dataset:naive", "mmap:naive"]  # the others begin with the same program
    assert run(tmp_path, 64, *treated) == ["finished"] * len(DATA)
    assert run(tmp_path, 64, *naive) == ["oom"] * 2


@pytest.mark.parametrize("name", ["gradient_accumulation", "store_intermediates"])
def test_a_step_that_does_not_fit(tmp_path, name):
    assert run(tmp_path, 128, f"{name}:treated", f"{name}:naive") == ["finished", "oom"]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "limit_mib"),
    [("rematerialize", 190), ("mixed_precision", 190), ("lighter_optimizer", 128)],
)
def test_a_model_that_does_not_fit(tmp_path, name, limit_mib):
    assert run(tmp_path, limit_mib, f"{name}:treated") == ["finished"]
    assert run(tmp_path, limit_mib, f"{name}:naive") == ["oom"]


@pytest.mark.heavy
def test_a_cpu_trains_what_the_card_does_not_hold(tmp_path):
    """The card is the allocator with a limit; the CPU has the RAM of the machine."""
    assert run(tmp_path, 64, "cpu_fallback:naive") == ["oom"]
    assert run(tmp_path, None, "cpu_fallback:treated") == ["finished"]


@pytest.mark.heavy
def test_two_replicas_train_what_one_does_not_hold(tmp_path):
    """Two devices of 128 MiB each; on a CPU they share one pool, of twice as much."""
    assert run(tmp_path, 128, "multi_gpu:naive") == ["oom"]
    assert run(tmp_path, 256, "multi_gpu:treated") == ["finished"]
