"""A list of problems as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import quote

from oomdoctor._version import __version__
from oomdoctor.report.listing import Listing, Problem, RuleText

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ROOT = "%SRCROOT%"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
FINGERPRINT = "oomdoctor/v1"


def render(listing: Listing) -> str:
    """Return one SARIF log with one run."""
    indices = {rule.id: index for index, rule in enumerate(listing.rules)}
    run = {
        "tool": {
            "driver": {
                "name": "oomdoctor",
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in listing.rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "results": [_result(problem, indices) for problem in listing.problems],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: RuleText) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "help": {"text": rule.page, "markdown": rule.page},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": ["memory"]},
    }


def _result(problem: Problem, indices: dict[str, int]) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": problem.line}
    if problem.column is not None:
        region["startColumn"] = problem.column
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "level": LEVELS[problem.severity.value],
        "message": {"text": _plain(problem.advice)},
        "locations": [
            {"physicalLocation": {"artifactLocation": _artifact(problem.file), "region": region}}
        ],
        "partialFingerprints": {FINGERPRINT: problem.fingerprint},
    }
    if problem.rule in indices:
        result["ruleIndex"] = indices[problem.rule]
    if problem.is_known:
        result["suppressions"] = [
            {"kind": "external", "justification": "Recorded in the baseline."}
        ]
    return result


def _artifact(file: str) -> dict[str, str]:
    address = quote(os.fsencode(file))
    if os.path.isabs(file):
        return {"uri": f"file://{address}"}
    return {"uri": address, "uriBaseId": ROOT}


def _plain(text: str) -> str:
    """Return text that no viewer takes for a link: `[words](place)` would be one."""
    return text.replace("](", "] (")
