"""A log of a stranger does not hang, fill memory, or lead elsewhere; the report says what was left.

Each runs in a process of its own with little memory, because a device would never end.
"""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from oomdoctor.diagnose import read, sources
from oomdoctor.diagnose.collect import collect
from oomdoctor.diagnose.judge import judge
from oomdoctor.diagnose.read import CHUNK, LONGEST_LINE, Reader
from oomdoctor.diagnose.run import diagnose_files
from oomdoctor.diagnose.unpack import MOST_BEYOND_RATIO
from oomdoctor.errors import InputError

SECONDS = 120
"""Only a hang takes so long."""
MIB = 1 << 20
FILLER = b"10/1563 [=====>....] - ETA: 12s - loss: 0.1234 - accuracy: 0.9876\n"


def diagnose(*arguments, memory=512 * MIB, **how):
    """Run the command with little memory and little time."""
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))\n"
        "from oomdoctor.cli import main\n"
        "main(['diagnose', '--format', 'json', *sys.argv[1:]])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        **how,
    )


def notes_of(done):
    assert done.stdout, done.stderr
    return " ".join(json.loads(done.stdout)["diagnosis"]["notes"])


def cause_of(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["diagnosis"]["cause"]


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/random", "/dev/tty"])
def test_a_device_is_not_read(path):
    done = diagnose(path)
    assert done.returncode == 2
    assert done.stderr == (
        f"oomdoctor: {path} is a device: give a log file, or - to read standard input.\n"
    )


def test_a_named_pipe_and_a_socket_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.log")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.log"))
        for name, kind in (("pipe.log", "a named pipe"), ("socket.log", "a socket")):
            done = diagnose(tmp_path / name)
            assert done.returncode == 2
            assert f"is {kind}: give a log file" in done.stderr


def test_the_pipe_of_a_shell_is_read():
    receives, sends = os.pipe()
    os.write(sends, b"Epoch 1/5\nKilled\n")
    os.close(sends)
    assert cause_of(diagnose(f"/dev/fd/{receives}", pass_fds=(receives,))) == "host_killed"
    os.close(receives)


def test_standard_input_that_never_ends_is_left():
    with open("/dev/zero", "rb") as zeros:
        done = diagnose("-", stdin=zeros)
    assert "does not end" in notes_of(done)


def test_standard_input_that_is_closed_is_a_sentence():
    code = "import os; os.close(0); from oomdoctor.cli import main; main(['diagnose', '-'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 2
    assert "internal error" not in done.stderr


