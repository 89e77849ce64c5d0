"""A report as one HTML file that needs no network: pages, and the figures that notebooks show too.

`markup` escapes, `parts` are what every page is built from, `frame` is the file around them.
`figures` draws what a report holds, without any script. `run` is the page of a recorded run,
`general` that of every other command.
"""

from __future__ import annotations

from oomdoctor.findings import Report

__all__ = ["render"]


def render(report: Report, *, verbose: bool = False) -> str:
    """Return a report as an HTML page.

    Args:
        report: What any command ends with.
        verbose: Whether every finding and note is on the page.
    """
    if report.facts.profile is not None or report.facts.comparison is not None:
        from oomdoctor.report.page import run

        return run.render(report)
    from oomdoctor.report.page import general

    return general.render(report, verbose=verbose)
