"""Whatever rules, configurations, baselines and command lines hold: one sentence, harmless, soon.

Each target takes mutants of good input. A few hundred are tried in every run of the tests, and a
minute's worth with `-m heavy`.
"""

import contextlib
import io
import json
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import oomdoctor
from oomdoctor import cli
from oomdoctor.advise.cases import problems
from oomdoctor.advise.evaluate import advise
from oomdoctor.advise.load import read_rule
from oomdoctor.advise.page import render_page
from oomdoctor.cli.output import show
from oomdoctor.errors import OomDoctorError
from oomdoctor.findings import Report

REPOSITORY = Path(__file__).parents[2]
RULES = sorted((REPOSITORY / "rules").glob("*/*.toml"))
FORMATS = ("text", "json", "html", "markdown", "sarif", "junit", "github", "gitlab")
TRIGGERS = re.compile(r"^\s*::(?!(?:error|warning|notice) file=)|##[\w-]*\[", re.MULTILINE)
HANG_SECONDS = 120
"""Generous: this machine may be busy. Only what hangs takes so long."""

FEW = 150
MINUTE = 60

CONFIG = b"""\
machine = ["colab-t4", "rtx3060-laptop"]
ram = "8GiB"
fail-on = "error"
select = ["OD1", "OD2"]
ignore = "OD101"
tolerance = "5%"
batch_size = 16
image-size = "16x16x3"
dtype = "float32"
load = "auto"
sample = 10
replicas = 2
purpose = "train"
verbose = true
format = "text"
rules = ["team"]
baseline = "b.json"
scripts = ["src"]
[severity]
OD102 = "warning"
[[models]]
model = "mypackage.models:build"
batch-size = [32, 64]
input-size = "8x8x3"
kind = "predict"
jit = true
[[datasets]]
path = ["data"]
load = "stream"
image-size = "150x150x3"
dtype = "uint8"
sample = 3
"""

BASELINE = json.dumps(
    {
        "tool": "oomdoctor",
        "version": 1,
        "peaks": [
            {"subject": "m, batch 32", "peak_bytes": 10**9, "threads": 2, "layers": {"a": 5}}
        ],
        "findings": [
            {"fingerprint": "0" * 32, "rule": "OD101", "subject": "data", "target": "colab-t4"}
        ],
    },
    indent=1,
).encode()

WORDS = (
    *(b"\n", b"\r", b"\0", b"\x1b[2J", b"\xff", b"\xed\xa0\x80", b"\xe2\x80\xae", b"\xc2\x85"),
    *(b'"', b"'", b'"""', b"'''", b"\\", b"\\u0000", b"\\ud800", b"{", b"}", b"{{", b"[", b"]"),
    *(b"[[", b"]]", b".", b"=", b"#", b",", b"-", b"_", b"0x", b"9" * 30, b"9" * 5000, b"1e999"),
    *(b"nan", b"inf", b"true", b"null", b"1979-05-27", b"07:32:00", b"../", b"/", b"~", b"a.b.c"),
    *(b"::error::x", b"\n::error::x", b"##[error]x", b"{data.samples}", b"{?data.root}", b"{0}"),
    *(b"{data.root|x}", b" and ", b" or ", b" not ", b" if ", b" else ", b" in ", b"(", b")"),
    *(b"data.samples", b"machine.gpu_count", b"__import__('os')", b"/ 0", b"% 0", b"* 9e300"),
    *(b"[[cases]]\n", b"[computed]\n", b"[[variants]]\n", b'check = "cache-in-ram"\n', b"KiB"),
)


def mutant(chance, seed):
    """Return a good input with a few things wrong."""
    raw = bytearray(seed)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(raw) + 1)
        end = min(len(raw), at + chance.choice((0, 0, 1, 4, 64)))
        kind = chance.randrange(6)
        if kind == 0:
            raw[at:end] = b""
        elif kind == 1:
            raw[at:end] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 5)))
        elif kind == 2:
            raw[at:end] = raw[at : at + 200] * chance.choice((2, 3, 50))
        elif kind == 3:
            raw[at:end] = chance.choice(WORDS) * chance.choice((1, 1, 2, 1000))
        elif kind == 4:
            lines = raw.split(b"\n")
            chance.shuffle(lines)
            raw = bytearray(b"\n".join(lines))
        else:  # a value of another kind in the place of one
            values = list(re.finditer(rb"(?<=[=:] )[^\n,]+", raw))
            if values:
                start, stop = chance.choice(values).span()
                raw[start:stop] = chance.choice(WORDS)
    return bytes(raw[:70_000])


