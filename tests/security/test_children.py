"""Processes that are started run nothing of the folder they are started in, and do not stay."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import psutil
import pytest

import oomdoctor
from oomdoctor import isolation
from oomdoctor.inventory import hdf5

PACKAGE = Path(oomdoctor.__file__).parent
SHADOWS = ("json", "os", "queue", "signal", "h5py", "numpy", "oomdoctor", "sitecustomize", "site")


def parent(code, *, cwd, environment):
    """Run code in a process that starts children itself; oomdoctor is found by its place alone."""
    code = f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n{code}"
    run = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=cwd, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def child(target, **how):
    """Run a function in a child of this process and return what it wrote."""
    run = subprocess.run(
        isolation.python_command(target, **how),
        env=isolation.clean_environment(),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture
def trapped(tmp_path):
    """A folder in which every module that a child needs has a namesake that leaves a trace."""
    folder = tmp_path / "project"
    folder.mkdir()
    with h5py.File(folder / "data.h5", "w") as file:
        file["x"] = np.zeros((10, 4), "float32")
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'a').write('{name} ')")
    return folder


@pytest.mark.parametrize("first", ["''", "'.'", "os.getcwd()"])
def test_checking_hdf5_runs_nothing_of_the_current_folder(trapped, first):
    code = (
        "import os, oomdoctor.inventory.hdf5 as hdf5, h5py\n"
        f"sys.path.insert(0, {first})  # as a notebook, `python -c` and PYTHONPATH have it\n"
        "print(next(hdf5.read('data.h5', 10**6)).samples)\n"
    )
    assert parent(code, cwd=trapped, environment={"PYTHONPATH": "."}) == "10\n"
    assert not (trapped.parent / "RAN").exists()


def test_the_command_runs_nothing_of_the_current_folder(trapped):
    command = [sys.executable, "-I", "-m", "oomdoctor", "check", "data.h5", "--format", "json"]
    run = subprocess.run(command, cwd=trapped, capture_output=True, text=True, check=False)
    assert json.loads(run.stdout)["inventory"]["samples"] == 10
    assert not (trapped.parent / "RAN").exists()


def path_of_child(**how):
    """Return the path of a child: `print` writes the list of arguments, which comes after it."""
    code = isolation._START.replace("module, _,", "print(json.dumps(sys.path)); module, _,")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "_START", code)
        return json.loads(child("builtins:print", **how).splitlines()[0])


def test_python_m_runs_nothing_of_the_current_folder_either(tmp_path):
    for name in ("json", "click", "msgspec", "psutil"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    done = subprocess.run(
        [sys.executable, "-m", "oomdoctor", "probe"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_child_finds_the_library_first_and_then_what_is_installed(tmp_path, monkeypatch):
    modules = tmp_path / "modules" / "site-packages"
    target = tmp_path / "target"
    source = tmp_path / "source"
    for folder in (modules, target / "some-1.0.dist-info", source):
        folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    added = ["", ".", "modules/site-packages", str(tmp_path), str(source), str(modules)]
    monkeypatch.setattr(sys, "path", [*added, *sys.path, str(target)])
    path = path_of_child()
    assert path.index(os.path.dirname(os.__file__)) < path.index(str(modules))
    assert path.index(str(modules)) < path.index(site.getsitepackages()[0])
    assert str(target) in path
    assert not {"", ".", str(tmp_path), str(source), "modules/site-packages"} & set(path)


def test_installed_packages_that_are_the_current_folder_are_left_out(tmp_path, monkeypatch):
    (tmp_path / "some-1.0.dist-info").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert str(tmp_path) not in path_of_child()


def test_the_users_own_folders_come_last(tmp_path):
    assert path_of_child(also=[str(tmp_path)])[-1] == str(tmp_path)


def test_packages_of_the_user_site_are_found(tmp_path):
    # What `pip install --user` does, an editable install included.
    where = {"PYTHONUSERBASE": str(tmp_path / "base")}
    code = "import site; print(site.getusersitepackages())"
    run = [sys.executable, "-c", code]
    packages = Path(subprocess.check_output(run, text=True, env={**os.environ, **where}).strip())
    packages.mkdir(parents=True)
    editable = tmp_path / "editable"
    editable.mkdir()
    (packages / "mine.py").write_text("def hello(arguments): print('hello', *arguments)\n")
    (packages / "theirs.pth").write_text(f"{editable}\n")
    (editable / "theirs.py").write_text("from mine import hello\n")
    code = (
        f"import site, sys; sys.path.append({str(PACKAGE.parent)!r})\n"
        "site.ENABLE_USER_SITE = True  # a virtual environment turns it off\n"
        "site.addsitedir(site.getusersitepackages())\n"
        "from oomdoctor.isolation import clean_environment, python_command\n"
        "import subprocess\n"
        "for name in ('mine', 'theirs'):\n"
        "    command = python_command(f'{name}:hello', 'world')\n"
        "    subprocess.run(command, env=clean_environment(), check=True)\n"
    )
    run = [sys.executable, "-c", code]
    output = subprocess.check_output(run, text=True, env={**os.environ, **where}, cwd=tmp_path)
    assert output == "hello world\n" * 2


def test_a_child_runs_the_same_copy_of_the_package(tmp_path, monkeypatch):
    other = tmp_path / "site-packages" / "oomdoctor"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit('another copy')")
    monkeypatch.setattr(sys, "path", [str(other.parent), *sys.path])
    code = isolation._START.replace("module, _,", "print(package.__file__); module, _,")
    monkeypatch.setattr(isolation, "_START", code)
    assert child("builtins:print").splitlines()[0] == oomdoctor.__file__


def test_nothing_beside_the_package_is_found(tmp_path):
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "oomdoctor").symlink_to(PACKAGE)
    code = (
        f"import sys; sys.path[:] = [{str(tmp_path)!r}, *sys.path]\n"
        "from oomdoctor.isolation import python_command\n"
        "import subprocess\n"
        "sys.exit(subprocess.run(python_command('beside:anything')).returncode)"
    )
    run = [sys.executable, "-I", "-c", code]
    failed = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "No module named 'beside'" in failed.stderr


def test_variables_that_make_python_run_code_are_dropped(monkeypatch):
    for name in ("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONWARNINGS",
                 "PYTHONBREAKPOINT", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX"):  # fmt: skip
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setenv("LD_PRELOAD", "")
    environment = isolation.clean_environment(MORE="yes")
    assert {name for name in environment if name.startswith("PYTHON")} <= isolation._HARMLESS
    assert environment["PYTHONUTF8"] == "1"
    assert environment["MORE"] == "yes"
    assert "LD_PRELOAD" in environment


def test_a_deleted_current_folder_does_not_matter(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert isolation.python_command("builtins:print")[0] == sys.executable


# ---------------------------------------------------------------------- the end


def ends(pid, seconds=60):
    """Return whether a process is gone before long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