def bomb(path, size, head=b""):
    packer = zlib.compressobj(9, wbits=31)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush a block does not refer to those before it, so it can be repeated.
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(start + block * (size // MIB))


def test_a_gzip_bomb_stops_early_and_the_report_says_so(tmp_path):
    bomb(tmp_path / "bomb.log.gz", 8 * MOST_BEYOND_RATIO, b"Epoch 1/5\nKilled\n")
    done = diagnose(tmp_path / "bomb.log.gz")
    assert cause_of(done) == "host_killed"
    assert "unpacks to over 100 times its size" in notes_of(done)
    assert re.search(r"only the first (2[5-9]\d|3\d\d)(\.\d)? MiB were read", notes_of(done))


def test_many_gzip_bombs_share_one_allowance(tmp_path):
    for number in range(6):
        bomb(tmp_path / f"{number}.log.gz", MOST_BEYOND_RATIO * 5 // 4)
    reader = Reader()
    unpacked = 0
    before = read.Gunzipped.read

    def counted(self, size=-1):
        nonlocal unpacked
        block = before(self, size)
        unpacked += len(block)
        return block

    read.Gunzipped.read = counted
    try:
        list(reader.lines([tmp_path], None))
    finally:
        read.Gunzipped.read = before
    assert unpacked < 3 * MOST_BEYOND_RATIO
    assert sum("unpacks to" in note for note in reader.notes) == 6


@pytest.mark.parametrize("members", [1, 3, 2000])
def test_an_honest_gzip_file_is_read_to_its_end(tmp_path, members):
    path = tmp_path / "train.log.gz"
    lines = [FILLER * 300 for _ in range(members)]
    path.write_bytes(b"".join(map(gzip.compress, [*lines, b"Killed\n"])) + b"\0" * 512)
    diagnosis = diagnose_files([path], None)
    assert diagnosis.cause == "host_killed"
    assert diagnosis.evidence[0][0] == 300 * members + 1
    assert diagnosis.notes == ()


def test_the_name_in_the_header_of_a_gzip_file_may_be_long(tmp_path):
    head = b"\x1f\x8b\x08\x08" + bytes(6)
    (tmp_path / "a.gz").write_bytes(head + b"x" * (64 * MIB))
    assert "damaged" in notes_of(diagnose(tmp_path / "a.gz"))


def test_links_out_of_a_folder_are_not_followed(tmp_path):
    outside = tmp_path / "private.log"
    outside.write_text("MemoryError\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").symlink_to(outside)
    (logs / "root").symlink_to("/")
    (logs / "self").symlink_to(".")
    (logs / "b.log").symlink_to("/dev/zero")
    (logs / "c.log").write_text("Epoch 1/5\nKilled\n")
    (logs / "d.log").symlink_to("c.log")
    os.mkfifo(logs / "e.log")
    done = diagnose(logs)
    assert cause_of(done) == "host_killed"
    assert "1 links lead out" in notes_of(done)
    assert "MemoryError" not in done.stdout


def test_a_deep_folder_and_one_that_is_closed_are_notes(tmp_path):
    (tmp_path / "a.log").write_text("Killed\n")
    before = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)
    try:
        assert cause_of(diagnose(tmp_path)) == "host_killed"
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_too_many_logs_are_told_of(tmp_path, monkeypatch):
    for number in range(20):
        (tmp_path / f"{number:02}.log").write_text("x\n")
    monkeypatch.setattr(sources, "MOST_FILES", 5)
    assert "holds 20 logs: the first 5 were read" in " ".join(
        diagnose_files([tmp_path], None).notes
    )
    monkeypatch.setattr(sources, "MOST_ENTRIES", 10)
    assert "over 10 files" in " ".join(diagnose_files([tmp_path], None).notes)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_of_a_folder_that_cannot_be_read_is_a_note(tmp_path):
    (tmp_path / "a.log").write_text("Killed\n")
    (tmp_path / "b.log").write_text("x")
    (tmp_path / "b.log").chmod(0)
    diagnosis = diagnose_files([tmp_path], None)
    assert diagnosis.cause == "host_killed"
    assert any("b.log could not be read" in note for note in diagnosis.notes)


def test_the_end_of_a_very_long_log_counts_more_than_its_middle(tmp_path):
    path = tmp_path / "train.log"
    count = 64 * CHUNK // len(FILLER)
    path.write_bytes(b"Epoch 1/5\n" + FILLER * count + b"Killed\n")
    reader = Reader(most_bytes=4 * CHUNK)
    diagnosis = judge(collect(reader.lines([path], None), reader.notes))
    assert diagnosis.cause == "host_killed"
    assert any("only the beginning and the end were read" in note for note in diagnosis.notes)


def test_of_too_many_logs_the_rest_is_not_read(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.log").write_bytes(FILLER * (CHUNK // len(FILLER)))
    reader = Reader(most_bytes=4 * CHUNK)
    list(reader.lines([tmp_path], None))
    assert any("more logs were not read" in note for note in reader.notes)


def test_the_hole_of_a_log_that_was_cut_off_costs_nothing(tmp_path):
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        file.truncate(1 << 42)
        file.seek(0, os.SEEK_END)
        file.write(b"\nEpoch 1/5\nKilled\n")
    assert cause_of(diagnose(path)) == "host_killed"


def test_zeros_before_a_log_are_not_an_encoding(tmp_path):
    (tmp_path / "train.log").write_bytes(bytes(5000) + b"\nEpoch 1/5\nKilled\n")
    assert diagnose_files([tmp_path / "train.log"], None).cause == "host_killed"


def test_what_ends_a_run_is_found_though_the_middle_is_full_of_messages(tmp_path):
    path = tmp_path / "train.log"
    noise = b"W cpu.cc:82] Allocation of 153600000 exceeds 10% of free system memory.\n"
    # A block ends just after the message, so that the last block alone would not hold it.
    text = noise * (24 * MIB // len(noise))
    text += b"x" * ((-len(text) - 30) % CHUNK) + b"\nMemoryError\n"
    path.write_bytes(text + b"bye\n" * 20)
    diagnosis = diagnose_files([path], None)
    assert diagnosis.cause == "host_exhausted"
    assert any("its middle was passed over" in note for note in diagnosis.notes)


def test_a_message_at_the_end_of_an_endless_progress_bar_is_found():
    bar = "\r".join(f"{n}/99999 [==>...] - loss: 0.1" for n in range(20_000))
    assert len(bar) > 2 * LONGEST_LINE
    text = f"{bar}\rMemoryError: Unable to allocate 55.2 GiB"
    assert judge(collect(Reader().text(text))).cause == "host_array_too_large"


def notebook(outputs):
    return json.dumps({"cells": [{"cell_type": "code", "outputs": outputs}]})


@pytest.mark.parametrize(
    "content",
    [
        '{"cells": [' + "{}," * 2_000_000 + "{}]}",
        '{"cells": ' + "[" * 1_000_000,
        '{"metadata": ' + '{"a":' * 1_000_000,
        '{"cells": [], "x": [' + "[]," * 8_000_000 + "[]]}",
        notebook([{"data": {"image/png": "x" * 40_000_000}}]),
    ],
    ids=["cells", "lists", "objects", "elsewhere", "image"],
)
def test_a_notebook_takes_little_more_memory_than_its_size(tmp_path, content):
    path = tmp_path / "a.ipynb"
    path.write_text(content)
    done = diagnose(path)
    assert cause_of(done) == "no_failure", done.stderr


def test_a_notebook_that_is_too_large_is_read_as_text(tmp_path):
    path = tmp_path / "a.ipynb"
    outputs = [{"text": ["x" * 99 + "\n"] * 1000} for _ in range(700)]
    outputs.append({"text": ["MemoryError\n"]})
    path.write_text(json.dumps({"cells": [{"outputs": outputs}]}, indent=0))
    assert path.stat().st_size > 64 * MIB
    done = diagnose(path)
    assert "too large for a notebook" in notes_of(done)
    assert cause_of(done) == "host_exhausted"


@pytest.mark.parametrize(
    "output",
    [
        {"text": 5},
        {"text": {"a": 1}},
        {"text": [1, None]},
        {"traceback": 5, "ename": [], "evalue": {}},
        {"data": 3},
        {"data": {"text/plain": 7}},
        {"data": None, "text": None},
    ],
    ids=str,
)
def test_an_output_that_is_none_is_left_out(tmp_path, output):
    path = tmp_path / "a.ipynb"
    path.write_text(notebook([output, {"text": "Killed\n"}]))
    diagnosis = diagnose_files([path], None)
    assert diagnosis.cause == "host_killed"
    assert diagnosis.notes == ()


@pytest.mark.parametrize("path", ["a\0b", "", "x" * 5000, "\udcff.log"])
def test_a_name_that_is_none_is_a_clear_error(path):
    with pytest.raises(InputError):
        diagnose_files([path], None)
