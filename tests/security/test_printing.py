"""What strangers wrote is printed, never obeyed: by no terminal and by no CI system."""

import json
import os
import pty
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from oomdoctor.report.escape import harmless

EVIL = "a\n::error::gotcha\r\x1b[2J\x9b31m\u202e##[error]x ##vso[task.complete]"
"""A name that clears the screen, turns the text around, and speaks to three CI systems."""

TRIGGERS = re.compile(r"^\s*::|##[\w-]*\[", re.MULTILINE)
OURS = re.compile(r"^::(error|warning|notice) file=[^\n]*$", re.MULTILINE)
FORMATS = ("text", "json", "html", "markdown", "sarif", "junit", "github", "gitlab")

RULE = r'''
id = "TEAM001"
name = "too-many-samples"
family = "input"
severity = "error"
since = "0.1.0"
summary = "Too many.\n::error::summary"
when = "data.samples > 0"
message = "Has {data.samples}.\n  ::error::message \u001b[2J ##[error]m"
resource = "ram"
remedy = "subset"
fix_title = "Take fewer\n::error::title"
why = "Because.\n\n::error::why \u001b[2J"
example = "x = 1"
use_instead = """
x = {data.samples}
::error::code
\t ::warning::code \u001b[2J \u0085
# ##[error]code
"""
speed = "none"
effort = "one line"
accuracy = "none"
whole_dataset = true
limits = "\n::error::limits"
does_not_fix = "nothing"
references = []
[[cases]]
outcome = "fired"
facts.data.samples = 3
'''


@pytest.fixture
def project(tmp_path):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.zeros((1000, 10)))
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "too-many-samples.toml").write_text(RULE)
    return tmp_path


def run(*args, cwd, **more):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", *args],
        capture_output=True,
        check=False,
        cwd=cwd,
        encoding="utf-8",
        **more,
    )


def assert_harmless(text, *, commands=False):
    assert all(char.isprintable() or char in "\n\t" for char in text), ascii(text)
    assert not TRIGGERS.search(OURS.sub("", text) if commands else text), text


@pytest.mark.parametrize(
    "args",
    [
        ("check", EVIL),
        ("check", f"{EVIL}.py"),
        ("check", ".", "--machine", EVIL),
        ("check", ".", "--ram", EVIL),
        ("check", ".", "--image-size", EVIL),
        ("check", ".", "--select", EVIL),
        ("check", ".", "--severity", f"{EVIL}=error"),
        ("check", ".", "--severity", EVIL),
        ("check", ".", "--rules", EVIL),
        ("check", ".", "--baseline", EVIL),
        ("check", ".", "--also", EVIL),
        ("check", ".", "--format", EVIL),
        ("check", ".", "--output", f"nowhere/{EVIL}"),
        ("check", ".", f"--{EVIL}"),
        ("check", ".", "--config", EVIL),
        (EVIL,),
        ("estimate", EVIL),
        ("diagnose", EVIL),
        ("rules", EVIL),
        ("rules", "--validate", EVIL),
        ("profile", EVIL),
        ("profile", "--from", EVIL),
        ("profile", "--timeline", EVIL),
    ],
)
def test_what_is_given_on_the_command_line_is_quoted_not_obeyed(project, args):
    done = run(*args, cwd=project)
    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert done.stderr
    assert_harmless(done.stderr)
    assert_harmless(done.stdout)


def test_a_usage_error_is_one_line_below_the_usage(project):
    done = run("check", ".", f"--{EVIL}", cwd=project)
    usage, hint, blank, error = done.stderr.splitlines()
    assert usage == "Usage: oomdoctor check [OPTIONS] [PATH...]"
    assert "-h" in hint
    assert blank == ""
    assert error.startswith("Error: No such option")


@pytest.mark.parametrize(
    "settings",
    [
        f"{json.dumps(EVIL)} = 1",
        f"machine = {json.dumps(EVIL)}",
        f"select = {json.dumps(EVIL)}",
        f"rules = {json.dumps(EVIL)}",
        f"[[datasets]]\npath = 'data'\n{json.dumps(EVIL)} = 1",
        f"[[datasets]]\npath = {json.dumps(EVIL)}",
        f"[[models]]\nmodel = 'a:b'\nkind = {json.dumps(EVIL)}",
        "::error::",
        "a = '\x1b[2J'",
    ],
)
def test_what_a_configuration_says_is_quoted_not_obeyed(project, settings):
    (project / "oomdoctor.toml").write_text(settings)
    done = run("check", cwd=project)
    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert_harmless(done.stderr)


