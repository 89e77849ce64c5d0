"""The real error of the real TensorFlow, caught where it is raised."""

import os
import subprocess
import sys

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.units import MIB

PROGRAM = """
import oomdoctor
import tensorflow as tf

try:
    with oomdoctor.watch(batch_size=200):
        tf.random.normal((200, 1024, 1024))
except tf.errors.ResourceExhaustedError as error:
    diagnosis = error.oomdoctor.facts.diagnosis
    print("FOUND", diagnosis.cause, diagnosis.requested_bytes, diagnosis.device)
    print("NOTE", any("TensorFlow holds" in note for note in diagnosis.notes))
    print("SHOWN", "ran out" in error.__notes__[0])
"""


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_real_error_gets_its_diagnosis_and_live_figures():
    limited = settings_for_the_cpu(256 * MIB)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, **limited, "CUDA_VISIBLE_DEVICES": "-1"},
        check=True,
    )
    assert f"FOUND gpu_exhausted {200 * 1024 * 1024 * 4} CPU:0" in run.stdout
    assert "NOTE True" in run.stdout
    assert "SHOWN True" in run.stdout
