"""A list of problems as GitLab's code quality report, which merge requests show."""

from __future__ import annotations

import json
from typing import Any

from oomdoctor.report.listing import Listing, Problem

SEVERITIES = {"error": "critical", "warning": "major", "info": "info"}


def render(listing: Listing) -> str:
    """Return one entry for each problem."""
    return json.dumps([_entry(problem) for problem in listing.problems], indent=2) + "\n"


def _entry(problem: Problem) -> dict[str, Any]:
    return {
        "description": f"{problem.rule}: {problem.advice}",
        "check_name": problem.name,
        "fingerprint": problem.fingerprint,
        "severity": "info" if problem.is_known else SEVERITIES[problem.severity.value],
        "location": {"path": problem.file, "lines": {"begin": problem.line}},
    }
