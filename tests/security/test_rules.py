"""A rule is data: what a stranger's rule may hold, cost and do."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from oomdoctor._toml import MAX_PARTS, read_toml
from oomdoctor.advise.cases import problems
from oomdoctor.advise.load import MAX_ENTRIES, read_folder, read_rule
from oomdoctor.advise.page import render_page
from oomdoctor.errors import InputError, RuleError

RULE = """\
id = "TEAM001"
name = "too-many-samples"
family = "input"
severity = "error"
since = "0.1.0"
summary = "Too many samples."
when = "data.samples > 0"
message = "Has {data.samples}."
resource = "ram"
remedy = "subset"
fix_title = "Take fewer"
why = "Because."
example = "x = 1"
use_instead = "x = {data.samples}"
speed = "none"
effort = "one line"
accuracy = "none"
whole_dataset = true
limits = "none"
does_not_fix = "nothing"
references = []
"""
CASE = '[[cases]]\noutcome = "fired"\nfacts.data.samples = 3\n'


def changed(**keys):
    text = RULE
    for key, value in keys.items():
        text = re.sub(rf"^{key} = .*$", lambda _, k=key, v=value: f"{k} = {v}", text, flags=re.M)
    return text


def write(folder, text):
    path = folder / "too-many-samples.toml"
    path.write_text(text)
    return path


def run(folder, *args):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
    )


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 30_000) + " = 1",
        "[" + ".".join(["a"] * 30_000) + "]",
        "[[" + " . ".join(["a"] * 15_000) + "]]",
        ".".join(["'a'"] * 15_000) + " = 1",
        ".".join(['"x\\"y"'] * 9_000) + " = 1",
        'x = ["""a"b""", {' + ".".join(["a"] * 30_000) + " = 1}]",
        "x = '''\n'\n'''\n" + ".".join(["a"] * 30_000) + " = 1",
        'x = """\\\\"""\n' + ".".join(["a"] * 30_000) + " = 1",
        "x = 1 # '''\n" + ".".join(["a"] * 30_000) + " = 1",
    ],
)
def test_a_key_of_thousands_of_parts_is_refused_before_it_is_read(tmp_path, text):
    with pytest.raises(RuleError, match=f"a key has more than {MAX_PARTS} parts"):
        read_rule(write(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * MAX_PARTS) + " = 1",
        'x = "' + "a. " * 200 + '"',
        "x = '" + "1.2.3." * 200 + "'",
        'x = """\n' + "Words and more words. " * 200 + '\n"""',
        'x = """\n' + "a." * 200 + '\n"""',
        "# " + "a." * 200,
        "x = [" + "0.5, " * 200 + "]",
    ],
)
def test_dots_that_are_no_key_are_not_counted(text):
    assert isinstance(read_toml(text), dict)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = " + "[" * 30_000, "nested too deep"),
        ("x = " + "{a=" * 10_000, "nested too deep"),
        ("x = " + "[" * 100 + "]" * 100, "nested too deep"),
        (".".join(["a"] * 30) + " = {" + ".".join(["a"] * 30) + " = {b.c.d.e.f=1}}", "too deep"),
        ("x = " + "9" * 60_000, "a number is too large"),
        ("x = 0x" + "f" * 60_000, "a number is too large"),
        ("x = " + "1_" * 30_000 + "1", "a number is too large"),
    ],
)
def test_what_nobody_would_write_is_refused(tmp_path, text, says):
    with pytest.raises(RuleError, match=says):
        read_rule(write(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        RULE + "\n" * 60_000 + "unknwon = 1",
        RULE.replace('"error"', '"fatal"') + "\n" * 60_000,
        "\n" * 60_000 + changed(severity='"fatal"'),
        changed(use_instead='"' + "{?data.root}" * 5000 + 'x"'),
        changed(message='"' + "{data.samples}" * 4000 + '"'),
        changed(message='"' + "{data" * 12_000 + '"'),
        changed(example='"' + "`" * 60_000 + '"') + CASE,
        changed(example='"' + "(" * 60_000 + '"') + CASE,
        changed(example='"' + "-" * 60_000 + '1"') + CASE,
        RULE + CASE * 1100,
        RULE + CASE.replace("data.samples", "dat.sampls") * 1100,
        RULE + '[[variants]]\nwhen="data.samples>9"\nuse_instead="x"\n' * 500 + CASE * 500,
        RULE + "[computed]\n" + "".join(f'c{n}="data.samples+1"\n' for n in range(1400)),
        changed(when='"' + "(" * 1990 + '"'),
        changed(when='"' + "(True if " * 30 + "data.samples>1" + " else True)" * 30 + '"') + CASE,
    ],
    ids=range(15),
)
def test_the_dearest_rules_of_64_kib_are_dealt_with_at_once(tmp_path, text):
    # Each took seconds to minutes in some version; the limit is one that only a hang reaches.
    write(tmp_path, text)
    for args in (("--validate", "."), ("TEAM001", "--rules", ".")):
        done = run(tmp_path, "rules", *args)
        assert done.returncode in (0, 1, 2)
        assert "internal error" not in done.stderr
        assert len(done.stderr) < 5000


