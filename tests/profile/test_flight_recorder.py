"""What is left of a run that is killed: its report, or a recording that can become one."""

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

GROWING = """
import time
kept = []
print("started", flush=True)
while True:
    kept.append(b"x" * 100_000)
    time.sleep(0.002)
"""

COUNTS = """
import time
for attempt in (1, 2):
    try:
        if attempt == 1:
            print("ready", flush=True)
        time.sleep(2)
    except KeyboardInterrupt:
        print("interrupt", attempt, flush=True)
"""


@pytest.fixture
def started(tmp_path, environ):
    """A profiler, the program that it runs, and the folder it writes to."""
    script = tmp_path / "grows.py"
    script.write_text(GROWING)
    folder = tmp_path / "recording"
    command = [sys.executable, "-m", "oomdoctor", "profile", "-o", str(folder), str(script)]
    profiler = subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert profiler.stdout.readline() == "started\n"
    (program,) = psutil.Process(profiler.pid).children()
    yield profiler, program, folder
    profiler.kill()
    profiler.communicate()


def check_report_after_kill(started, seconds):
    profiler, program, folder = started
    time.sleep(seconds)
    killed_at = time.time()
    program.kill()
    _, err = profiler.communicate(timeout=60)
    report = json.loads((folder / "report.json").read_text())
    recorded = report["profile"]
    assert profiler.returncode == 137
    assert recorded["end"]["signal"] == "SIGKILL"
    assert recorded["end"]["killed_by"] == "unknown"
    last = recorded["timeline"][-1]["seconds"]
    assert recorded["end"]["seconds"] - last < 1.0
    assert killed_at - (recorded["started_at"] + last) < 1.0
    assert "SIGKILL" in err


@pytest.mark.parametrize("seed", range(3))
def test_a_program_killed_at_a_random_time_leaves_a_report(started, seed):
    check_report_after_kill(started, random.Random(seed).uniform(0.0, 1.5))


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3, 20))
def test_a_program_killed_at_any_of_many_times_leaves_a_report(started, seed):
    check_report_after_kill(started, random.Random(seed).uniform(0.0, 3.0))


def test_a_killed_profiler_takes_the_program_along_and_its_recording_can_be_read(started, environ):
    profiler, program, folder = started
    time.sleep(1.0)
    os.kill(profiler.pid, signal.SIGKILL)
    profiler.wait(10)
    program.wait(10)
    assert not (folder / "report.json").exists()
    done = subprocess.run(
        [sys.executable, "-m", "oomdoctor", "profile", "--from", str(folder), "--format", "json"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["profile"]["end"] is None
    assert report["profile"]["sample_count"] >= 5
    assert any("cut off" in note for note in report["notes"])
    assert (folder / "report.json").exists()


def test_sigterm_reaches_the_program_and_its_exit_code_comes_back(tmp_path, environ):
    script = tmp_path / "tidy.py"
    script.write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "oomdoctor", "profile", "-o", str(tmp_path / "r"), script]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as profiler:
        assert profiler.stdout.readline() == "ready\n"
        profiler.terminate()
        profiler.communicate(timeout=60)
    assert profiler.returncode == 42
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["profile"]["end"]["exit_code"] == 42


def test_an_interrupt_sent_to_the_profiler_reaches_the_program_once(tmp_path, environ):
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    command = [sys.executable, "-m", "oomdoctor", "profile", "-o", str(tmp_path / "r"), script]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as profiler:
        assert profiler.stdout.readline() == "ready\n"
        profiler.send_signal(signal.SIGINT)
        out, _ = profiler.communicate(timeout=60)
    assert out == "interrupt 1\n"
    assert profiler.returncode == 0


def test_ctrl_c_on_a_terminal_interrupts_the_program_once_and_the_report_follows(tmp_path, environ):
    script = tmp_path / "counts.py"
    script.write_text(COUNTS)
    command = [sys.executable, "-m", "oomdoctor", "profile", "-o", str(tmp_path / "r"), str(script)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, environ)
    shown = b""
    try:
        while b"ready" not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        while chunk := _read_or_nothing(terminal):
            shown += chunk
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert shown.count(b"interrupt") == 1
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"Nothing failed" in shown
    assert (tmp_path / "r" / "report.json").exists()


def _read_or_nothing(terminal):
    try:
        return os.read(terminal, 10_000)
    except OSError:  # the other end was closed
        return b""


def test_a_worker_process_counts_and_the_largest_is_the_one_that_is_killed(profile, tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "hog = 'x = bytearray(300_000_000); import time; time.sleep(60)'\n"
        "code = subprocess.run([sys.executable, '-c', hog]).returncode\n"
        "print('worker ended with', code)\n"
    )
    run = profile("--ram", "200MB", script)
    assert run.out == "worker ended with -9\n"
    assert run.code == 0
    assert run.report["profile"]["end"]["killed_by"] == "cap"
    assert max(row["processes"] for row in run.report["profile"]["timeline"]) == 2


def test_recordings_are_never_mixed(profile, tmp_path):
    script = tmp_path / "nothing.py"
    script.write_text("")
    assert profile(script).code == 0
    again = profile(script)
    assert again.code == 2
    assert "holds a recording already" in again.err
    assert Path(again.folder).exists()
