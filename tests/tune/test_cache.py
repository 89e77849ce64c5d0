"""Answers are kept and found again, and nothing strange in the folder matters."""

import json
import os
import subprocess
import sys

import pytest

from oomdoctor import _kept
from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.tune import cache


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "oomdoctor" / "tune"


def answer(batch_size=32):
    trial = SizeTrial(batch_size=batch_size, outcome="fits", peak_bytes=10, seconds=1.0)
    return Tuning(
        batch_size=batch_size, peak_bytes=10, budget_bytes=20, target_bytes=19, trials=(trial,)
    )


def test_what_was_kept_is_found_again():
    question = cache.digest({"model": "m", "memory": 1})
    assert cache.find(question) is None
    cache.keep(question, answer())
    assert cache.find(question) == answer()
    assert cache.find(cache.digest({"model": "m", "memory": 2})) is None


def test_the_order_of_a_question_does_not_matter():
    assert cache.digest({"a": 1, "b": 2}) == cache.digest({"b": 2, "a": 1})
    assert cache.digest({"a": 1}) != cache.digest({"a": 2})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\x80\x04K\x01.",
        b"[]",
        b'{"question": "other", "tuning": {}}',
        b"[" * 100_000,
        b'"' + b"x" * 300_000 + b'"',
    ],
    ids=["empty", "torn", "pickle", "list", "foreign", "deep", "large"],
)
def test_what_is_no_answer_is_ignored_and_replaced(home, content):
    question = cache.digest({"model": "m"})
    home.mkdir(parents=True)
    (home / f"{question}.json").write_bytes(content)
    assert cache.find(question) is None
    cache.keep(question, answer())
    assert cache.find(question) == answer()


def test_an_answer_that_was_not_run_is_no_answer(home):
    question = cache.digest({"model": "m"})
    cache.keep(question, answer())
    path = home / f"{question}.json"
    entry = json.loads(path.read_text())
    entry["tuning"]["batch_size"] = 4096
    path.write_text(json.dumps(entry))
    assert cache.find(question) is None


def test_a_file_under_another_name_is_no_answer(home):
    one, other = cache.digest({"model": "m"}), cache.digest({"model": "n"})
    cache.keep(one, answer())
    os.rename(home / f"{one}.json", home / f"{other}.json")
    assert cache.find(other) is None


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.keep("question", answer())
    assert cache.find("question") is None


def test_the_oldest_go_when_there_are_too_many(home, monkeypatch):
    monkeypatch.setattr(_kept, "MAX_FILES", 3)
    for number in range(5):
        cache.keep(f"question{number}", answer())
        os.utime(home / f"question{number}.json", (number, number))
    assert sorted(path.stem for path in home.iterdir()) == ["question2", "question3", "question4"]


def test_processes_that_write_at_the_same_time_leave_a_whole_answer(home):
    script = (
        "import sys\n"
        "from oomdoctor.facts import SizeTrial, Tuning\n"
        "from oomdoctor.tune import cache\n"
        "size = int(sys.argv[1])\n"
        "trials = tuple(SizeTrial(batch_size=size, outcome='fits', peak_bytes=n, seconds=1.0)\n"
        "               for n in range(500))\n"
        "tuning = Tuning(batch_size=size, peak_bytes=1, budget_bytes=2, target_bytes=2,\n"
        "                trials=trials)\n"
        "for _ in range(20):\n"
        "    cache.keep('shared', tuning)\n"
        "    found = cache.find('shared')\n"
        "    assert found is not None and len(found.trials) == 500, found\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(n)]) for n in (3, 4, 5)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    assert cache.find("shared").batch_size in (3, 4, 5)
    assert [path.name for path in home.iterdir()] == ["shared.json"]
