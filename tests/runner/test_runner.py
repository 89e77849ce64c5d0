"""The worker: what it answers, how it dies, and that nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oomdoctor.errors import InputError, UsageError
from oomdoctor.measure.runner import Runner
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(os.name != "posix", reason="POSIX only")]
HERE = Path(__file__).parent
DIES_AT, HANGS_AT = 13, 14


@pytest.fixture(scope="module")
def limited(spec_of):
    """One worker with a small limit, shared by the tests that only measure."""
    with Runner(spec_of("conv"), limit_bytes=64 * MIB) as runner:
        yield runner


def is_running(pid):
    """Return whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_peak_grows_with_the_batch(limited):
    peaks = [limited.run(size).peak_bytes for size in (4, 32, 128)]

    assert peaks[0] < peaks[1] < peaks[2] < 64 * MIB


def test_a_trial_tells_the_first_step_from_the_rest(limited):
    trial = limited.run(8, steps=4)

    assert trial.outcome == "fits"
    assert trial.device == "CPU:0"
    assert len(trial.step_peaks) == 3
    assert trial.peak_bytes == max(trial.step_peaks)
    assert 0 < trial.current_bytes < trial.peak_bytes
    assert trial.first_step_peak_bytes > 0
    assert 0 < trial.step_seconds <= trial.seconds


def test_one_trace_serves_all_batch_sizes(limited):
    assert limited.run(3).notes == ()
    pid = limited.pid

    limited.run(5)

    assert limited.pid == pid


def test_a_last_batch_is_run_and_must_fit_too(limited):
    alone, with_last = limited.run(64), limited.run(64, last=5)

    assert with_last.outcome == alone.outcome == "fits"
    assert with_last.peak_bytes <= 1.1 * alone.peak_bytes
    assert limited.run(8, last=4000).outcome == "oom"


def test_each_judged_step_is_given_a_batch_of_its_own_as_in_fit(spec_of, tmp_path, monkeypatch):
    asked_for = tmp_path / "batches"
    monkeypatch.setenv("BATCHES_FILE", str(asked_for))
    with Runner(spec_of("dense", data="measured_models:counted_data")) as runner:
        runner.run(5, steps=4)
        judged = runner.run(7, steps=4, settled=True)
    sizes = asked_for.read_text().split()

    assert sizes.count("5") == 1
    assert sizes.count("7") >= 4
    assert judged.step_seconds < 0.5  # a pipeline makes batches while others are trained on


def test_validation_in_a_way_of_its_own_must_fit_too(spec_of):
    with Runner(
        spec_of("validates_lavishly"), limit_bytes=64 * MIB, spare_bytes=64 * MIB
    ) as runner:
        assert runner.run(64).outcome == "fits"
        assert runner.run(64, settled=True).outcome == "oom"
        assert runner.run(16, settled=True).outcome == "fits"


def test_what_is_wrong_with_a_model_is_told_when_it_is_started(spec_of):
    with Runner(spec_of("no_model")) as runner:
        with pytest.raises(InputError, match="not a Keras model"):
            runner.start()
        assert runner.pid is None


@pytest.mark.parametrize("name", ["conv", "recurrent"])
def test_the_estimate_says_where_to_look_first(spec_of, name):
    with Runner(spec_of(name), limit_bytes=256 * MIB, spare_bytes=256 * MIB) as runner:
        prior = runner.start(64 * MIB)
        size = (64 * MIB - prior["fixed_bytes"]) // prior["sample_bytes"]
        assert runner.run(size).peak_bytes == pytest.approx(64 * MIB, rel=0.2)


def test_a_model_that_does_not_fit_has_no_prior_and_no_room(spec_of):
    with Runner(spec_of("four_mib"), limit_bytes=MIB, spare_bytes=MIB) as runner:
        assert runner.start(MIB) is None
        assert runner.run(1).outcome == "oom"


def test_replayed_trace_equals_the_peak_of_the_allocator(limited):
    trial = limited.run(32, trace=True)
    trace = trial.trace

    assert trace.peak_bytes == trace.allocator_peak_bytes
    assert trace.peak_bytes == pytest.approx(trial.peak_bytes, rel=0.02)
    assert sum(trace.parts.values()) == sum(trace.layers.values()) == trace.peak_bytes
    assert 0 <= trace.slack_bytes < trace.peak_bytes
    assert max(size for _, size in trace.curve) == trace.peak_bytes


