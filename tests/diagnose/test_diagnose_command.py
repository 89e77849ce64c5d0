"""`oomdoctor diagnose`, as people run it."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import oomdoctor
import oomdoctor.report

SCHEMA = json.loads((Path(oomdoctor.report.__file__).parent / "schema.json").read_text())
LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def run(*args, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", "diagnose", *map(str, args)],
        capture_output=True,
        text=True,
        input=stdin,
        check=False,
    )


def test_a_crash_is_told_with_its_lines_and_remedies():
    finished = run(LOGS / "tf_keras_fit.log")
    assert finished.returncode == 1
    assert finished.stdout.startswith("✗ ")
    assert "line " in finished.stdout
    assert "What to change" in finished.stdout
    assert finished.stdout.count("\n1. ") == 1
    assert "\n4. " not in finished.stdout


def test_a_healthy_log_has_the_exit_code_0():
    finished = run(LOGS / "tf_healthy.log")
    assert finished.returncode == 0
    assert finished.stdout.startswith("✓ ")


def test_another_failure_has_the_exit_code_0_and_a_question_mark():
    finished = run(LOGS / "tf_wrong_shape.log")
    assert finished.returncode == 0
    assert finished.stdout.startswith("? Not a memory problem")


@pytest.mark.parametrize("path", sorted(LOGS.glob("tf_*.log")), ids=lambda path: path.stem)
def test_the_json_obeys_the_schema(path):
    plain = json.loads(json.dumps(oomdoctor.explain_error(path).to_dict()))
    jsonschema.validate(plain, SCHEMA)
    assert plain["command"] == "diagnose"
    assert plain["diagnosis"]["cause"]


def test_standard_input_is_read():
    finished = run("-", stdin="Epoch 1/5\nKilled\n")
    assert "killed without a traceback" in finished.stdout
    assert run(stdin="Killed\n").returncode == 1


def test_a_log_that_is_not_there_is_exit_code_2_and_one_sentence():
    finished = run("missing.log")
    assert finished.returncode == 2
    assert finished.stderr.count("\n") == 1
    assert "missing.log cannot be read" in finished.stderr


def test_markdown_is_ready_to_paste_and_names_nobody():
    text = "/home/ada/run.sh: line 21:  7915 Killed                  python /home/ada/train.py\n"
    finished = run("-", "--redact", "--format", "markdown", stdin=text)
    assert finished.stdout.startswith("### oomdoctor diagnose\n\n**✗ ")
    assert "ada" not in finished.stdout
    assert "```python" in finished.stdout


def test_the_result_goes_to_a_file(tmp_path):
    out = tmp_path / "report.md"
    assert run(LOGS / "tf_xla.log", "--format", "markdown", "-o", out).stdout == ""
    assert "### oomdoctor diagnose" in out.read_text()


def test_never_failing_is_possible():
    assert run(LOGS / "tf_killed.log", "--fail-on", "never").returncode == 0


def test_the_batch_size_is_taken_into_account():
    plain = json.loads(
        run(LOGS / "tf_keras_fit.log", "--batch-size", 64, "--format", "json").stdout
    )
    assert plain["diagnosis"]["batch_dimension"] == 0
    assert plain["diagnosis"]["fitting_batch"] < 64


def test_the_longest_path_of_a_log_keeps_to_80_columns():
    path = "/".join(["a_folder_of_checkpoints"] * 9)
    finished = run("-", stdin=f"Resource exhausted: {path}; No space left on device\n")
    assert finished.stdout.startswith("? The disk is full, not memory.")
    assert max(map(len, finished.stdout.splitlines())) <= 80


def test_what_was_in_use_is_told_where_nothing_was_asked_for():
    line = "Out of memory: Killed process 7 (python3) total-vm:9000000kB, anon-rss:8388608kB\n"
    assert "In use   8.00 GiB" in run("-", stdin=line).stdout
