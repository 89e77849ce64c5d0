"""Runs rules over facts and ranks what they find.

What makes the run fit comes first, and among that what suits the purpose. Then the worst, then
what suits the purpose, then bytes saved over effort. Rules that lack a fact say which one and how
to get it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from oomdoctor.advise.expression import Evaluator, ExpressionError
from oomdoctor.advise.flatten import code_values
from oomdoctor.advise.rule import Rule
from oomdoctor.advise.template import Template, render_code, render_text
from oomdoctor.advise.vocabulary import FACTS, PURPOSES, nearest, values
from oomdoctor.errors import RuleError, UsageError
from oomdoctor.facts import CodeMatch, Facts
from oomdoctor.findings import Cost, Finding, Fix, Location, MissingFact, Outcome, Severity

_EFFORT = {"one line": 1, "a few lines": 2, "a rewrite": 4}
_ORDER = (Outcome.FIRED, Outcome.UNKNOWN, Outcome.PASSED, Outcome.SKIPPED)


def advise(
    facts: Facts,
    rules: Iterable[Rule],
    *,
    purpose: str | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    severities: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Return one finding per rule: fired ones first, the best remedy at the top.

    Args:
        facts: What is known about the run.
        rules: The rules to run, from `load_rules`.
        purpose: What the run is for: prototype, train or production.
        select: Ids, beginnings of ids or names of the rules to run, in any case; all when empty.
        ignore: The same, of rules to skip. It wins over `select`.
        severities: Severity by id or name, in place of the rule's own.

    Raises:
        UsageError: A word names no rule, no severity or no purpose.
    """
    rules = tuple(rules)
    if purpose is not None and purpose not in PURPOSES:
        raise UsageError(f"{purpose!r} is not a purpose: use one of {', '.join(PURPOSES)}.")
    wanted, unwanted = _words(select), _words(ignore)
    selected = _named(wanted, rules) if wanted else {rule.id for rule in rules}
    ignored = _named(unwanted, rules)
    given = _severities(severities or {}, rules)
    known = values(facts, purpose=purpose)
    evaluator = Evaluator(known)
    judged = []
    for rule in rules:
        severity = given.get(rule.id, Severity(rule.file.severity))
        if not _concerns(rule, facts):
            continue
        if rule.id not in selected - ignored or _leaves_data_out(rule, purpose):
            findings = [_plain(rule, Outcome.SKIPPED, severity)]
        elif rule.file.check is not None and facts.scripts is not None:
            findings = judge_code(rule, facts.scripts.matches, known, severity=severity)
        else:
            findings = [judge(rule, known, evaluator, severity=severity)]
        judged += [(_rank(finding, rule, purpose), finding) for finding in findings]
    return tuple(finding for _, finding in sorted(judged, key=lambda pair: pair[0]))


def _leaves_data_out(rule: Rule, purpose: str | None) -> bool:
    """Return whether a remedy trains on a part of the data, for a purpose that needs all of it."""
    return purpose is not None and not rule.file.whole_dataset and purpose not in rule.file.purposes


def _concerns(rule: Rule, facts: Facts) -> bool:
    """Return whether a rule is about what was asked about: code, or all the rest."""
    if rule.file.check is not None:
        return facts.scripts is not None
    return facts.scripts is None or facts.inventory is not None


def judge_code(
    rule: Rule,
    matches: Iterable[CodeMatch],
    known: Mapping[str, Any],
    *,
    severity: Severity | None = None,
) -> list[Finding]:
    """Return one finding for each place that a rule's check found, or that it found none."""
    severity = severity or Severity(rule.file.severity)
    findings = []
    for match in matches:
        if match.check != rule.file.check:
            continue
        if {"*", rule.id, rule.name.upper()} & {*match.ignored}:
            finding = _plain(rule, Outcome.SKIPPED, severity)
        else:
            finding = judge(rule, {**known, **code_values(match)}, severity=severity)
        findings.append(replace(finding, location=_location(match)))
    return findings or [_plain(rule, Outcome.PASSED, severity)]


def _location(match: CodeMatch) -> Location:
    return Location(file=match.file, line=match.line, column=match.column, cell=match.cell)


def judge(
    rule: Rule,
    known: Mapping[str, Any],
    evaluator: Evaluator | None = None,
    *,
    severity: Severity | None = None,
) -> Finding:
    """Return what one rule makes of flat facts, as `vocabulary.values` gives them."""
    evaluator = evaluator or Evaluator(known)
    own = Severity(rule.file.severity)
    severity = severity or own
    result = evaluator.run(rule.when)
    if result.value is None:
        return _unknown(rule, severity, result.missing)
    is_well = rule.unless is not None and evaluator.run(rule.unless).value is True
    if result.value is False or is_well:
        return _plain(rule, Outcome.PASSED, severity)
    if rule.worse_when is not None and evaluator.run(rule.worse_when).value is True:
        severity = list(Severity)[max(0, severity.rank - 1)]
    elif (
        severity is own  # else somebody chose another
        and rule.milder_when is not None
        and evaluator.run(rule.milder_when).value is True
    ):
        severity = list(Severity)[min(len(Severity) - 1, severity.rank + 1)]
    try:
        return _fired(rule, severity, known, evaluator)
    except ExpressionError as error:
        # Only a rule of the catalogue that was edited where it is installed gets this far.
        raise RuleError(f"{rule.path}: {error}") from None


