import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest


@pytest.fixture
def project(tmp_path):
    (tmp_path / "repo" / "deep" / "data").mkdir(parents=True)
    np.save(tmp_path / "repo" / "deep" / "data" / "x.npy", np.zeros((100, 100)))
    (tmp_path / "repo" / "deep" / "oomdoctor.toml").write_text('ram = "650MiB"\n')
    return tmp_path / "repo" / "deep"


def check(project, *args, **environ):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", "check", "data", "--ram", "1MiB", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
        env={**os.environ, **environ},
    )


def test_places_are_relative_to_the_checkout_that_ci_names(project):
    result = check(project, "--format", "gitlab", CI_PROJECT_DIR=str(project.parent))
    assert result.returncode == 1
    assert {e["location"]["path"] for e in json.loads(result.stdout)} == {"deep/oomdoctor.toml"}
    result = check(project, "--format", "gitlab", CI_PROJECT_DIR="/elsewhere")
    assert {e["location"]["path"] for e in json.loads(result.stdout)} == {"oomdoctor.toml"}


def test_one_run_writes_several_formats(project):
    result = check(
        project, "--format", "github", "--also", "sarif=a.sarif", "--also", "junit=a.xml"
    )
    assert result.stdout.startswith("::error file=oomdoctor.toml,line=1,")
    assert result.stderr.count("\n") == 1  # which configuration was used
    assert "oomdoctor.toml" in result.stderr
    results = json.loads((project / "a.sarif").read_text())["runs"][0]["results"]
    root = ElementTree.fromstring((project / "a.xml").read_bytes())
    errors = [result for result in results if result["level"] == "error"]
    assert len(errors) == int(root.get("failures")) > 0


@pytest.mark.parametrize("also", ["sarif", "pdf=x", "sarif="])
def test_a_wrong_pair_of_format_and_file_says_what_is_right(project, also):
    result = check(project, "--also", also)
    assert result.returncode == 2
    assert "is not FORMAT=FILE" in result.stderr


def test_a_rule_of_the_team_brings_its_own_help(project):
    source = os.path.join(os.path.dirname(__file__), "../../rules/input/float64-arrays.toml")
    with open(source, encoding="utf-8") as file:
        rule = file.read().replace("OD106", "TEAM101").replace("float64-arrays", "our-arrays")
    (project / "ours" / "input").mkdir(parents=True)
    (project / "ours" / "input" / "our-arrays.toml").write_text(rule)
    result = check(project, "--rules", "ours", "--select", "TEAM101", "--format", "sarif")
    assert result.returncode in (0, 1), result.stderr
    driver = json.loads(result.stdout)["runs"][0]["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == ["TEAM101"]
    assert "our-arrays" in driver["rules"][0]["help"]["markdown"]


def test_a_file_that_is_named_like_a_page_is_one_unless_another_format_is_asked_for(project):
    check(project, "--output", "report.html")
    assert (project / "report.html").read_text().startswith("<!DOCTYPE html>")
    check(project, "--output", "plain.html", "--format", "text")
    assert (project / "plain.html").read_text().startswith("✗")
    check(project, "--format", "gitlab", "--also", "html=also.html")
    assert (project / "also.html").read_text().startswith("<!DOCTYPE html>")
