"""Where a list of problems stands: the repository's root, the configuration, the rules' pages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from oomdoctor.cli.config import quietly_found
from oomdoctor.findings import Outcome, Report
from oomdoctor.report.escape import harmless, printable
from oomdoctor.report.listing import DEFAULT_ANCHOR, Listing, RuleText, list_problems

_ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Where CI systems say that they checked the repository out."""


def listing_of(report: Report, *, fail_on: str, rules: Iterable[str] | None) -> Listing:
    """Return a report as a list of problems in this repository.

    Args:
        report: What was found.
        fail_on: The mildest finding that fails.
        rules: Folders with more rules whose pages are quoted; None quotes no page.
    """
    root = repository_root()
    return list_problems(
        report,
        root=root,
        anchor=_anchor(root),
        fail_on=fail_on,
        rules=None if rules is None else _rule_texts(report, rules),
    )


def repository_root() -> str:
    """Return the folder that files are told relative to: the checkout, or this folder."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was deleted
        return os.sep
    for variable in _ROOTS:
        root = os.environ.get(variable)
        if root and Path(root) in (Path(here), *Path(here).parents):
            return root
    return here


def _anchor(root: str) -> str:
    """Return the configuration's file, which stands for what is not about a line of code."""
    found = quietly_found()
    if found is None:
        return DEFAULT_ANCHOR
    relative = os.path.relpath(found, root)
    return found.name if relative.startswith("..") else relative.replace(os.sep, "/")


def _rule_texts(report: Report, folders: Iterable[str]) -> dict[str, RuleText]:
    from oomdoctor.advise.load import load_rules
    from oomdoctor.advise.page import render_page

    fired = {
        finding.rule
        for part in (report, *report.parts)
        for finding in part.findings
        if finding.outcome is Outcome.FIRED
    }
    if not fired:
        return {}
    return {
        rule.id: RuleText(
            id=rule.id,
            name=rule.name,
            summary=printable(rule.file.summary),
            page=harmless(render_page(rule)),
            severity=rule.file.severity,
        )
        for rule in load_rules(folders, with_cases=True)
        if rule.id in fired
    }