def _fired(
    rule: Rule, severity: Severity, known: Mapping[str, Any], evaluator: Evaluator
) -> Finding:
    filled = {**known, **{name: evaluator.run(expr).value for name, expr in rule.computed.items()}}
    saves = evaluator.run(rule.saves).value if rule.saves else None
    fits = evaluator.run(rule.fits).value if rule.fits else None
    assert saves is None or not isinstance(saves, str)  # checked when the rule was loaded
    assert fits is None or isinstance(fits, bool)
    return Finding(
        rule=rule.id,
        name=rule.name,
        outcome=Outcome.FIRED,
        severity=severity,
        message=render_text(rule.message, filled),
        remedy=rule.file.remedy,
        saves_bytes=None if saves is None else max(0, int(saves)),
        makes_it_fit=fits,
        fix=Fix(
            title=render_text(rule.fix_title, filled),
            code=render_code(chosen_code(rule, evaluator), filled).strip("\n") + "\n",
        ),
        cost=_cost(rule),
    )


def chosen_code(rule: Rule, evaluator: Evaluator) -> Template:
    """Return the first variant whose condition holds, or the rule's main code."""
    for condition, code in rule.variants:
        if evaluator.run(condition).value is True:
            return code
    return rule.use_instead


def _cost(rule: Rule) -> Cost:
    return Cost(
        speed=rule.file.speed,
        effort=rule.file.effort,
        accuracy=rule.file.accuracy,
        whole_dataset=rule.file.whole_dataset,
    )


def _unknown(rule: Rule, severity: Severity, missing: frozenset[str]) -> Finding:
    facts = tuple(
        MissingFact(name=name, how_to_get=FACTS[name].how_to_get) for name in sorted(missing)
    )
    names = ", ".join(fact.name for fact in facts)
    return Finding(
        rule=rule.id,
        name=rule.name,
        outcome=Outcome.UNKNOWN,
        severity=severity,
        message=f"{rule.file.summary} Cannot tell without {names or 'more facts'}.",
        remedy=rule.file.remedy,
        missing=facts,
    )


def _plain(rule: Rule, outcome: Outcome, severity: Severity) -> Finding:
    return Finding(
        rule=rule.id,
        name=rule.name,
        outcome=outcome,
        severity=severity,
        message=rule.file.summary,
        remedy=rule.file.remedy,
    )


def _rank(finding: Finding, rule: Rule, purpose: str | None) -> tuple[Any, ...]:
    place, at = _ORDER.index(finding.outcome), finding.location
    if finding.outcome is not Outcome.FIRED:
        return (place, finding.rule, at.file, at.line, at.column) if at else (place, finding.rule)
    gain = (finding.saves_bytes or 0) / _EFFORT[rule.file.effort]
    off_purpose = purpose is not None and purpose not in rule.file.purposes
    order: tuple[int, int] = (finding.severity.rank, off_purpose)
    if finding.makes_it_fit:
        # Either is enough, so what the run is for decides: a subset to prototype, say.
        order = (off_purpose, finding.severity.rank)
    where = (at.file, at.cell or 0, at.line, at.column) if at else ("", 0, 0, 0)
    return (place, finding.makes_it_fit is not True, *order, -gain, finding.rule, *where)


def _words(given: str | Iterable[str]) -> tuple[str, ...]:
    """A single word is one word, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _named(words: Iterable[str], rules: tuple[Rule, ...]) -> set[str]:
    """The ids that the words stand for: ids, beginnings of ids, or names."""
    ids: set[str] = set()
    for word in words:
        plain = word.strip().upper()
        found = {
            rule.id
            for rule in rules
            if plain == rule.name.upper() or rule.id.upper().startswith(plain)
        }
        if not found or not plain:
            raise UsageError(f"{word!r} names no rule.{_nearest_rule(word, rules)}")
        ids |= found
    return ids


def _severities(given: Mapping[str, str], rules: tuple[Rule, ...]) -> dict[str, Severity]:
    by_word = {word.upper(): rule.id for rule in rules for word in (rule.id, rule.name)}
    severities = {}
    for word, severity in given.items():
        if word.upper() not in by_word:
            raise UsageError(f"{word!r} names no rule.{_nearest_rule(word, rules)}")
        try:
            severities[by_word[word.upper()]] = Severity(severity)
        except ValueError:
            raise UsageError(
                f"{severity!r} is not a severity for {word}: use error, warning or info."
            ) from None
    return severities


def _nearest_rule(word: str, rules: Iterable[Rule]) -> str:
    hint = nearest(word, [known for rule in rules for known in (rule.id, rule.name)])
    return hint or " `oomdoctor rules` lists them."


def find_rule(word: str, rules: Iterable[Rule]) -> Rule:
    """Return the rule with this id or name, or raise `UsageError` with the nearest one."""
    rules = tuple(rules)
    for rule in rules:
        if word.upper() in (rule.id.upper(), rule.name.upper()):
            return rule
    raise UsageError(f"{word!r} names no rule.{_nearest_rule(word, rules)}")
