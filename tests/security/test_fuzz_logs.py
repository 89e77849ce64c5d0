"""No log, notebook, recording, cache or line to redact makes it raise, hang or say too much.

Each target takes a seed and makes an input of it, from real ones that are cut, doubled, spliced
and filled with what is awkward. A few seeds are tried in every run; `-m heavy` tries new ones for
a minute each, and a failure names its seed.
"""

import gzip
import itertools
import json
import os
import random
import sys
import time
from pathlib import Path

import msgspec
import pytest

from oomdoctor import _kept
from oomdoctor.api import explain_error
from oomdoctor.api.run import compare_runs, report_on
from oomdoctor.diagnose.redact import redact_text
from oomdoctor.errors import OomDoctorError
from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.findings import CAUSES
from oomdoctor.profile.store import INSIDE, OUTSIDE
from oomdoctor.report import json as as_json
from oomdoctor.report import markdown, page, text
from oomdoctor.report.views import view_of
from oomdoctor.tune import cache

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "profile"))
from recordings import write_example
from redaction_lines import LINES

SHORT = 25
MINUTE = 60.0
LONGEST_SECONDS = 60
"""For one small input; this machine may be busy."""
LOGS = sorted((Path(__file__).parents[2] / "fixtures" / "logs").glob("tf_*.log"))
AWKWARD = (
    *(b"\0", b"\xff", b"\n", b"\r", b"\x1b[2J", b"\\n", b'"', b"'", b"{", b"[", b"]", b"}", b","),
    *(
        b"9" * 30,
        b"-1",
        b"1e308",
        b"1e-308",
        b"NaN",
        b"null",
        b"true",
        b"\xe2\x80\xae",
        b"::error::",
    ),
    *(b"Killed\n", b"MemoryError: ", b"shape[", b"GiB", b"Limit: ", b"/home/ada/", b"password="),
    *(
        b"://",
        b"@",
        b"\\",
        b"\xf0\x9f\x92\xa5",
        b"\xd9\xa1",
        b" " * 300,
        b"a" * 70_000,
        b"{" * 2000,
    ),
)


def mutated(chance, raw):
    """Return bytes that are much like those given."""
    made = bytearray(raw[: chance.randrange(1, 200_000)])
    for _ in range(chance.randrange(1, 30)):
        at = chance.randrange(len(made) + 1)
        end = min(len(made), at + chance.choice((0, 1, 8, 64, 1000)))
        piece = chance.choice(
            (chance.choice(AWKWARD), bytes(made[at:end]) * 2, b"", chance.randbytes(8))
        )
        made[at:end] = piece
    return bytes(made)


def must_be_clean(report, *, with_page=False):
    view = view_of(report, verbose=True)
    shown = [text.render(view), markdown.render(view), as_json.render(report)]
    shown += [page.render(report)] if with_page else []
    for one in shown:
        assert all(char == "\n" or char.isprintable() for char in one)


def fuzz_log(chance, folder):
    raw = mutated(chance, chance.choice(LOGS).read_bytes())
    kind = chance.randrange(4)
    path = folder / ("a.log.gz" if kind == 1 else "a.log")
    if kind == 1:
        raw = mutated(chance, gzip.compress(raw)) if chance.random() < 0.5 else gzip.compress(raw)
    if kind == 2:
        raw = raw.decode("latin-1").encode(chance.choice(("utf-16", "utf-16-le", "utf-32")))
    path.write_bytes(raw)
    report = explain_error([str(path)], redact=chance.random() < 0.5)
    assert report.facts.diagnosis.cause in CAUSES
    must_be_clean(report)


def fuzz_notebook(chance, folder):
    lines = chance.choice(LOGS).read_text(encoding="utf-8", errors="replace").splitlines(True)
    odd = (None, 5, -1.5, "", [], {}, [None], {"text/plain": 5}, "x" * 1000, True)
    outputs = [
        {
            key: chance.choice((lines, "".join(lines), chance.choice(odd)))
            for key in ("text", "data", "traceback", "ename", "evalue")
            if chance.random() < 0.6
        }
        for _ in range(3)
    ]
    cells = [{"outputs": outputs if chance.random() < 0.8 else chance.choice(odd)}, {}]
    book = {"cells": cells if chance.random() < 0.9 else chance.choice(odd)}
    raw = json.dumps(book).encode()
    path = folder / "a.ipynb"
    path.write_bytes(mutated(chance, raw) if chance.random() < 0.5 else raw)
    report = explain_error([str(path)])
    assert report.facts.diagnosis.cause in CAUSES
    must_be_clean(report)