def test_a_rule_whose_cases_are_wrong_still_has_a_page(tmp_path):
    rule = read_rule(write(tmp_path, RULE + CASE.replace("data.samples", "dat.sampls")))
    assert "# TEAM001" in render_page(rule)
    assert any("dat.sampls is not a fact" in problem for problem in problems(rule))
    write(tmp_path, RULE + CASE.replace("= 3", '= "3 lots"'))
    assert run(tmp_path, "rules", "TEAM001", "--rules", ".").returncode == 0


def test_a_folder_of_too_many_files_is_refused_without_listing_it_all(tmp_path):
    for number in range(MAX_ENTRIES + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(InputError, match="no folder of rules"):
        read_folder(tmp_path)


def test_a_rule_takes_the_place_of_none_of_the_catalogue(tmp_path):
    write(tmp_path, changed(id='"OD101"'))
    done = run(tmp_path, "rules", "--rules", ".")
    assert done.returncode == 2
    assert "OD101 is taken by" in done.stderr


@pytest.mark.parametrize("key", ["when", "unless", "worse_when", "saves", "fits"])
@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('touch mark')",
        "().__class__.__bases__[0].__subclasses__()",
        "data.samples.__class__",
        "(lambda: 0)()",
        "[x for x in (1, 2)]",
        "9 ** 9 ** 9",
        "'a' * 9999999",
        "f'{data.samples}'",
        "open('mark', 'w')",
    ],
)
def test_an_expression_runs_nothing(tmp_path, key, expression):
    text = RULE + CASE
    line = f"{key} = {json.dumps(expression)}\n"
    text = changed(when=json.dumps(expression)) if key == "when" else line + text
    with pytest.raises(RuleError):
        read_rule(write(tmp_path, text))
    assert os.listdir(tmp_path) == ["too-many-samples.toml"]


def test_code_of_a_rule_is_shown_and_never_run_or_written(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    np.save(data / "x.npy", np.zeros((10, 10)))
    (tmp_path / "rules").mkdir()
    evil = "open({}, 'w')".format(json.dumps(str(tmp_path / "mark")).replace('"', "'"))
    write(
        tmp_path / "rules", changed(use_instead=json.dumps(evil), example=json.dumps(evil)) + CASE
    )
    before = sorted(tmp_path.rglob("*"))
    for args in (
        ("check", "data", "--rules", "rules", "-v"),
        ("check", "data", "--rules", "rules", "--fix"),
        ("check", "data", "--rules", "rules", "--format", "sarif"),
        ("rules", "--validate", "rules"),
        ("rules", "TEAM001", "--rules", "rules"),
    ):
        assert "internal error" not in run(tmp_path, *args).stderr
    assert sorted(tmp_path.rglob("*")) == before