def test_the_folder_s_own_name_is_quoted_not_obeyed(tmp_path):
    folder = tmp_path / EVIL.replace("/", "")
    (folder / "data").mkdir(parents=True)
    np.save(folder / "data" / "x.npy", np.zeros((10, 10)))
    (folder / "oomdoctor.toml").write_text('ram = "8GiB"\ndatasets = ["data"]\n')
    done = run("check", "--update-baseline", "--baseline", "b.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Recorded" in done.stderr
    assert_harmless(done.stderr)
    (folder / "oomdoctor.toml").write_text("nothing = 1")
    assert_harmless(run("check", cwd=folder).stderr)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_a_rule_of_a_stranger_is_escaped_in_every_format(project, format_, verbose):
    args = ("check", "data", "--rules", "rules", "--format", format_, *verbose)
    done = run(*args, "--also", f"{format_}=also.txt", cwd=project)
    assert done.returncode == 1, done.stderr
    assert "TEAM001" in done.stdout
    assert_harmless(done.stdout, commands=format_ == "github")
    assert_harmless((project / "also.txt").read_text(), commands=format_ == "github")
    assert_harmless(done.stderr)


@pytest.mark.parametrize("format_", FORMATS)
def test_names_of_files_are_escaped_in_every_format(tmp_path, format_):
    folder = tmp_path / "data" / EVIL.replace("/", "")
    folder.mkdir(parents=True)
    np.save(folder / "x.npy", np.zeros((10, 10)))
    (folder / "train.py").write_text("import tensorflow as tf\nx = tf.data.Dataset.range(9)\n")
    (folder / "::error::.npy").write_text("no array")
    done = run("check", "data", "--format", format_, "-v", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_harmless(done.stdout, commands=format_ == "github")


def test_a_line_that_is_wrapped_does_not_become_a_command(tmp_path):
    # The text is filled to 80 columns: whichever width the name has, some line would begin with it.
    for width in range(62, 80, 3):
        (tmp_path / f"{'x' * width} ::error::x").mkdir()
        done = run("check", f"{'x' * width} ::error::x", cwd=tmp_path)
        assert_harmless(done.stderr)


def test_the_page_of_a_rule_and_its_validation_are_escaped(project):
    page = run("rules", "TEAM001", "--rules", "rules", cwd=project)
    assert page.returncode == 0, page.stderr
    assert ": :error::why" in page.stdout
    assert_harmless(page.stdout)
    assert_harmless(run("rules", "--rules", "rules", cwd=project).stdout)
    checked = run("rules", "--validate", "rules", cwd=project)
    assert checked.returncode == 1
    assert_harmless(checked.stdout)
    listed = run("rules", "--rules", "rules", "--format", "json", cwd=project)
    assert_harmless(listed.stdout)
    (team,) = [rule for rule in json.loads(listed.stdout)["rules"] if rule["id"] == "TEAM001"]
    assert "\n::error::code\n" in team["use_instead"]  # JSON gives back what was written
    assert "# ##[error]code" in team["use_instead"]


def test_sarif_and_junit_give_back_the_code_that_was_written(project):
    args = ("check", "data", "--rules", "rules", "--select", "TEAM001", "--format", "junit")
    tree = ElementTree.fromstring(run(*args, cwd=project).stdout)
    failure = tree.find(".//failure")
    assert "\n::error::code\n" in failure.text
    assert "# ##[error]code" in failure.text
    assert "\x1b" not in failure.text


def test_a_diff_is_escaped_where_it_is_printed_and_exact_in_a_file(tmp_path):
    pytest.importorskip("libcst")
    script = (
        "import tensorflow as tf\n"
        'text = """\n::error::x\n"""\n'
        'model = tf.keras.models.load_model("m", compile=False)\n'
        "model.fit(x, y, use_multiprocessing=True, workers=2)\n  # \x0c\n"
    )
    (tmp_path / "train.py").write_text(script)
    shown = run("check", "train.py", "--diff", cwd=tmp_path)
    assert_harmless(shown.stdout)
    run("check", "train.py", "--diff", "--output", "x.patch", cwd=tmp_path)
    patch = (tmp_path / "x.patch").read_text()
    if patch:
        assert " ::error::x" in patch


def test_colours_are_ours_alone_on_a_terminal(project):
    leader, follower = pty.openpty()
    environ = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "oomdoctor", "check", "data", "--rules", "rules"],
        cwd=project,
        stdout=follower,
        stderr=follower,
        env={**environ, "TERM": "xterm"},
    )
    os.close(follower)
    said = b""
    try:
        while piece := os.read(leader, 65536):
            said += piece
    except OSError:  # the other side has closed
        pass
    os.close(leader)
    assert process.wait() == 1
    text = said.decode().replace("\r\n", "\n")
    assert "\x1b[1;" in text
    assert_harmless(re.sub(r"\x1b\[[0-9;]*m", "", text))


@pytest.mark.parametrize(
    ("text", "format_", "safe"),
    [
        ("::error::x", "text", ": :error::x"),
        ("::error::x", "github", ": :error::x"),
        ("::error file=a,line=1::x", "github", "::error file=a,line=1::x"),
        (" ::error file=a,line=1::x", "github", " : :error file=a,line=1::x"),
        ("::set-output name=a::x", "github", ": :set-output name=a::x"),
        ("a::b", "text", "a::b"),
        ("### Title", "markdown", "### Title"),
        ("##[a] ###teamcity[b]", "text", "## [a] ### teamcity[b]"),
        ('{"a": "##[x]"}', "json", '{"a": "#\\u0023[x]"}'),
        ("<a>\n  ::b ##[x]\n</a>", "junit", "<a>\n  &#58;:b #&#35;[x]\n</a>"),
        ("a\tb\x1b[0m\x85", "text", "a\tb\\x1b[0m\\x85"),
    ],
)
def test_each_format_escapes_in_its_own_way(text, format_, safe):
    assert harmless(text, format_) == safe


def test_the_page_of_a_recording_holds_no_control_characters(tmp_path):
    script = tmp_path / "a\x1b[2J.py"
    script.write_text("print(1)\n")
    done = run("profile", "--output", "recording", script.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_harmless(done.stderr)
    page = (tmp_path / "recording" / "report.html").read_text()
    assert all(char.isprintable() or char in "\n\t" for char in page)
    assert_harmless((tmp_path / "recording" / "report.txt").read_text())
    assert_harmless((tmp_path / "recording" / "report.json").read_text())
