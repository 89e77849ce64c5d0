"""A recording of a stranger acts on nothing, and a killed profiler leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oomdoctor.profile import records
from oomdoctor.profile.assemble import MOST_NOTES, MOST_PHASES, MOST_SUSPECTS
from oomdoctor.profile.store import INSIDE, OUTSIDE, Appender, load, replacing

sys.path.insert(0, str(Path(__file__).parents[1] / "profile"))
from recordings import write_example

SECONDS = 120
"""Only a hang takes so long."""
REPORTS = ("report.json", "report.txt", "report.html")


def profile(*arguments, **how):
    command = [sys.executable, "-m", "oomdoctor", "profile", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, **how
    )


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim.txt"
    path.write_text("precious")
    return path


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_not_written_through_a_link(tmp_path, victim, name):
    folder = write_example(tmp_path / "recording")
    (folder / name).symlink_to(victim)
    profile("--from", folder)
    assert victim.read_text() == "precious"
    assert not (folder / name).is_symlink()
    assert "recording" in (folder / name).read_text() or (folder / name).stat().st_size > 100


def test_a_report_does_not_make_the_file_that_a_link_names(tmp_path):
    folder = write_example(tmp_path / "recording")
    (folder / "report.html").symlink_to(tmp_path / "startup.pth")
    profile("--from", folder)
    assert not (tmp_path / "startup.pth").exists()


def test_a_comparison_is_not_written_through_a_link(tmp_path, victim):
    one, other = write_example(tmp_path / "one"), write_example(tmp_path / "other")
    (other / "comparison.html").symlink_to(victim)
    profile("--compare", one, other)
    assert victim.read_text() == "precious"
    assert (other / "comparison.html").read_text().startswith("<!")


def test_a_recording_is_not_made_through_a_link(tmp_path):
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / OUTSIDE).symlink_to(tmp_path / "elsewhere")
    done = profile("-o", folder, "-c", "pass")
    assert done.returncode == 2
    assert "give another --output" in done.stderr
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", [OUTSIDE, INSIDE])
def test_what_the_program_writes_does_not_follow_a_link_either(tmp_path, victim, name):
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        Appender(tmp_path / name)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", [OUTSIDE, INSIDE])
def test_a_pipe_in_a_recording_does_not_block(tmp_path, name):
    folder = write_example(tmp_path / "recording")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    done = profile("--from", folder)
    assert done.returncode == (2 if name == OUTSIDE else 1), done.stderr
    with pytest.raises(OSError, match=r"."):
        Appender(folder / name)


def test_a_full_disk_leaves_no_half_of_a_report(tmp_path):
    folder = write_example(tmp_path / "recording")
    profile("--from", folder)
    before = {name: (folder / name).read_bytes() for name in REPORTS}
    # A limit on the size of files ends a write as a full disk does.
    limited = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from oomdoctor.cli import main\n"
        "main(['profile', '--from', sys.argv[1]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, folder],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot be written (File too large)" in done.stderr
    assert {name: (folder / name).read_bytes() for name in REPORTS} == before
    assert sorted(path.name for path in folder.iterdir()) == sorted([OUTSIDE, INSIDE, *REPORTS])


def test_a_file_that_is_replaced_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "report.txt"
    path.write_text("old")

    def write_half():
        with replacing(path) as new:
            Path(new).write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def flooded(folder, lines):
    """A recording with many lines of one kind."""
    appender = Appender(write_example(folder) / INSIDE)
    for line in lines:
        appender.write(line)
    appender.close()
    return load(folder)


def test_no_kind_of_line_is_kept_without_bound(tmp_path):
    many = 3000
    notes = flooded(tmp_path / "1", (records.Note(text=f"note {n}") for n in range(many))).notes
    assert len(notes) <= MOST_NOTES + 5
    suspicions = (
        records.Suspicion(kind="objects_kept", what=f"x{n}", count=n, step=1) for n in range(many)
    )
    assert len(flooded(tmp_path / "2", suspicions).suspects) <= MOST_SUSPECTS
    phases = (
        records.Begin(t=100.0 + n, phase="epoch", label=f"e{n}") for n in range(2 * MOST_PHASES)
    )
    assert len(flooded(tmp_path / "3", phases).phases) <= MOST_PHASES


def test_phases_of_a_kind_do_not_overlap_whatever_the_lines_say(tmp_path):
    lines = [records.Begin(t=t, phase="predict", label=f"{t}") for t in (50.0, 9.0, 60.0, 60.0)]
    phases = [p for p in flooded(tmp_path, lines).phases if p.kind == "predict"]
    assert [(p.start_seconds, p.end_seconds) for p in phases] == [(50, 60), (60, 60), (60, None)]


CHILDREN = """
import os, subprocess, sys, time
mark = sys.argv[1]
subprocess.Popen(["sleep", mark])
subprocess.Popen(["sh", "-c", f"sleep {mark} & sleep {mark}"])
subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run(['sleep', '{mark}'])"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", mark])
    os._exit(0)
os.wait()
time.sleep(1)
print("ready", flush=True)
time.sleep(600)
"""


def alive(mark):
    """The processes whose command line has the mark."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if name.isdigit() and mark.encode() in b" ".join(words):
            found.append(int(name))
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_that_a_script_started_outlives_a_killed_profiler(tmp_path, ending):
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    mark = f"7{os.getpid()}{int(ending)}.25"
    command = [sys.executable, "-m", "oomdoctor", "profile", "-o", tmp_path / "r", script, mark]
    profiler = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert profiler.stdout.readline() == b"ready\n"
        assert len(alive(mark)) >= 7  # the profiler, its guard, the script and what it started
        profiler.send_signal(ending)
        profiler.wait(timeout=SECONDS)
        if ending == signal.SIGTERM:  # handed on to the script alone, as without a profiler
            return
        until = time.monotonic() + SECONDS
        while alive(mark) and time.monotonic() < until:
            time.sleep(0.05)
        assert alive(mark) == []
    finally:
        profiler.stdout.close()
        for pid in alive(mark):
            os.kill(pid, signal.SIGKILL)


def test_a_background_process_of_a_script_that_ends_well_stays(tmp_path):
    mark = f"8{os.getpid()}.25"
    code = (
        "import subprocess; from subprocess import DEVNULL as no\n"
        f"subprocess.Popen(['sleep', '{mark}'], start_new_session=True, stdout=no, stderr=no)"
    )
    done = profile("-o", tmp_path / "r", "-c", code)
    try:
        assert done.returncode == 0, done.stderr
        assert len(alive(f"sleep {mark}")) == 1
    finally:
        for pid in alive(f"sleep {mark}"):
            os.kill(pid, signal.SIGKILL)
