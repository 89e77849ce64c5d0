"""What to change: the titles beside the verdict, and a card with code for each."""

from __future__ import annotations

from oomdoctor.findings import Finding, Report
from oomdoctor.report.headline import headline_of
from oomdoctor.report.of_findings import MAX_REMEDIES, once_for_each_rule, remedy
from oomdoctor.report.page.markup import Safe, join, tag, with_code
from oomdoctor.report.page.parts import banner, code_block, folded, section


def hero(report: Report) -> Safe:
    """Return the verdict, large, and the titles of what to do."""
    head = headline_of(report)
    fired = once_for_each_rule(report.fired)
    todo = _todo(fired[:MAX_REMEDIES]) if fired else None
    return banner(head.state, head.topic or "Verdict", head.text, todo)


def _todo(findings: list[Finding]) -> Safe:
    items = []
    for number, finding in enumerate(findings, 1):
        shown = remedy(finding)
        gain = f" ({shown.gain})" if shown.gain else ""
        items.append(tag("li", tag("a", shown.title, href=f"#change-{number}"), gain))
    return tag("div", tag("h2", "What to change"), tag("ol", *items), class_="todo")


def section_of(report: Report) -> Safe | None:
    """Return what to change, as code to copy; the first three, the rest folded."""
    fired = once_for_each_rule(report.fired)
    if not fired:
        return None
    cards = [_card(number, finding) for number, finding in enumerate(fired, 1)]
    more = cards[MAX_REMEDIES:]
    return section(
        "change",
        "What to change",
        *cards[:MAX_REMEDIES],
        folded(f"{len(more)} more", *more) if more else None,
    )


def _card(number: int, finding: Finding) -> Safe:
    shown = remedy(finding)
    cost = finding.cost
    costs = [] if cost is None else [("Speed", cost.speed), ("Effort", cost.effort)]
    if cost is not None:
        costs.append(("Result", cost.accuracy))
        costs.append(("Data", "all of it" if cost.whole_dataset else "a part of it"))
    return tag(
        "article",
        tag(
            "h3",
            f"{number}. {shown.title} ",
            tag("span", shown.gain, class_="gain") if shown.gain else None,
            tag("span", shown.rule, class_="rule", title=finding.name),
        ),
        tag("p", with_code(shown.message)),
        code_block(shown.code.rstrip()) if shown.code else None,
        tag("dl", *(join(tag("dt", what), tag("dd", detail)) for what, detail in costs if detail))
        if costs
        else None,
        id=f"change-{number}",
    )
