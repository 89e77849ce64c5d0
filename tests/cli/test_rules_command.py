import json
import shutil

import pytest
from click.testing import CliRunner

from oomdoctor.advise.load import load_rules, rules_folder
from oomdoctor.cli.rules import command
from oomdoctor.errors import InputError, RuleError, UsageError


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def team(tmp_path):
    """A team's folder with one rule, a changed copy of OD601."""
    source = rules_folder() / "runtime" / "gpu-held-by-another-process.toml"
    text = source.read_text().replace("OD601", "TEAM601").replace("gpu-held-by", "card-held-by")
    path = tmp_path / "runtime" / "card-held-by-another-process.toml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def test_without_a_rule_all_are_listed():
    result = run()

    assert result.exit_code == 0
    for rule in load_rules():
        assert rule.id in result.stdout
        assert rule.file.remedy in result.stdout


@pytest.mark.parametrize("word", ["OD101", "od101", "whole-dataset-in-memory"])
def test_a_rule_is_printed_by_id_or_name(word):
    result = run(word)

    assert result.exit_code == 0
    assert result.stdout.startswith("# OD101 whole-dataset-in-memory\n")
    assert "## What it does not fix" in result.stdout


def test_an_unknown_rule_is_an_error_that_names_the_nearest():
    result = run("whole-data-in-memory")

    assert isinstance(result.exception, UsageError)
    assert "Did you mean whole-dataset-in-memory?" in str(result.exception)
    assert result.exception.exit_code == 2


def test_json_holds_the_rules_and_code_that_is_filled_in():
    content = json.loads(run("OD102", "--format", "json").stdout)

    (rule,) = content["rules"]
    assert content["command"] == "rules"
    assert rule["id"] == "OD102"
    assert rule["remedy"] == "keep_dataset_on_cpu"
    assert "batch(32)" in rule["filled_in"][0]


def test_the_page_goes_to_a_file(tmp_path):
    result = run("OD101", "--output", tmp_path / "page.md")

    assert result.stdout == ""
    assert (tmp_path / "page.md").read_text().startswith("# OD101")


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    result = run("OD101", "--output", tmp_path / "none" / "page.md")

    assert isinstance(result.exception, InputError)


def test_a_teams_rules_are_listed_with_the_others(team):
    result = run("--rules", team.parent.parent)

    assert "TEAM601" in result.stdout
    assert "OD101" in result.stdout


def test_a_good_folder_is_valid(team):
    result = run("--validate", team.parent.parent)

    assert result.exit_code == 0
    assert result.stdout == "1 rule(s), no problems.\n"


def test_the_catalogue_is_valid():
    assert run("--validate", rules_folder()).exit_code == 0


def test_every_bad_file_is_printed_and_the_exit_code_is_one(team):
    folder = team.parent.parent
    wrong = team.parent / "wrong-case-here.toml"
    text = team.read_text().replace("TEAM601", "TEAM602").replace(team.stem, wrong.stem)
    wrong.write_text(text.replace('outcome = "passed"', 'outcome = "fired"'))
    shutil.copy(team, folder / "wrong-name.toml")

    result = run("--validate", folder)

    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert "wrong-name.toml:2: name: it must be words" in lines[0]
    assert "wrong-case-here.toml: no case has the outcome passed." in lines[1]
    assert "wrong-case-here.toml: case 2: it gave passed, not fired." in lines[2]
    assert lines[-1] == "3 problem(s) in 3 rule(s)."


def test_an_id_of_the_catalogue_is_taken(team):
    team.write_text(team.read_text().replace("TEAM601", "OD101"))

    result = run("--validate", team.parent.parent, "--format", "json")

    content = json.loads(result.stdout)
    assert result.exit_code == 1
    assert content["valid"] is False
    assert "OD101 is taken by" in content["problems"][0]


def test_a_folder_without_rules_or_that_is_missing_could_not_be_checked(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        result = run("--validate", folder)
        assert isinstance(result.exception, InputError)


def test_a_bad_rule_of_a_team_stops_the_listing(team):
    team.write_text("nonsense")

    result = run("--rules", team.parent.parent)

    assert isinstance(result.exception, RuleError)
    assert "card-held-by-another-process.toml:1: not TOML" in str(result.exception)


def test_the_list_fits_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run().stdout.splitlines()

    assert max(len(line) for line in lines) <= 80
    assert "OD101  whole-dataset-in-memory · error · stream_dataset" in lines