def test_trace_names_layers_tensors_and_parts(limited):
    trace = limited.run(32, trace=True).trace
    # Parameters of 3·3·3·8+8, 3·3·8·8+8 and 12·12·8·10+10, four bytes each.
    weights = 4 * (224 + 584 + 11530)
    widest = next(t for t in trace.tensors if t.op.endswith("Relu") and t.layer == "first")

    assert {"first", "second", "classes", "(inputs)"} <= set(trace.layers)
    # By chance the peak falls while an update holds a weight and its copy.
    assert weights <= trace.parts["weights"] < 2 * weights + 16 * 256
    # Two slots for each weight; temporaries of the update may stand beside them at the peak.
    assert 2 * weights <= trace.parts["optimizer"] < 4 * weights + 64 * 256
    assert (widest.shape, widest.dtype) == ((32, 14, 14, 8), "float32")
    assert widest.requested_bytes == 32 * 14 * 14 * 8 * 4


def test_evaluating_and_predicting_hold_less_than_training(limited):
    train, evaluate, predict = (
        limited.run(64, kind=kind).peak_bytes for kind in ("train", "evaluate", "predict")
    )

    assert max(predict, evaluate) < train / 2


def test_running_out_of_memory_is_an_outcome_and_the_worker_goes_on(limited):
    limited.run(4)
    pid = limited.pid

    trial = limited.run(20_000)

    assert trial.outcome == "oom"
    assert trial.peak_bytes is None
    assert "OOM when allocating tensor with shape[20000," in trial.message
    assert "bfc_cpu_allocator_for_gpu" in trial.log
    assert len(trial.log) < 200_000
    assert limited.run(4).outcome == "fits"
    assert limited.pid == pid


def test_it_is_an_outcome_too_where_the_user_has_turned_on_onednn(run_once, monkeypatch):
    """Its kernels end the process when they find no memory; a GPU does not have them."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")

    assert run_once("conv", 20_000, limit_bytes=64 * MIB).outcome == "oom"


def test_a_model_that_does_not_fit_without_a_batch_is_out_of_memory(run_once):
    trial = run_once("wide", limit_bytes=MIB, kind="predict", batch_size=512)

    assert trial.outcome == "oom"


def test_a_recurrent_network_out_of_memory_is_not_waited_for_op_by_op(run_once):
    trial = run_once("recurrent", 256, limit_bytes=40 * MIB)

    assert trial.outcome == "oom"
    assert "OOM when allocating tensor" in trial.message


def test_death_and_hanging_are_outcomes_and_the_next_trial_starts_anew(spec_of):
    with Runner(spec_of("dense", data="measured_models:perilous_data")) as runner:
        killed = runner.run(DIES_AT)
        after = runner.run(4)
        os.killpg(runner.pid, signal.SIGKILL)
        os.waitid(os.P_PID, runner.pid, os.WEXITED | os.WNOWAIT)
        again = runner.run(4)
        runner.seconds_per_trial = 1
        hung = runner.run(HANGS_AT)
        gone = runner.pid

    assert (killed.outcome, hung.outcome) == ("died", "died")
    assert "SIGKILL" in killed.message
    assert (after.outcome, again.outcome) == ("fits", "fits")
    assert hung.message == "no answer within 1 s"
    assert gone is None


def start_hanging(tmp_path):
    """Start a process whose worker hangs in a trial; return it with the worker's id."""
    pid_file = tmp_path / "worker.pid"
    script = (
        "from oomdoctor.measure.runner import Runner\n"
        "from oomdoctor.measure.spec import ModelSpec\n"
        f"spec = ModelSpec('measured_models:dense', sys_path=({str(HERE)!r},),\n"
        "                 data='measured_models:perilous_data')\n"
        f"with Runner(spec) as runner:\n    runner.run({HANGS_AT})\n"
    )
    environ = {
        **os.environ,
        "PID_FILE": str(pid_file),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    caller = subprocess.Popen([sys.executable, "-c", script], env=environ, stderr=subprocess.PIPE)
    assert wait_until(lambda: pid_file.exists() and pid_file.read_text(), seconds=120)
    pid = int(pid_file.read_text())
    pid_file.unlink()
    return caller, pid


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_nothing_is_left_when_the_caller_ends(tmp_path, sent):
    caller, worker = start_hanging(tmp_path)
    assert is_running(worker)

    caller.send_signal(sent)
    errors = caller.communicate(timeout=60)[1]

    assert wait_until(lambda: not is_running(worker))
    assert wait_until(lambda: not list(tmp_path.glob("oomdoctor-*")))
    assert (b"KeyboardInterrupt" in errors) == (sent == signal.SIGINT)


def test_arguments_are_checked_before_a_process_is_started(spec_of):
    runner = Runner(spec_of("dense"))

    with pytest.raises(UsageError, match="at least one sample"):
        runner.run(0)
    with pytest.raises(UsageError, match="no kind of step"):
        runner.run(1, kind="fit")
    with pytest.raises(UsageError, match="less than the least"):
        Runner(spec_of("dense"), limit_bytes=1)
    assert runner.pid is None
