"""A state file: nothing that has not changed is opened twice, and the answer stays the same."""

import os
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.errors import InputError, UsageError
from oomdoctor.inventory import walk
from oomdoctor.inventory.scan import scan
from oomdoctor.inventory.sources import LocalSources
from oomdoctor.inventory.state import ScanState


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    for number in range(60):
        place = root / "train" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10 + number % 7, 8)).save(place / f"{number}.png")
    Image.new("RGB", (9, 9)).save(root / "train" / "cat" / "a.webp")
    (root / "train" / "dog" / "bad.png").write_bytes(b"no image")
    np.save(root / "x.npy", np.zeros((5, 4)))
    return root


def scanned(folder, state):
    memory = ScanState(state)
    return scan([folder], sources=LocalSources(memory)), memory.reused


def test_a_second_scan_opens_nothing_and_finds_the_same(folder, tmp_path):
    plain = scan([folder])
    state = tmp_path / "state"

    assert scanned(folder, state) == (plain, 0)
    assert scanned(folder, state) == (plain, 63)


def test_only_what_changed_is_opened_again(folder, tmp_path):
    state = tmp_path / "state"
    scanned(folder, state)
    Image.new("RGB", (100, 100)).save(folder / "train" / "cat" / "0.png")
    Image.new("RGB", (50, 50)).save(folder / "train" / "cat" / "new.png")
    os.remove(folder / "train" / "dog" / "1.png")

    assert scanned(folder, state) == (scan([folder]), 61)


def test_a_scan_that_is_killed_goes_on_where_it_was(folder, tmp_path):
    state = tmp_path / "state"
    script = f"""
import os
from oomdoctor.inventory import state, walk
from oomdoctor.inventory.scan import scan
from oomdoctor.inventory.sources import LocalSources
state._WRITE_EVERY, walk.CHUNK_FILES = 1, 10
def kill(files):
    if files > 30:
        os.kill(os.getpid(), 9)
scan([{str(folder)!r}], sources=LocalSources(state.ScanState({str(state)!r})), progress=kill)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -9

    inventory, reused = scanned(folder, state)

    assert inventory == scan([folder])
    assert 10 <= reused < 63


def test_the_order_of_a_listing_and_the_size_of_chunks_change_nothing(
    folder, tmp_path, monkeypatch
):
    state = tmp_path / "state"
    scanned(folder, state)
    monkeypatch.setattr(walk, "CHUNK_FILES", 7)

    assert scanned(folder, state)[0] == scan([folder])


@pytest.mark.parametrize("content", [b"some text\n" * 20, b"SQLite format 3\0" + b"x" * 200])
def test_another_file_is_not_overwritten(folder, tmp_path, content):
    state = tmp_path / "notes"
    state.write_bytes(content)
    with pytest.raises(InputError, match="is not a state file"):
        ScanState(state)
    assert state.read_bytes() == content


def test_another_database_is_not_touched(tmp_path):
    other = sqlite3.connect(tmp_path / "mine.db")
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    with pytest.raises(InputError, match="is not a state file"):
        ScanState(tmp_path / "mine.db")
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


def test_links_are_not_followed(tmp_path):
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is not a file of its own"):
        ScanState(tmp_path / "state")


def test_rows_that_nobody_wrote_are_read_again(folder, tmp_path):
    state = tmp_path / "state"
    scanned(folder, state)
    rows = sqlite3.connect(state)
    with rows:
        rows.execute("UPDATE files SET found = ?", (b'{"image": [[1, 2, "x", 8], -1]}',))
    rows.close()

    assert scanned(folder, state) == (scan([folder]), 0)


def test_a_file_of_another_version_starts_again(folder, tmp_path):
    state = tmp_path / "state"
    scanned(folder, state)
    rows = sqlite3.connect(state)
    with rows:
        rows.execute("UPDATE about SET format = 'oomdoctor scan 1, 0.0.0'")
    rows.close()

    assert scanned(folder, state) == (scan([folder]), 0)


def test_check_takes_a_state_file(folder, tmp_path):
    first = oomdoctor.check(folder, ram="8GiB", state=tmp_path / "state")
    assert oomdoctor.check(folder, ram="8GiB", state=tmp_path / "state").facts == first.facts
    with pytest.raises(UsageError, match="state= has no effect on data in memory"):
        oomdoctor.check(np.zeros((2, 2)), state=tmp_path / "state")
