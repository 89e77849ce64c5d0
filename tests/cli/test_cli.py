import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from oomdoctor.cli import COMMANDS, oomdoctor


def run(*args, **options):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "a.png")
    return tmp_path / "data"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_the_summary_of_the_table(command):
    result = CliRunner().invoke(oomdoctor, [command, "--help"])
    assert result.exit_code == 0
    assert COMMANDS[command] in " ".join(result.output.split())
    assert all(len(line) <= 80 for line in result.output.splitlines())


def test_no_command_shows_help():
    assert "Commands:" in run().stdout + run().stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["chekc"], "No such command"),
        (["check"], "Give a PATH to check"),
        (["check", "gone"], "does not exist: give a folder"),
        (["check", "data", "--vram", "lots"], "is not a size: write 2.7GiB"),
        (["check", "data", "--image-size", "big"], "is not an image size: write 150x150"),
        (["check", "data", "--sample", "0"], "is not a number of files"),
        (["check", "data", "--machine", "colab-t5"], "did you mean 'colab-t4'"),
        (["check", "data", "--dtype", "float33"], "float32"),
        (["check", "data", "--batch-size", "0"], "0 is not in the range"),
        (["check", "data", "--select", "OD999"], "OD999"),
        (["check", "data", "--severity", "OD101"], "RULE=LEVEL"),
        (["check", "data", "--output", "no/such/folder/x"], "cannot be written"),
        (["check", "empty"], "is empty: give a folder"),
        (["check", "useless"], "holds no data that can be sized"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_sentence_and_exit_code_2(folder, args, says):
    (folder.parent / "empty").mkdir()
    (folder.parent / "useless").mkdir()
    (folder.parent / "useless" / "notes.md").write_text("hello")
    result = run(*args, cwd=folder.parent)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_json_goes_to_stdout_alone(folder):
    result = run("check", folder, "--format", "json")
    assert json.loads(result.stdout)["command"] == "check"
    assert result.stderr == ""


def test_output_goes_to_the_file(folder, tmp_path):
    result = run("check", folder, "--output", tmp_path / "report.txt")
    assert result.stdout == ""
    assert "It fits" in (tmp_path / "report.txt").read_text()


def test_fail_on_decides_the_exit_code(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1000, 1000)))
    args = ("check", tmp_path, "--ram", "1MiB")
    assert run(*args).returncode == 1
    assert run(*args, "--fail-on", "never").returncode == 0


def test_probe_as_json_has_the_envelope():
    report = json.loads(run("probe", "--ram", "8GiB", "--vram", "4GiB", "--format", "json").stdout)
    assert report["machine"]["ram"]["available_bytes"] == 8 * 1024**3
    assert report["machine"]["gpus"][0]["free_bytes"] == 4 * 1024**3
    assert report["inventory"] is None


def test_list_of_machines_fits_80_columns_and_knows_the_contracts_names():
    result = run("probe", "--list-machines")
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    for name in ("colab-t4", "kaggle-p100", "rtx3060-laptop", "a100-40gb"):
        assert name in result.stdout


def test_names_on_disk_cannot_write_to_the_terminal(folder):
    Image.new("RGB", (80, 80)).save(folder / "evil\x1b[2J\x07.png")
    (folder / "bad\x1b[31m.png").write_bytes(b"")
    for args in (("check", folder, "-v"), ("check", folder, "--format", "json")):
        result = run(*args)
        assert "\x1b" not in result.stdout + result.stderr
        assert "\x07" not in result.stdout + result.stderr


def test_ascii_terminal_does_not_end_the_report(folder):
    result = run("check", folder, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert "It fits" in result.stdout


def test_closed_pipe_is_not_an_error_message(folder):
    command = f"'{sys.executable}' -m oomdoctor check '{folder}' | head -n 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_colour_only_on_a_terminal_that_wants_it(folder):
    assert "\x1b[" in on_terminal("check", str(folder))
    assert "\x1b[" not in on_terminal("check", str(folder), NO_COLOR="1")
    assert "\x1b[" not in run("check", folder).stdout


def on_terminal(*args, **env):
    """Return what the command writes when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "oomdoctor", *args],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **env},
    ):
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            written += piece
    os.close(ours)
    return written.decode()


def _reads_below(pid, folder):
    """Whether a process has a file or folder below the given one open: the scan has begun."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(str(folder)):
                return True
    return False


def test_ctrl_c_reports_what_was_seen_and_exits_with_130(tmp_path):
    # A FIFO cannot stall the scan, so many files and an early signal have to do.
    for number in range(400):
        (tmp_path / f"d{number:03}").mkdir()
        for name in range(50):
            (tmp_path / f"d{number:03}" / f"{name}.csv").write_text("a,b\n1,2\n" * 50)
    process = subprocess.Popen(
        [sys.executable, "-m", "oomdoctor", "check", str(tmp_path), "--ram", "8GiB"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not _reads_below(process.pid, tmp_path):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("this machine finished the scan before the signal came")
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted" in err
    assert out == "" or "The scan was interrupted" in " ".join(out.split())


def test_module_and_script_are_the_same_program():
    assert run("--version").stdout == "oomdoctor, version 0.1.0\n"
