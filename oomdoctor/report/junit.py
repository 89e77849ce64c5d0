"""A list of problems as JUnit XML: a suite for each thing examined, a test for each rule.

A problem that fails the check is a failed test; a milder one is a test that passed and says so in
its output; a rule that lacked a fact is skipped.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from oomdoctor.report.escape import printable
from oomdoctor.report.listing import Listing, Problem, Suite


def render(listing: Listing) -> str:
    """Return one document with all suites."""
    root = Element("testsuites", name="oomdoctor")
    for suite in listing.suites:
        root.append(_suite(suite))
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(suite: Suite) -> Element:
    element = Element("testsuite", name=suite.name)
    for problem in suite.problems:
        _problem(element, suite, problem)
    for rule in suite.passed:
        SubElement(element, "testcase", classname=suite.name, name=rule, time="0")
    for rule, why in suite.undecided:
        case = SubElement(element, "testcase", classname=suite.name, name=rule, time="0")
        SubElement(case, "skipped", message=why)
    failures = sum(problem.fails for problem in suite.problems)
    element.set("tests", str(len(element)))
    element.set("failures", str(failures))
    element.set("errors", "0")
    element.set("skipped", str(len(suite.undecided)))
    SubElement(element, "system-out").text = suite.headline
    return element


def _problem(parent: Element, suite: Suite, problem: Problem) -> None:
    where = f"{printable(problem.file)}:{problem.line}"
    # Two findings of one rule are two tests: the place tells them apart.
    name = f"{problem.rule} {problem.name} ({where})"
    case = SubElement(parent, "testcase", classname=suite.name, name=name, time="0")
    text = "\n\n".join(filter(None, (problem.message, problem.title, problem.code)))
    if problem.fails:
        SubElement(case, "failure", type=problem.rule, message=problem.message).text = text
    else:
        told = "known" if problem.is_known else problem.severity.value
        SubElement(case, "system-out").text = f"{told}: {text}"