@contextlib.contextmanager
def no_hang(what):
    def stop(*_):
        raise AssertionError(f"hangs: {what!r:.2000}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def assert_harmless(text):
    odd = [char for char in text if not char.isprintable() and char not in "\n\t"]
    assert not odd, odd
    assert not TRIGGERS.search(text), text[:2000]


def run_main(*args):
    """Run the command line in this process, and return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(args)
        except SystemExit as end:
            code = end.code
    said = err.getvalue()
    assert code in (0, 1, 2), said
    assert "internal error" not in said, (args, said)
    assert code != 2 or said.strip()
    assert len(said) < 20_000
    assert_harmless(said)
    assert_harmless(out.getvalue())


class Rules:
    """A rule file that is read, validated, printed as a page, run, and rendered."""

    def __init__(self, folder):
        self.facts = oomdoctor.check(folder / "data", machine="colab-t4").facts
        self.folder = folder / "team"

    def __call__(self, chance):
        seed = chance.choice(RULES)
        path = self.folder / seed.name
        path.write_bytes(mutant(chance, seed.read_bytes()))
        try:
            rule = read_rule(path)
        except OomDoctorError as error:
            said = str(error)
        else:
            said = self.used(rule, chance)
        finally:
            path.unlink()
        assert len(said) < 5000

    def used(self, rule, chance):
        render_page(rule)
        findings = advise(self.facts, [rule])
        report = Report(command="check", verdict="fits", facts=self.facts, findings=findings)
        format_ = chance.choice(FORMATS)
        show(report, format_=format_, output=str(self.folder / "out"), verbose=True)
        assert_harmless((self.folder / "out").read_text())
        return max(problems(rule), key=len, default="")


class Configurations:
    """A configuration in the folder that a gate runs in; models alone are left out."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, chance):
        raw = mutant(chance, CONFIG)
        name = "oomdoctor.toml"
        if chance.random() < 0.3:
            name = "pyproject.toml"
            raw = mutant(
                chance, b"[tool.oomdoctor]\n" + CONFIG.replace(b"[[", b"[[tool.oomdoctor.")
            )
        path = self.folder / name
        path.write_bytes(raw)
        before = sorted(self.folder.rglob("*"))
        try:
            run_main("check", "--no-models", *chance.choice(((), ("data",))))
        finally:
            path.unlink()
        assert sorted(self.folder.rglob("*")) == [p for p in before if p != path]


class Baselines:
    """A baseline that is compared with, or recorded again."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, chance):
        (self.folder / "b.json").write_bytes(mutant(chance, BASELINE))
        more = chance.choice(((), (), ("--update-baseline",)))
        run_main("check", "data", "--machine", "colab-t4", "--baseline", "b.json", *more)
        assert not list(self.folder.glob(".*.part"))


OPTIONS = {
    "check": "machine ram vram image-size dtype batch-size sample replicas load select ignore "
    "rules severity fail-on baseline tolerance also output format config purpose",
    "diagnose": "batch-size machine ram select rules config",
    "probe": "machine ram vram format output",
    "rules": "rules validate format output",
    "estimate": "batch-size input-size kind machine tolerance",
}
GIVEN = {"check": "data", "diagnose": "log", "estimate": "missing.keras"}


class CommandLines:
    """Words where others are expected. Nothing is run or written by these options."""

    def __init__(self, folder):
        (folder / "log").write_text("OOM when allocating tensor with shape[64,64]\n")
        (folder / "loop").symlink_to(folder / "loop")
        (folder / "empty").mkdir()
        self.words = (
            *("", "-", "--", ".", "data", "log", "loop", "empty", "b.json", "team", "/dev/null"),
            *("missing/x", "\udcff", "x" * 5000, "a/" * 3000, "9" * 5000, "9" * 300, "9" * 18),
            *("-1", "0", "1e999", "nan", "0x10", "١٢", "²", "9" * 30 + "TiB", "2.7GiB", "colab-t5"),
            *("OD101=", "=", "sarif=", "text=empty", "json=missing/y", "²x²", "9" * 18 + "x1x1"),
            *("5%", "nan%", "\n::error::", "\x1b[2J", "##[error]", "mod:fn", ":", "*", "float32"),
            *("a\0b", "\ud800", "all", "150x150x3", "OD1", "text", "info", "colab-t4"),
        )

    def __call__(self, chance):
        command = chance.choice(tuple(OPTIONS))
        args = [command]
        for _ in range(chance.randrange(1, 4)):
            option = chance.choice(OPTIONS[command].split())
            args += [f"--{option}", chance.choice(self.words)]
        if command in GIVEN:
            args.append(GIVEN[command])
        run_main(*args)


TARGETS = (Rules, Configurations, Baselines, CommandLines)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.zeros((100, 10)))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import tensorflow as tf\n")
    (tmp_path / "team").mkdir()
    (tmp_path / "b.json").write_bytes(BASELINE)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", TARGETS)
def test_a_few_mutants_are_survived(target, folder):
    attack = target(folder)
    chance = random.Random(target.__name__)
    for number in range(FEW):
        with no_hang(number):
            attack(chance)


@pytest.mark.heavy
@pytest.mark.parametrize("target", TARGETS)
def test_a_minute_of_mutants_is_survived(target, folder):
    attack = target(folder)
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    end = time.monotonic() + MINUTE
    tried = 0
    while time.monotonic() < end:
        with no_hang((seed, tried)):
            attack(chance)
        tried += 1
    print(f"{target.__name__}: {tried} mutants from seed {seed}")
