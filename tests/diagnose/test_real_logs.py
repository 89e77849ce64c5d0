"""Logs that real programs wrote: see fixtures/logs/make_logs.py."""

from pathlib import Path

import pytest

from oomdoctor.diagnose.run import diagnose_files, verdict_of

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
MIB = 2**20


def diagnose(name, **known):
    return diagnose_files([LOGS / f"tf_{name}.log"], None, **known)


JUDGED = [
    ("keras_fit", "gpu_exhausted", "does_not_fit"),
    ("eager_one_tensor", "gpu_exhausted", "does_not_fit"),
    ("fragmented", "gpu_fragmented", "does_not_fit"),
    ("many_small", "gpu_exhausted", "does_not_fit"),
    ("large_weights", "gpu_exhausted", "does_not_fit"),
    ("xla", "xla_exhausted", "does_not_fit"),
    ("numpy_array", "host_array_too_large", "does_not_fit"),
    ("memory_error", "host_exhausted", "does_not_fit"),
    ("killed", "host_killed", "does_not_fit"),
    ("leak", "leak", "does_not_fit"),
    ("proto_2gb", "tensor_proto_too_large", "does_not_fit"),
    ("shuffle", "pipeline_buffer", "fits"),
    ("healthy", "no_failure", "fits"),
    ("wrong_shape", "not_memory", "unknown"),
    ("disk_full", "not_memory", "unknown"),
]


@pytest.mark.parametrize(("name", "cause", "verdict"), JUDGED)
def test_the_cause_is_the_one_the_program_was_written_for(name, cause, verdict):
    diagnosis = diagnose(name)
    assert (diagnosis.cause, verdict_of(diagnosis)) == (cause, verdict)


def test_every_log_is_judged():
    names = {path.stem.removeprefix("tf_") for path in LOGS.glob("tf_*.log")}
    assert names == {name for name, _, _ in JUDGED}


def test_a_step_that_outgrows_the_limit_is_told_with_exact_figures():
    diagnosis = diagnose("keras_fit")
    assert diagnosis.shape == (64, 92, 92, 64)
    assert diagnosis.requested_bytes == 64 * 92 * 92 * 64 * 4
    assert diagnosis.limit_bytes == 256 * MIB
    assert diagnosis.allocator == "bfc_cpu_allocator_for_gpu"
    assert diagnosis.layer == "conv2d", "Keras 3 writes conv2d_1"
    assert diagnosis.source_line == "train.py:6"


def test_the_batch_is_found_and_a_smaller_one_is_reckoned():
    diagnosis = diagnose("keras_fit")
    assert (diagnosis.batch_dimension, diagnosis.batch_size) == (0, 64)
    assert 1 <= diagnosis.fitting_batch < 64
    assert any("upper bound" in note for note in diagnosis.notes)


def test_a_given_batch_size_chooses_the_dimension():
    assert diagnose("keras_fit", batch_size=92).batch_dimension == 1


def test_one_tensor_above_the_limit_is_called_so():
    diagnosis = diagnose("eager_one_tensor")
    assert diagnosis.requested_bytes == 200 * 1024 * 1024 * 4 > diagnosis.limit_bytes
    assert "one tensor" in diagnosis.summary


def test_fragmentation_is_told_with_the_largest_hole():
    diagnosis = diagnose("fragmented")
    assert diagnosis.limit_bytes - diagnosis.in_use_bytes > diagnosis.requested_bytes
    assert "pieces too small" in diagnosis.summary


def test_a_small_tensor_that_fails_is_the_victim():
    diagnosis = diagnose("many_small")
    assert "something else" in diagnosis.summary
    assert "leak" in [other.cause for other in diagnosis.alternatives]
    assert diagnosis.holders[0][1] > 200 * MIB


def test_a_failure_before_the_first_batch_is_told():
    diagnosis = diagnose("large_weights")
    assert diagnosis.shape == (20000, 2000)
    assert diagnosis.batch_dimension is None
    assert any("weights were being created" in note for note in diagnosis.notes)


def test_evidence_quotes_lines_that_are_in_the_log():
    for path in LOGS.glob("tf_*.log"):
        lines = path.read_text().splitlines()
        for number, text in diagnose_files([path], None).evidence:
            assert text[:40] in lines[number - 1].replace("\t", " ")
