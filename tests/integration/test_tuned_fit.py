"""The promise: `fit` with the suggested batch size runs a full epoch under the real limit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
SCRIPT = Path(__file__).parent / "fit_under_limit.py"


def fit(name, limit_mib):
    environ = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **settings_for_the_cpu(limit_mib * MIB),
    }
    result = subprocess.run(
        [sys.executable, SCRIPT, name, str(limit_mib)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_a_suggested_size_trains_an_epoch_under_the_limit():
    ran = fit("small", 150)
    assert ran["steps"] == 3
    assert ran["peak"] <= 150 * 2**20


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["mobilenet", "unet", "transformer", "recurrent", "two_inputs"])
def test_five_kinds_of_model_train_an_epoch_under_600_mib(name):
    ran = fit(name, 600)
    print(name, ran)
    assert ran["steps"] == 3
    assert ran["peak"] <= 600 * 2**20
    assert ran["loss"] == pytest.approx(ran["loss"])
