"""Every rule in `rules/`: its own cases, its code, its page, and the catalogue as a whole."""

import re
from pathlib import Path

import msgspec
import pytest

from oomdoctor.advise.cases import filled_codes, fired, parses, problems
from oomdoctor.advise.load import load_rules, read_folder, read_rule, rules_folder
from oomdoctor.advise.page import render_index, render_page
from oomdoctor.advise.rule import FAMILIES
from oomdoctor.advise.template import render_code
from oomdoctor.advise.vocabulary import FACTS, PURPOSES
from oomdoctor.findings import REMEDIES

CATALOGUE_IS_COMPLETE = True
"""Set once every remedy has a rule; from then on each must keep one."""

WIDEST_LINE = 75
"""Characters of code that 80 columns leave beside the indent of a report."""

ONLY_A_STRING = re.compile(r"""\s*(\w+ = )?"([^"\\]|\\.)*",?""")
"""A line that cannot be broken: a path and nothing else, or the name it gets."""

RULES, ERRORS = read_folder(rules_folder())


def for_each(rules):
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: f"{rule.id}-{rule.name}")


every_rule = for_each(RULES)
every_rule_with_variants = for_each([rule for rule in RULES if rule.variants])


def test_every_file_of_the_catalogue_is_a_rule():
    assert [str(error) for error in ERRORS] == []
    assert len(RULES) >= 6


def test_ids_and_names_are_unique():
    assert len(load_rules()) == len(RULES)


@every_rule
def test_the_short_way_of_reading_a_rule_leaves_out_nothing_but_its_cases(rule):
    short = read_rule(Path(rule.path), thorough=False)

    if rule.file.code_of is None:
        assert short.file == msgspec.structs.replace(rule.file, cases=())


def test_a_rule_shows_the_code_of_the_rule_it_names():
    by_id = {rule.id: rule for rule in RULES}
    named = [rule for rule in RULES if rule.file.code_of is not None]
    assert named
    for rule in named:
        other = by_id[rule.file.code_of]
        assert rule.file.use_instead == other.file.use_instead != ""
        assert rule.file.variants == other.file.variants


def test_a_rule_that_names_no_code_is_refused(tmp_path):
    text = Path(next(rule.path for rule in RULES if rule.file.code_of)).read_text()
    (tmp_path / "little-ram-left.toml").write_text(text)
    rules, errors = read_folder(tmp_path)
    assert rules == []
    assert "code_of" in str(errors[0])


@every_rule
def test_the_rule_gives_the_outcomes_its_cases_name(rule):
    assert problems(rule) == []


@every_rule
def test_the_rule_lies_in_its_family_under_its_own_name(rule):
    path = rules_folder() / rule.file.family / f"{rule.name}.toml"

    assert path.samefile(rule.path)
    assert rule.file.family in FAMILIES
    assert re.fullmatch(r"OD\d{3}", rule.id)


@every_rule
def test_the_code_parses_however_little_is_known(rule):
    codes = [rule.use_instead, *(code for _, code in rule.variants)]

    assert parses(rule.file.example)
    for code in codes:
        assert parses(render_code(code, {})), render_code(code, {})


@every_rule
def test_the_code_survives_a_hostile_path(rule):
    hostile = dict.fromkeys(FACTS, '"); import os #\n\\')
    codes = [rule.use_instead, *(code for _, code in rule.variants)]
    texts = {name for name, fact in FACTS.items() if fact.kind == "text"}

    for code in codes:
        rendered = render_code(code, {name: hostile[name] for name in texts})
        imports = [line for line in rendered.splitlines() if line.strip() == "import os #"]
        assert parses(rendered), rendered
        assert imports == []


@every_rule
def test_no_line_of_code_is_wider_than_a_report_has_room_for(rule):
    templates = [rule.use_instead, *(code for _, code in rule.variants)]
    codes = [rule.file.example, *(finding.fix.code for finding in fired(rule))]
    codes += [render_code(template, {}) for template in templates]

    lines = {line for code in codes for line in code.splitlines()}
    wide = {line for line in lines if len(line) > WIDEST_LINE}
    assert {line for line in wide if not ONLY_A_STRING.fullmatch(line)} == set()