def fuzz_redaction(chance, folder):
    line = chance.choice(LINES)
    clean = redact_text(line.text)
    before = chance.choice(AWKWARD).decode("utf-8", "replace")[:500]
    after = chance.choice(AWKWARD).decode("utf-8", "replace")[:500]
    # A line between blanks is as clean as it is alone.
    spaced = redact_text(f"ok {line.text} , {after}")
    assert [secret for secret in line.gone if secret in spaced and secret not in after] == []
    redact_text(f"{before}{line.text}{after}")
    assert redact_text(clean).count("<") >= clean.count("<")
    redact_text(mutated(chance, line.text.encode() * 20).decode("utf-8", "replace"))


def fuzz_recording(chance, folder):
    place = write_example(folder / "recording", steps_per_epoch=chance.randrange(1, 60))
    for name in (OUTSIDE, INSIDE):
        raw = (place / name).read_bytes()
        if chance.random() < 0.7:
            lines = raw.splitlines(True)
            chance.shuffle(lines) if chance.random() < 0.2 else None
            for _ in range(chance.randrange(1, 20)):
                at = chance.randrange(len(lines))
                lines[at] = extreme(chance, lines[at])
            raw = b"".join(lines)
        (place / name).write_bytes(raw if chance.random() < 0.6 else mutated(chance, raw))
    try:
        report = report_on(place)
    except OomDoctorError:
        return
    must_be_clean(report, with_page=True)
    must_be_clean(compare_runs(report, report), with_page=True)
    report.facts.profile.recording.to_frame()


def extreme(chance, line):
    """Return a line of a recording with other values in it, most of them within bounds."""
    values = (0, 1, -1, 2**60, 2**60 + 1, 1e10, 1e-9, 0.5, None, "", "x" * 1000, "\x1b[2J\n::", [])
    try:
        known = json.loads(line)
    except ValueError:
        return line
    if isinstance(known, dict) and known:
        for key in chance.sample(sorted(known), 1):
            known[key] = chance.choice(values)
    return json.dumps(known).encode() + b"\n"


def fuzz_cache(chance, folder):
    question = cache.digest({"a": 1})
    trial = SizeTrial(batch_size=8, outcome="fits", peak_bytes=10, seconds=1.0)
    known = Tuning(batch_size=8, peak_bytes=10, budget_bytes=20, target_bytes=19, trials=(trial,))
    os.environ["XDG_CACHE_HOME"] = str(folder)
    cache.keep(question, known)
    path = _kept.folder("tune") / f"{question}.json"
    entry = json.loads(path.read_bytes())
    place = chance.choice((entry, entry["tuning"], entry["tuning"]["trials"][0]))
    values = (0, -1, 2**70, 1e400, None, "", "\x1b[2J", [], {}, True, "fits", 16)
    place[chance.choice((*place, "new"))] = chance.choice(values)
    raw = msgspec.json.encode(entry)
    path.write_bytes(raw if chance.random() < 0.6 else mutated(chance, raw))
    found = cache.find(question, accepts=lambda tuning: tuning.batch_size <= 8)
    assert found is None or (found.batch_size == 8 and found.target_bytes <= found.budget_bytes)


TARGETS = [fuzz_log, fuzz_notebook, fuzz_redaction, fuzz_recording, fuzz_cache]


def run(target, seed, folder):
    started = time.perf_counter()
    try:
        target(random.Random(seed), folder)
    except Exception as error:
        raise AssertionError(f"seed {seed!r} of {target.__name__}") from error
    assert time.perf_counter() - started < LONGEST_SECONDS, f"seed {seed!r} of {target.__name__}"


@pytest.fixture(autouse=True)
def own_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_a_few_seeds(target, tmp_path):
    for seed in range(SHORT):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(target, seed, folder)


@pytest.mark.heavy
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_a_minute_of_seeds(target, tmp_path):
    until = time.monotonic() + MINUTE
    first = time.time_ns()
    for number in itertools.count():
        folder = tmp_path / str(number % 4)
        folder.mkdir(exist_ok=True)
        run(target, first + number, folder)
        for path in folder.rglob("*.jsonl"):
            path.unlink()
        if time.monotonic() > until:
            print(f"{target.__name__}: {number + 1:,} inputs")
            return
