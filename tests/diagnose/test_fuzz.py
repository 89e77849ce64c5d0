"""No input makes it raise, hang, or let control characters through."""

import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.diagnose.patterns import GROUPS, NEEDLES, ROOTS
from oomdoctor.diagnose.read import Reader
from oomdoctor.diagnose.run import diagnose_files, diagnose_text
from oomdoctor.facts import Facts
from oomdoctor.findings import CAUSES, Report
from oomdoctor.report import json, markdown, text
from oomdoctor.report.views import view_of

LOGS = sorted((Path(__file__).parents[2] / "fixtures" / "logs").glob("tf_*.log"))
WORDS = sorted({needle for needle, _, _ in NEEDLES})
SECONDS_A_MEGABYTE = 20
"""Generous: this machine may be busy. A regular expression that backtracks takes hours."""


def must_be_clean(report):
    view = view_of(report, verbose=True)
    for shown in (text.render(view), markdown.render(view), json.render(report)):
        assert all(char == "\n" or char.isprintable() for char in shown)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_are_survived(raw):
    import io

    from oomdoctor.diagnose.collect import collect
    from oomdoctor.diagnose.judge import judge

    assert judge(collect(Reader().lines(["-"], io.BytesIO(raw)))).cause in CAUSES


FRAGMENTS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(
        ["\n", "\r", " ", "[", "]", "(", ")", ":", "\x1b[2J", "\x00", "\u202e", "GPU:0"]
    ),
    st.integers(-(10**25), 10**25).map(str),
    st.floats().map(str),
    st.text(max_size=8),
    st.sampled_from(
        ["KiB", "GiB", "MB", "%", "float", "shape[", "Limit: ", "InUse: ", "Free  at "]
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, max_size=40).map("".join))
def test_any_jumble_of_known_words_is_survived_and_clean(jumble):
    facts = Facts(diagnosis=diagnose_text(jumble))
    must_be_clean(Report(command="diagnose", verdict="unknown", facts=facts))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_mutated_logs_are_survived(path, tmp_path):
    chance = random.Random(path.stem)
    original = path.read_bytes()
    for _ in range(25):
        raw = bytearray(original)
        for _ in range(chance.randrange(1, 40)):
            at = chance.randrange(len(raw) + 1)
            end = at + chance.randrange(64)
            raw[at:end] = chance.choice(
                [b"", bytes([chance.randrange(256)]), b"9" * 30, b"\n", bytes(raw[:64]), b"\x1b[2J"]
            )
        mutant = tmp_path / "mutant.log"
        mutant.write_bytes(raw)
        assert diagnose_files([mutant], None).cause in CAUSES


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_logs_cut_short_anywhere_are_survived(path):
    original = path.read_text()
    for end in range(0, len(original), max(1, len(original) // 40)):
        assert diagnose_text(original[:end]).cause in CAUSES


def test_no_pattern_backtracks():
    for pattern in (pattern for group in GROUPS for pattern in group):
        for filler in ("a", " ", "9", "1,", "dim { size: 1 } ", "x.", "/", "Killed ", "memory "):
            line = pattern.needles[0] + filler * (20_000 // len(filler)) + "!"
            started = time.perf_counter()
            pattern.regex.search(line)
            taken = time.perf_counter() - started
            assert taken < SECONDS_A_MEGABYTE * len(line) / 2**20 + 0.5, pattern.kind


@pytest.mark.parametrize("word", WORDS)
def test_long_lines_of_any_needle_take_bounded_time(word):
    raw = (word + " ") * (100_000 // (len(word) + 1))
    started = time.perf_counter()
    diagnose_text(raw)
    assert time.perf_counter() - started < SECONDS_A_MEGABYTE * len(raw) / 2**20 + 0.5


def test_every_needle_holds_a_root():
    assert [word for word in WORDS if not any(root in word for root in ROOTS)] == []


def test_every_needle_is_in_lower_case():
    words = [w for group in GROUPS for p in group for w in (*p.needles, *p.unless)]
    assert words == [word.lower() for word in words]
