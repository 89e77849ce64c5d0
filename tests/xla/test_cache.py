"""Compilations that were done before."""

from __future__ import annotations

import os

import msgspec
import pytest

from oomdoctor import _kept
from oomdoctor.xla import cache
from oomdoctor.xla.buffers import Assignment, Buffer
from oomdoctor.xla.cards import find_card
from oomdoctor.xla.compiler import Compiled
from oomdoctor.xla.plugin import Plugin

T4 = find_card("t4")
NOWHERE = Plugin("/nowhere/at/all.so", "0.9.0")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _compiled(temporary_bytes=4096):
    buffer = Buffer(bytes=512, kind="temporary", op_name="a/b", dtype="float32", shape=(128,))
    return Compiled(
        card="t4",
        plugin_version="0.9.0",
        memory=Assignment(
            argument_bytes=1024,
            output_bytes=1024,
            aliased_bytes=1024,
            temporary_bytes=temporary_bytes,
            constant_bytes=0,
            idle_bytes=0,
            buffers=(buffer,),
            recomputed=3,
        ),
        seconds=1.5,
        allows_recomputation=True,
    )


def _question(**changes):
    asked = {"hlo": b"program", "card": T4, "plugin": NOWHERE, "without_recomputation": False}
    return cache.question_of(**(asked | changes))


def test_an_answer_is_found_again():
    cache.keep(_question(), _compiled())

    assert cache.find(_question()) == _compiled()
    # The compiler is not there, so nothing was compiled.
    assert cache.compile_or_recall(b"program", T4, plugin=NOWHERE) == _compiled()


@pytest.mark.parametrize(
    "changes",
    [
        {"hlo": b"other"},
        {"card": find_card("a100-40gb")},
        {"plugin": Plugin("/nowhere/at/all.so", "0.9.1")},
        {"without_recomputation": True},
    ],
)
def test_another_question_is_not_answered(changes):
    cache.keep(_question(), _compiled())

    assert cache.find(_question(**changes)) is None


def _path():
    return _kept.folder("xla") / f"{_question()}.json"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"question": "x"}',
        b" " * (cache.MAX_BYTES + 1),
    ],
    ids=["empty", "torn", "deep", "binary", "short", "large"],
)
def test_what_is_no_answer_is_as_good_as_absent(content):
    cache.keep(_question(), _compiled())
    _path().write_bytes(content)

    assert cache.find(_question()) is None


def test_sizes_that_cannot_be_are_not_believed():
    cache.keep(_question(), _compiled(temporary_bytes=-5000))

    assert cache.find(_question()) is None


def test_a_link_or_a_pipe_is_not_opened(tmp_path):
    cache.keep(_question(), _compiled())
    elsewhere = tmp_path / "elsewhere.json"
    os.replace(_path(), elsewhere)
    _path().symlink_to(elsewhere)
    assert cache.find(_question()) is None

    _path().unlink()
    os.mkfifo(_path())
    assert cache.find(_question()) is None


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path):
    (tmp_path / "oomdoctor").write_text("not a folder")

    cache.keep(_question(), _compiled())

    assert cache.find(_question()) is None


def test_the_oldest_go(monkeypatch):
    monkeypatch.setattr(_kept, "MAX_FILES", 3)
    for number in range(6):
        cache.keep(_question(hlo=bytes([number])), _compiled())
        os.utime(_kept.folder("xla") / f"{_question(hlo=bytes([number]))}.json", (number, number))

    assert len(list(_kept.folder("xla").iterdir())) == 3
    assert cache.find(_question(hlo=bytes([5]))) is not None
    assert cache.find(_question(hlo=bytes([0]))) is None


def test_another_user_cannot_read_it():
    cache.keep(_question(), _compiled())

    assert _path().stat().st_mode & 0o077 == 0
    assert msgspec.json.decode(_path().read_bytes())["question"] == _question()
