"""Nothing in the cache folder is believed for being there."""

import json
import os
import resource
import stat
import subprocess
import sys
from dataclasses import replace

import msgspec
import pytest

from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.tune import cache

QUESTION = cache.digest({"model": "m"})


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "oomdoctor" / "tune"


def answer(batch_size=32):
    trial = SizeTrial(batch_size=batch_size, outcome="fits", peak_bytes=10, seconds=1.0)
    return Tuning(
        batch_size=batch_size, peak_bytes=10, budget_bytes=20, target_bytes=19, trials=(trial,)
    )


def forge(home, tuning, **more):
    """Put an answer there that was not found here; plain, as another program would write it."""
    home.mkdir(parents=True, exist_ok=True)
    entry = {"question": QUESTION, "tuning": msgspec.to_builtins(tuning)}
    entry["tuning"].update(more)
    path = home / f"{QUESTION}.json"
    path.write_bytes(msgspec.json.encode(entry))
    return path


def test_an_answer_written_the_same_way_is_found(home):
    forge(home, answer())
    assert cache.find(QUESTION) == answer()


def test_an_answer_outside_the_bounds_of_the_question_is_not_taken(home):
    forge(home, answer(4096))
    assert cache.find(QUESTION, accepts=lambda found: found.batch_size <= 64) is None
    assert cache.find(QUESTION, accepts=lambda found: found.batch_size <= 4096) is not None


def test_an_answer_with_an_unknown_field_is_not_taken(home):
    forge(home, answer(), surprise=1)
    assert cache.find(QUESTION) is None


@pytest.mark.parametrize(
    "change",
    [
        {"peak_bytes": -1},
        {"budget_bytes": 1 << 61},
        {"target_bytes": 21},
        {"replicas": 0},
        {"notes": ("\x1b[2J",)},
        {"notes": ("\n::error::gotcha",)},
        {"limited_by": "x" * 2000},
        {"batch_size": 33},
        {"trials": (SizeTrial(batch_size=32, outcome="won", peak_bytes=1, seconds=1.0),)},
        {"trials": (SizeTrial(batch_size=32, outcome="fits", peak_bytes=-1, seconds=1.0),)},
        {"trials": (SizeTrial(batch_size=32, outcome="fits", peak_bytes=1, seconds=-1.0),)},
    ],
    ids="-".join,
)
def test_an_answer_that_no_search_gives_is_not_taken(home, change):
    forge(home, replace(answer(), **change))
    assert cache.find(QUESTION) is None


def find_in_a_process(timeout=60):
    """Look it up in a process of its own, which a pipe would block for ever."""
    code = f"from oomdoctor.tune import cache; print(cache.find({QUESTION!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=True
    )
    return done.stdout.strip()


def test_a_pipe_in_the_place_of_an_answer_does_not_block(home):
    home.mkdir(parents=True)
    os.mkfifo(home / f"{QUESTION}.json")
    assert find_in_a_process() == "None"


def test_a_link_in_the_place_of_an_answer_is_not_followed(home, tmp_path):
    path = forge(home, answer())
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert cache.find(QUESTION) is None
    cache.keep(QUESTION, answer(16))
    assert cache.find(QUESTION) == answer(16)
    assert json.loads((tmp_path / "elsewhere.json").read_text())["tuning"]["batch_size"] == 32


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_answer_of_another_user_is_not_taken(home):
    os.chown(forge(home, answer()), 65534, -1)
    assert cache.find(QUESTION) is None


def test_the_folder_is_for_its_user_alone(home):
    cache.keep(QUESTION, answer())
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / f"{QUESTION}.json").stat().st_mode) == 0o600


def test_a_folder_that_is_a_link_is_left_alone(home, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    home.parent.mkdir()
    home.symlink_to(tmp_path / "elsewhere")
    cache.keep(QUESTION, answer())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_full_disk_leaves_nothing_half_written(home):
    # A limit on the size of files ends a write as a full disk does.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        cache.keep(QUESTION, answer())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(home.iterdir()) == []
