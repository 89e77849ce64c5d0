"""`oomdoctor check` on scripts, alone and beside data."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import oomdoctor
from oomdoctor.findings import Outcome

SCRIPTS = Path(__file__).parent.parent.parent / "fixtures" / "scripts"
SCHEMA = Path(oomdoctor.__file__).parent / "report" / "schema.json"
CACHE = """\
import tensorflow as tf
ds = tf.data.Dataset.from_generator(make, output_types=tf.float32)
ds = ds.cache().batch(32)
"""


def run(*args, cwd=None):
    command = [sys.executable, "-m", "oomdoctor", "check", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def fired(report):
    return {
        finding.rule: finding for finding in report.findings if finding.outcome is Outcome.FIRED
    }


def test_the_text_tells_where_and_what_and_what_to_write():
    result = run(SCRIPTS / "sequence_naive.py")

    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert lines[0] == "✗ 1 memory mistake and 1 hint in 1 script."
    assert f"✗ {SCRIPTS / 'sequence_naive.py'}:20:16 OD901" in lines
    assert "1. Give the dataset itself to `fit` [OD901]" in lines
    assert "     model.fit(dataset)" in lines
    short = [line for line in lines if str(SCRIPTS) not in line]
    assert max(map(len, short)) <= 80


def test_a_clean_script_exits_with_0():
    result = run(SCRIPTS / "sequence_corrected.py")

    assert (result.returncode, result.stdout) == (0, "✓ No memory mistakes found in 1 script.\n")


def test_a_script_that_is_not_python_is_not_called_clean(tmp_path):
    broken, clean = tmp_path / "broken.py", tmp_path / "clean.py"
    broken.write_text("import tensorflow as tf\ndef f(:\n")
    clean.write_text("import tensorflow as tf\n")

    alone, both = run(broken).stdout.splitlines(), run(broken, clean).stdout.splitlines()

    assert alone[0] == "? 1 script could not be checked."
    assert both[0] == "? No memory mistakes found in 2 scripts; 1 could not be checked."
    assert any("line 2" in line for line in alone)


def test_the_json_has_the_place_and_obeys_the_schema():
    result = run(SCRIPTS / "generator_naive.py", "--format", "json", "--fail-on", "info")

    report = json.loads(result.stdout)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    places = {f["rule"]: f["location"] for f in report["findings"] if f["outcome"] == "fired"}
    path = str(SCRIPTS / "generator_naive.py")
    assert result.returncode == 1
    assert places["OD906"] == {"file": path, "line": 10, "column": 11, "cell": None}
    assert report["scripts"] == {"files": 1, "lines": 16, "unchecked": 0, "notes": []}
    assert report["inventory"] is None


@pytest.mark.parametrize("format_", ["markdown", "sarif", "github", "gitlab", "junit"])
def test_other_formats_name_the_file_and_the_rule(format_):
    result = run("sequence_naive.py", "--format", format_, cwd=SCRIPTS)

    assert result.returncode == 1
    assert "OD901" in result.stdout
    assert "sequence" in result.stdout


def test_rules_can_be_selected_and_ignored():
    path = SCRIPTS / "generator_naive.py"

    assert set(fired(oomdoctor.check(path, select=["OD906"]))) == {"OD906"}
    assert set(fired(oomdoctor.check(path, ignore=["OD906"]))) == {"OD907", "OD908"}
    worse = oomdoctor.check(path, severities={"OD906": "error"})
    assert fired(worse)["OD906"].severity.value == "error"


def test_comments_suppress_one_rule_or_all_and_are_told_of_as_skipped(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "import tensorflow as tf\n"
        "a = tf.data.TFRecordDataset('a').batch(2).cache()  # oomdoctor: ignore[OD904]\n"
        "b = tf.data.TFRecordDataset('a').batch(2).cache()  # oomdoctor: ignore\n"
        "c = tf.data.TFRecordDataset('a').batch(2).cache()  # oomdoctor: ignore[OD905]\n"
        "d = (\n"
        "    tf.data.TFRecordDataset('a')\n"
        "    .batch(2)\n"
        "    .cache()  # oomdoctor: ignore[cache-of-batches]\n"
        ")\n"
    )

    findings = [f for f in oomdoctor.check(path).findings if f.rule == "OD904"]

    outcomes = {finding.location.line: finding.outcome.value for finding in findings}
    assert outcomes == {2: "skipped", 3: "skipped", 4: "fired", 8: "skipped"}


def test_what_the_data_takes_decides_about_a_cache(tmp_path):
    script, small, large = tmp_path / "train.py", tmp_path / "small", tmp_path / "large"
    script.write_text(CACHE)
    for folder, samples in ((small, 10), (large, 1000)):
        folder.mkdir()
        np.save(folder / "x.npy", np.zeros((samples, 100, 100), np.float32))

    def severity(*paths):
        report = oomdoctor.check([script, *paths], ram="40MiB", load="stream")
        found = fired(report).get("OD903")
        return found and found.severity.value

    assert severity() == "info"
    assert severity(small) is None
    assert severity(large) == "warning"


def test_data_and_scripts_are_told_of_together(tmp_path):
    (tmp_path / "train.py").write_text(CACHE)
    np.save(tmp_path / "x.npy", np.zeros((10, 4), np.float32))

    report = oomdoctor.check(tmp_path, ram="8GiB")

    assert report.verdict == "fits"
    assert report.facts.scripts.files == 1
    assert "Code" in repr(report)
    assert {"OD101", "OD903"} <= {finding.rule for finding in report.findings}


def test_texts_beside_scripts_are_no_dataset(tmp_path):
    (tmp_path / "train.py").write_text(CACHE)
    (tmp_path / "requirements.txt").write_text("tensorflow\n")

    report = oomdoctor.check(tmp_path)

    assert report.facts.inventory is None
    assert set(fired(report)) == {"OD903"}


def test_a_folder_of_data_without_scripts_says_nothing_of_code(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((10, 4), np.float32))

    report = oomdoctor.check(tmp_path)

    assert report.facts.scripts is None
    assert not [finding for finding in report.findings if finding.rule.startswith("OD9")]


def test_a_script_that_is_not_there_is_one_sentence():
    result = run("nowhere.py")

    assert result.returncode == 2
    assert result.stderr == "oomdoctor: nowhere.py does not exist: give a script, or a folder.\n"


def test_a_name_that_would_move_the_cursor_is_escaped(tmp_path):
    path = tmp_path / "a\x1b[2Jb.py"
    path.write_text(CACHE)

    assert "\x1b" not in run(path).stdout


def test_the_diff_is_shown_and_nothing_is_written(tmp_path):
    pytest.importorskip("libcst")
    path = tmp_path / "train.py"
    text = "import keras\nmodel.fit_generator(batches)  # slow\n"
    path.write_text(text)

    result = run("train.py", "--diff", cwd=tmp_path)

    assert result.returncode == 1
    assert "--- a/train.py\n+++ b/train.py\n" in result.stdout
    assert "+model.fit(batches)  # slow\n" in result.stdout
    assert path.read_text() == text


def test_fix_writes_the_change_and_tells_what_is_left(tmp_path):
    pytest.importorskip("libcst")
    path = tmp_path / "train.py"
    path.write_text(CACHE + "model.fit_generator(batches)  # slow\n")

    result = run("train.py", "--fix", cwd=tmp_path)
    again = run("train.py", "--diff", cwd=tmp_path)

    assert path.read_text() == CACHE + "model.fit(batches)  # slow\n"
    assert "changed 1 place in 1 script" in result.stderr
    assert result.stdout.startswith("· 1 hint in 1 script.")
    assert (again.returncode, again.stdout) == (0, "")


def test_a_finding_that_is_ignored_is_not_changed(tmp_path):
    pytest.importorskip("libcst")
    (tmp_path / "train.py").write_text("import keras\nmodel.fit_generator(batches)\n")

    result = run("train.py", "--diff", "--ignore", "OD912", cwd=tmp_path)

    assert (result.returncode, result.stdout) == (0, "")
