"""Every rule about code: its example has one such place and no other mistake, and the code to use
instead has none."""

import pytest

from oomdoctor.advise.cases import case_values, filled_codes
from oomdoctor.advise.evaluate import judge_code
from oomdoctor.advise.load import read_folder, rules_folder
from oomdoctor.findings import Outcome
from oomdoctor.scripts.examples import CHECKS, example_problems
from oomdoctor.scripts.scan import check_source

RULES = [rule for rule in read_folder(rules_folder())[0] if rule.file.check is not None]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.id}-{rule.name}")


def fired_in(source, facts):
    """Return the rules that fire in some source, given what is known besides."""
    matches = check_source(source)
    findings = [finding for rule in RULES for finding in judge_code(rule, matches, facts)]
    return [finding for finding in findings if finding.outcome is Outcome.FIRED]


def besides(rule):
    """Return what the first case of a rule knows that is not about code."""
    facts = case_values(rule.file.cases[0])
    return {name: None if name.startswith("code.") else value for name, value in facts.items()}


@every_rule
def test_the_example_has_this_mistake_once_and_no_other(rule):
    findings = fired_in(rule.file.example, besides(rule))

    assert [finding.rule for finding in findings] == [rule.id]
    assert findings[0].location.line > 0


@every_rule
def test_the_code_to_use_instead_has_no_mistake(rule):
    for code in filled_codes(rule):
        assert fired_in(code, besides(rule)) == []


@every_rule
def test_the_example_says_what_it_found_in_its_message(rule):
    (finding,) = fired_in(rule.file.example, besides(rule))

    assert "unknown" not in finding.message
    assert finding.fix.code


def test_each_check_has_one_rule():
    checks = [rule.file.check for rule in RULES]

    assert sorted(checks) == sorted(CHECKS)
    assert all(rule.file.check == rule.name for rule in RULES)


def test_a_teams_rule_is_told_what_is_wrong_with_its_code():
    list_ = "import tensorflow as tf\nx = list(tf.data.TFRecordDataset('a'))\n"

    assert example_problems("dataset-held-in-list", list_, ["x = 1"]) == []
    assert example_problems("dataset-held-in-list", "x = 1", []) == [
        "dataset-held-in-list finds nothing in example."
    ]
    assert example_problems("dataset-held-in-list", list_, [list_, "def ("]) == [
        "dataset-held-in-list finds its mistake in use_instead as well."
    ]