@every_rule
def test_the_first_clause_of_the_speed_fits_into_a_cell_of_a_table(rule):
    clause = re.split(r"[,;:.]", rule.file.speed)[0]

    assert 0 < len(clause) <= 32
    assert clause.count("(") == clause.count(")")


@every_rule
def test_the_page_says_what_the_remedy_does_not_fix_and_leaves_no_placeholder(rule):
    page = render_page(rule)

    assert "## What it does not fix\n\n" + rule.file.does_not_fix.strip() in page
    assert rule.file.limits.strip() in page
    assert not re.search(r"\{[a-z]+\.[a-z_]+[|}]", page)


@every_rule_with_variants
def test_the_page_names_the_condition_of_each_variant_and_the_facts_in_it(rule):
    page = render_page(rule)
    section = page.partition("## Use instead")[2].partition("## What it costs")[0]

    assert section.count("```python\n") == 1 + len(rule.variants)
    for variant, (condition, _) in zip(rule.file.variants, rule.variants, strict=True):
        assert f", where `{' '.join(variant.when.split())}`:\n\n```python\n" in section
        assert all(f"| `{name}` |" in page for name in condition.facts)


def test_the_page_shows_a_variant_with_the_facts_of_the_case_that_asks_for_it():
    (rule,) = (rule for rule in RULES if rule.id == "OD101")
    page = render_page(rule)

    assert "## Use instead\n\n```python\nimport keras\n" in page
    assert 'Or, where `data.format == "hdf5"`:' in page
    table = page.partition('Else, where `data.format == "csv"`:')[2].partition("## ")[0]
    assert '"sales.csv"' in table


def test_code_that_no_case_asks_for_is_shown_with_the_values_it_falls_back_on():
    path = rules_folder() / "input" / "whole-dataset-in-memory.toml"
    main, hdf5, *_ = filled_codes(read_rule(path, thorough=False))

    assert '    "data",\n' in main
    assert 'path = "data.h5"\n' in hdf5


@every_rule
def test_the_message_of_a_case_that_fires_names_no_unknown_number(rule):
    first = fired(rule)[0]

    assert "unknown" not in first.message
    assert "unknown" not in first.fix.title


@every_rule
def test_the_prose_is_short_enough_to_be_read(rule):
    assert len(rule.file.summary) <= 90
    assert len(rule.file.message) <= 250
    assert len(rule.file.why) <= 900
    assert rule.file.summary.endswith(".")
    assert rule.file.does_not_fix.strip()
    assert rule.file.references


@every_rule
def test_conditions_compare_with_what_tensorflow_gets_as_the_verdict_does(rule):
    conditions = [rule.when, rule.fits, rule.saves, *(condition for condition, _ in rule.variants)]

    for condition in conditions:
        assert condition is None or "machine.gpu_free_bytes" not in condition.facts


@every_rule
def test_a_rule_that_relieves_one_memory_reads_facts_about_it(rule):
    about = {
        "ram": "ram|pipeline|data|crash|host|profile",
        "vram": "gpu|vram|step|model|crash|tensor",
    }
    if rule.file.resource == "none" or rule.file.check is not None:
        pytest.skip("it relieves neither, or reads code")

    assert any(re.search(about[rule.file.resource], name) for name in rule.when.facts)


def test_the_index_is_what_the_rule_files_give():
    stored = (rules_folder() / "README.md").read_text(encoding="utf-8")

    assert stored == render_index(RULES), "stale: run `oomdoctor rules --write-index`"


def test_the_index_names_every_fact_and_every_rule():
    index = render_index(RULES)

    assert all(f"| `{name}` |" in index for name in FACTS)
    assert all(f"| {rule.id} | [{rule.name}](" in index for rule in RULES)


@pytest.mark.skipif(not CATALOGUE_IS_COMPLETE, reason="the catalogue is still being written")
def test_every_remedy_has_a_rule():
    missing = set(REMEDIES) - {"none"} - {rule.file.remedy for rule in RULES}

    assert missing == set()


@pytest.mark.skipif(not CATALOGUE_IS_COMPLETE, reason="the catalogue is still being written")
def test_every_purpose_has_a_remedy_of_choice_and_there_are_at_least_thirty_rules():
    assert {purpose for rule in RULES for purpose in rule.file.purposes} == set(PURPOSES)
    assert len(RULES) >= 30
