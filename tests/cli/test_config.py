import json
import subprocess
import sys

import pytest
from PIL import Image


@pytest.fixture
def project(tmp_path):
    (tmp_path / "data").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "data" / "a.png")
    return tmp_path


def check(project, *args):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", "check", "data", "--format", "json", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
    )


def test_pyproject_gives_defaults_and_flags_win(project):
    (project / "pyproject.toml").write_text('[tool.oomdoctor]\nvram = "3GiB"\nbatch_size = 8\n')
    report = json.loads(check(project, "--batch-size", "4").stdout)
    assert report["machine"]["gpus"][0]["free_bytes"] == 3 * 1024**3
    assert report["footprint"]["batch_size"] == 4


def test_own_file_wins_over_pyproject(project):
    (project / "pyproject.toml").write_text("[tool.oomdoctor]\nbatch-size = 8\n")
    (project / "oomdoctor.toml").write_text("batch-size = 16\n")
    assert json.loads(check(project).stdout)["footprint"]["batch_size"] == 16


def test_configuration_above_the_folder_is_found(project):
    (project / "oomdoctor.toml").write_text("batch-size = 16\n")
    (project / "deeper").mkdir()
    (project / "deeper" / "data").symlink_to(project / "data")
    assert json.loads(check(project / "deeper").stdout)["footprint"]["batch_size"] == 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("bacth-size = 8", "Did you mean batch-size?"),
        ("batch-size = ", "is not valid TOML"),
        ('batch-size = "many"', "is not a valid int"),
        ('vram = "lots"', "is not a size"),
        ('machine = "colab-t5"', "colab-t4"),
    ],
)
def test_wrong_configuration_says_what_to_do(project, text, says):
    (project / "oomdoctor.toml").write_text(text)
    result = check(project)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_rules_are_found_relative_to_the_configuration(project):
    (project / "oomdoctor.toml").write_text('rules = ["team"]\n')
    result = check(project)
    assert result.returncode == 2
    assert str(project / "team") in result.stderr


def test_severity_table_changes_the_exit_code(project):
    (project / "oomdoctor.toml").write_text(
        'ram = "100KiB"\nload = "memory"\nselect = ["OD101"]\n[severity]\nOD101 = "warning"\n'
    )
    assert check(project).returncode == 0
    (project / "oomdoctor.toml").write_text('ram = "100KiB"\nload = "memory"\nselect = "OD101"\n')
    assert check(project).returncode == 1


def test_keys_meant_for_another_command_are_no_error(project):
    (project / "oomdoctor.toml").write_text('image-size = "8x8x3"\n')
    (project / "run.log").write_text("Epoch 1/2\n")
    result = subprocess.run(
        [sys.executable, "-m", "oomdoctor", "diagnose", "run.log"],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
    )
    assert result.returncode == 0, result.stderr
