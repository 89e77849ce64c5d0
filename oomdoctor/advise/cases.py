"""Runs the cases a rule carries, and checks that its code is code.

This is what `oomdoctor rules --validate` and the tests do; a run that only advises does not.
"""

from __future__ import annotations

import ast
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

from oomdoctor.advise.evaluate import chosen_code, judge
from oomdoctor.advise.expression import Evaluator
from oomdoctor.advise.flatten import version_number
from oomdoctor.advise.rule import Case, Rule
from oomdoctor.advise.template import Template, render_code
from oomdoctor.advise.vocabulary import FACTS, nearest
from oomdoctor.errors import UsageError
from oomdoctor.findings import Finding, Outcome
from oomdoctor.units import parse_size


def case_values(case: Case) -> dict[str, Any]:
    """Return a case's facts as `vocabulary.values` gives them: all names, None where left out.

    Raises:
        ValueError: A fact is unknown, or its value is not of its kind.
    """
    known: dict[str, Any] = dict.fromkeys(FACTS)
    for family, facts in case.facts.items():
        for name, value in facts.items():
            full = f"{family}.{name}"
            if full not in FACTS:
                raise ValueError(f"{full} is not a fact.{nearest(full, FACTS)}")
            known[full] = _value(full, value)
    return known


def _value(name: str, value: Any) -> Any:
    """A value of the fact's kind, from what a case may write."""
    kind = FACTS[name].kind
    wanted: dict[str, type | tuple[type, ...]] = {
        "bytes": int,
        "count": int,
        "version": int,
        "ratio": (int, float),
        "text": str,
        "flag": bool,
    }
    if kind == "bytes" and isinstance(value, str):
        return parse_size(value)
    if kind == "version" and isinstance(value, str):
        value = version_number(value)
    if not isinstance(value, wanted[kind]) or (isinstance(value, bool) and kind != "flag"):
        raise ValueError(f"{name} is of kind {kind}, and {value!r:.40} is not.")
    if FACTS[name].choices and value not in FACTS[name].choices:
        raise ValueError(
            f"{name} is never {value!r:.40}.{nearest(str(value), FACTS[name].choices)}"
        )
    return value


def fired(rule: Rule) -> list[Finding]:
    """Return what the rule says about each of its cases that fires."""
    return [judge(rule, known) for known in _firing(rule)]


def _firing(rule: Rule) -> Iterator[dict[str, Any]]:
    """Yield the facts of each case that fires; `problems` tells of a case that is wrong."""
    for case in rule.file.cases:
        if case.outcome == "fired":
            try:
                known = case_values(case)
            except ValueError:
                continue
            yield known


def filled_codes(rule: Rule) -> list[str]:
    """Return the rule's main code and that of each variant, in the order they are written.

    Each is filled in with the facts of the first case that asks for it; where no case does, with
    the values that it falls back on.
    """
    filled: dict[Template, str] = {}
    for known in _firing(rule):
        fix = judge(rule, known).fix
        if fix is not None:
            filled.setdefault(chosen_code(rule, Evaluator(known)), fix.code)
    codes = (rule.use_instead, *(code for _, code in rule.variants))
    return [filled.get(code) or render_code(code, {}) for code in codes]


def problems(rule: Rule) -> list[str]:
    """Return what is wrong with a rule's cases and code, in sentences; nothing when all is well."""
    outcomes = {case.outcome for case in rule.file.cases}
    found = [
        f"no case has the outcome {outcome}."
        for outcome in ("fired", "passed", "unknown")
        if outcome not in outcomes
    ]
    if not parses(rule.file.example):
        found.append("example is not Python.")
    used = set()
    for number, case in enumerate(rule.file.cases, start=1):
        try:
            known = case_values(case)
            finding = judge(rule, known)
            found += [f"case {number}: {what}" for what in _differences(case, finding)]
        except (ValueError, UsageError) as error:
            found.append(f"case {number}: {error!s:.500}")
            continue
        if finding.outcome is Outcome.FIRED:
            used.add(chosen_code(rule, Evaluator(known)))
    found += [
        f"no case uses variant {number}."
        for number, (_, code) in enumerate(rule.variants, start=1)
        if code not in used and rule.file.code_of is None
    ]
    return found


def _differences(case: Case, finding: Finding) -> list[str]:
    if finding.outcome.value != case.outcome:
        return [f"it gave {finding.outcome.value}, not {case.outcome}."]
    found = []
    if case.saves_bytes is not None and finding.saves_bytes != parse_size(case.saves_bytes):
        found.append(f"it saves {finding.saves_bytes} bytes, not {case.saves_bytes}.")
    if case.severity is not None and finding.severity.value != case.severity:
        found.append(f"its severity is {finding.severity.value}, not {case.severity}.")
    if case.makes_it_fit is not None and finding.makes_it_fit is not case.makes_it_fit:
        found.append(f"makes_it_fit is {finding.makes_it_fit}, not {case.makes_it_fit}.")
    if finding.outcome is Outcome.FIRED:
        assert finding.fix is not None
        if not parses(finding.fix.code):
            found.append("use_instead, filled in, is not Python.")
        said = "\n".join((finding.message, finding.fix.title, finding.fix.code))
        found += [f"it does not say {words!r:.100}." for words in case.says if words not in said]
    return found


def parses(code: str) -> bool:
    """Return whether code is Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(textwrap.dedent(code))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