BUSY = """
import os, subprocess, sys
from oomdoctor import isolation
from oomdoctor.inventory import hdf5
# The worker looks into a FIFO, which opens for nobody: as busy as a file that hangs the library.
process = hdf5._worker._start()
process.stdin.write(b'["fifo", 1]\\n')
process.stdin.flush()
print(process.pid, flush=True)
input()
"""


def test_the_hdf5_worker_ends_with_its_parent(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    code = f"import sys; sys.path.append({str(PACKAGE.parent)!r})\n{BUSY}"
    command = [sys.executable, "-I", "-c", code]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as asking:
        worker = int(asking.stdout.readline())
        waits_in_open(worker)
        asking.send_signal(signal.SIGKILL)
        asking.wait()
        try:
            assert ends(worker)
        finally:
            if psutil.pid_exists(worker):
                os.kill(worker, signal.SIGKILL)


def waits_in_open(pid):
    """Return once a process is past its start and stuck in the file."""
    process = psutil.Process(pid)
    before = -1.0
    for _ in range(600):
        used = sum(process.cpu_times()[:2])
        if used == before and used > 0.05:
            return
        before = used
        time.sleep(0.2)


def test_the_end_of_the_thread_that_started_the_worker_is_not_the_files_fault(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    hdf5._worker.close()
    path = str(tmp_path / "a.h5")
    thread = threading.Thread(target=lambda: list(hdf5.read(path, 10**6)))
    thread.start()
    thread.join()
    assert [part.samples for part in hdf5.read(path, 10**6)] == [3]


def test_files_that_hang_the_library_one_after_the_other_are_given_up(tmp_path, monkeypatch):
    (tmp_path / "a.h5").write_bytes(b"x")
    hang = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(hdf5, "python_command", lambda *_: hang)
    monkeypatch.setattr(hdf5, "_TIMEOUT_SECONDS", 0.1)
    worker = hdf5._Worker()

    answers = [worker.ask(str(tmp_path / "a.h5"), 1)["reason"] for _ in range(6)]
    monkeypatch.setattr(hdf5, "_MEMORY_SECONDS", 0.0)
    later = worker.ask(str(tmp_path / "a.h5"), 1)["reason"]

    assert answers == [hdf5.CRASHED] * 4 + [hdf5.GIVEN_UP] * 2
    assert later == hdf5.CRASHED


def test_a_parent_that_is_gone_already_is_noticed():
    ended = subprocess.Popen(["true"])
    ended.wait()
    code = f"from oomdoctor.isolation import *; end_with_parent({ended.pid}); print('still here')"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (-signal.SIGKILL, "")


def test_an_interrupted_question_leaves_no_answer_behind(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    os.mkfifo(tmp_path / "fifo")
    hdf5._worker.close()
    interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        hdf5._worker.ask(str(tmp_path / "fifo"), 1)
    assert [part.samples for part in hdf5.read(str(tmp_path / "a.h5"), 10**6)] == [3]
