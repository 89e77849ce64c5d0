"""The worker: what it answers, how it dies, and that nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oomdoctor.errors import InputError, UsageError
from oomdoctor.runner.process import Died, Ending, WorkerProcess, environment
from oomdoctor.runner.runner import Runner
from oomdoctor.units import MIB
from oomdoctor.worker.messages import Fit, Guessed, Load

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(os.name != "posix", reason="POSIX only")]
TESTS = Path(__file__).parents[1]
DIES_AT, HANGS_AT = 13, 14
PATIENCE = 300


@pytest.fixture(scope="module")
def limited(spec_of):
    """One worker with a small limit, shared by the tests that only train."""
    with Runner(spec_of("tower"), limit_bytes=64 * MIB) as runner:
        yield runner


def pid_of(runner):
    """Return the worker's process id, or None while there is none."""
    return None if runner._worker is None else runner._worker.process.pid


def is_running(pid):
    """Return whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_running_out_of_memory_is_an_outcome_and_the_next_size_is_run(limited):
    first = limited.fit(Fit(4))
    assert (first.outcome, first.message, first.log) == ("fits", None, None)

    trial = limited.fit(Fit(2000))

    assert trial.outcome == "oom"
    assert not trial.was_killed
    assert not trial.timed_out
    assert "OOM when allocating tensor with shape[" in trial.message
    assert "bfc_cpu_allocator_for_gpu" in trial.log
    assert len(trial.log) < 200_000
    assert limited.fit(Fit(4)).outcome == "fits"


def test_one_worker_serves_many_trials(limited):
    trials = [limited.fit(Fit(size)) for size in (4, 64, 16)]
    pid = pid_of(limited)

    assert limited.fit(Fit(8)).outcome == "fits"
    assert pid_of(limited) == pid
    peaks = [trial.peak_bytes for trial in trials]
    assert peaks[0] < peaks[2] < peaks[1]


def test_the_estimate_says_where_to_look_first(limited):
    guessed = limited.guess(48 * MIB)
    size = (48 * MIB - guessed.fixed_bytes) // guessed.sample_bytes

    assert limited.fit(Fit(size)).peak_bytes == pytest.approx(48 * MIB, rel=0.25)


def test_the_same_model_has_the_same_digest(limited, spec_of):
    with Runner(spec_of("tower", optimizer="adam")) as other:
        digests = [limited.digest(), limited.digest(), other.digest()]

    assert digests[0] == digests[1] != digests[2]
    assert all(len(digest) == 64 for digest in digests)


def test_it_is_an_outcome_too_where_the_user_has_turned_on_onednn(spec_of, monkeypatch):
    """Its kernels end the process when they find no memory; a GPU does not have them."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")

    with Runner(spec_of("conv"), limit_bytes=64 * MIB) as runner:
        assert runner.fit(Fit(3000)).outcome == "oom"


def test_a_model_that_does_not_fit_alone_is_out_of_memory_and_has_no_guess(spec_of):
    with Runner(spec_of("four_mib"), limit_bytes=MIB, spare_bytes=MIB) as runner:
        assert runner.guess(MIB) == Guessed()
        assert runner.fit(Fit(1)).outcome == "oom"
        assert runner.digest() is None


@pytest.mark.slow
def test_a_recurrent_network_out_of_memory_is_not_waited_for_op_by_op(spec_of):
    with Runner(spec_of("recurrent"), limit_bytes=40 * MIB) as runner:
        trial = runner.fit(Fit(256))

    assert trial.outcome == "oom"
    assert "OOM when allocating tensor" in trial.message


def test_what_is_wrong_with_a_model_is_one_error_and_no_process_is_left(spec_of):
    with Runner(spec_of("no_model")) as runner:
        with pytest.raises(InputError, match="not a Keras model"):
            runner.fit(Fit(1))
        assert pid_of(runner) is None


def test_death_is_an_outcome_and_the_next_trial_has_a_fresh_worker(spec_of):
    with Runner(spec_of("dense", data="measured_models:perilous_data")) as runner:
        killed = runner.fit(Fit(DIES_AT))
        after = runner.fit(Fit(4))
        os.killpg(pid_of(runner), signal.SIGKILL)
        os.waitid(os.P_PID, pid_of(runner), os.WEXITED | os.WNOWAIT)
        again = runner.fit(Fit(4))
        runner.deadline = time.monotonic() + 1
        hung = runner.fit(Fit(HANGS_AT))
        gone = pid_of(runner)

    assert (killed.outcome, killed.was_killed, killed.timed_out) == ("died", True, False)
    assert (after.outcome, again.outcome) == ("fits", "fits")
    assert (hung.outcome, hung.was_killed, hung.timed_out) == ("died", False, True)
    assert gone is None


def test_each_way_to_end_has_a_name(spec_of):
    """What a worker wrote may hold any word: how it ended is not read from it."""
    endings = {}
    load = Load(spec_of("broken"))
    for name, seconds, sent in (
        ("killed", PATIENCE, signal.SIGKILL),
        ("ended", PATIENCE, signal.SIGABRT),
        ("late", 0, None),
    ):
        worker = WorkerProcess(environment(None))
        if sent is not None:
            worker.process.send_signal(sent)
        with pytest.raises(Died) as died:
            worker.ask(load, seconds)
        endings[name] = died.value.ending
        worker.close()
        assert not worker.is_alive()

    assert endings == {"killed": Ending.KILLED, "ended": Ending.ENDED, "late": Ending.TIMED_OUT}


def start_hanging(tmp_path):
    """Start a process whose worker hangs in a trial; return it with the worker's id."""
    pid_file = tmp_path / "worker.pid"
    script = (
        "from oomdoctor.model.spec import ModelSpec\n"
        "from oomdoctor.runner.runner import Runner\n"
        "from oomdoctor.worker.messages import Fit\n"
        f"spec = ModelSpec('measured_models:dense', sys_path=({str(TESTS / 'worker')!r},),\n"
        "                 data='measured_models:perilous_data')\n"
        f"with Runner(spec) as runner:\n    runner.fit(Fit({HANGS_AT}))\n"
    )
    environ = {
        **os.environ,
        "PID_FILE": str(pid_file),
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")]),
    }
    caller = subprocess.Popen([sys.executable, "-c", script], env=environ, stderr=subprocess.PIPE)
    assert wait_until(lambda: pid_file.exists() and pid_file.read_text(), seconds=PATIENCE)
    pid = int(pid_file.read_text())
    pid_file.unlink()
    return caller, pid


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_nothing_is_left_when_the_caller_ends(tmp_path, sent):
    caller, worker = start_hanging(tmp_path)
    assert is_running(worker)

    caller.send_signal(sent)
    errors = caller.communicate(timeout=PATIENCE)[1]

    assert wait_until(lambda: not is_running(worker))
    assert wait_until(lambda: not list(tmp_path.glob("oomdoctor-*")))
    assert (b"KeyboardInterrupt" in errors) == (sent == signal.SIGINT)


def test_arguments_are_checked_before_a_process_is_started(spec_of):
    runner = Runner(spec_of("dense"))

    with pytest.raises(UsageError, match="at least one sample"):
        runner.fit(Fit(0))
    with pytest.raises(UsageError, match="less than the least"):
        Runner(spec_of("dense"), limit_bytes=1)
    assert pid_of(runner) is None
