"""Every rule about code: its example has one such place and no other mistake, and the code to use
instead has none."""

import pytest

from oomdoctor.advise.cases import case_values, filled_codes
from oomdoctor.advise.evaluate import judge_code
from oomdoctor.advise.load import read_folder, rules_folder
from oomdoctor.findings import Outcome
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

    assert len(checks) == len(set(checks)) >= 20
    assert all(rule.file.check == rule.name for rule in RULES)
