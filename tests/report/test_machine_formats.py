"""What other programs are told, read back by the real readers of these formats."""

import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import jsonschema
import junitparser
import pytest

from oomdoctor.facts import Facts
from oomdoctor.findings import Finding, Fix, Location, MissingFact, Outcome, Report, Severity
from oomdoctor.report import github, gitlab, junit, sarif
from oomdoctor.report.listing import RuleText, list_problems

EVIL = "a,b:c%\x1b[2J\n::error::<x>&\udcff](y)"


def finding(rule, severity="error", *, at=None, outcome="fired", message="Too large.", known=False):
    return Finding(
        rule=rule,
        name=f"name-of-{rule}",
        outcome=Outcome(outcome),
        severity=Severity(severity),
        message=message,
        remedy="stream_dataset",
        fix=Fix(title="Stream it", code="model.fit(dataset)\n") if outcome == "fired" else None,
        location=None if at is None else Location(file=at[0], line=at[1], column=at[2]),
        missing=(MissingFact(name="machine.x", how_to_get="give --vram"),)
        if outcome == "unknown"
        else (),
        is_known=known,
    )


def report(*findings, verdict="does_not_fit", **more):
    return Report(command="check", verdict=verdict, facts=Facts(), findings=findings, **more)


def a_report(folder="."):
    return report(
        finding("OD101"),
        finding("OD802", "warning", at=(f"{folder}/src/train me.py", 7, 5)),
        finding("OD802", "warning", at=(f"{folder}/src/train me.py", 9, 5)),
        finding("OD803", "info", at=(f"{folder}/{EVIL}.py", 1, 0), message=EVIL),
        finding("OD104", known=True),
        finding("OD105", outcome="passed"),
        finding("OD106", outcome="unknown"),
        finding("OD107", outcome="skipped"),
        subject="data/",
        target="colab-t4",
    )


def a_listing(value=None, **options):
    rules = {
        rule: RuleText(id=rule, name=rule, summary="What.", page="# Why\n", severity="error")
        for rule in ("OD101", "OD104", "OD802", "OD803", "OD999")
    }
    return list_problems(value or a_report(), rules=rules, **options)


@pytest.fixture(scope="module")
def is_sarif(published_schema):
    # What is published there is the schema of OASIS, as its `$id` says.
    schema = published_schema("https://json.schemastore.org/sarif-2.1.0.json")
    assert "oasis-tcs/sarif-spec" in schema["$id"]
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())
    return validator.validate


def test_sarif_obeys_the_published_schema(is_sarif):
    log = json.loads(sarif.render(a_listing()))
    is_sarif(log)
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        is_sarif(log)


def test_sarif_without_findings_is_valid_too(is_sarif):
    is_sarif(json.loads(sarif.render(a_listing(report(verdict="fits")))))


def test_sarif_says_where_and_points_to_the_rules_help():
    run = json.loads(sarif.render(a_listing(anchor="sub/oomdoctor.toml")))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    places = {}
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert rules[result["ruleIndex"]]["help"]["markdown"] == "# Why\n"
        assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
        places.setdefault(result["ruleId"], []).append(
            (unquote(place["artifactLocation"]["uri"]), place["region"])
        )
    assert places["OD101"] == [("sub/oomdoctor.toml", {"startLine": 1})]
    assert places["OD802"] == [
        ("src/train me.py", {"startLine": 7, "startColumn": 5}),
        ("src/train me.py", {"startLine": 9, "startColumn": 5}),
    ]
    assert all(re.fullmatch(r"[\x21-\x7e]+", uri.replace(" ", "%20")) or rule == "OD803"
               for rule, found in places.items() for uri, _ in found)  # fmt: skip


def test_what_the_baseline_knows_is_suppressed_in_sarif():
    run = json.loads(sarif.render(a_listing()))["runs"][0]
    suppressed = {result["ruleId"] for result in run["results"] if result.get("suppressions")}
    assert suppressed == {"OD104"}


def test_fingerprints_stay_when_lines_move_and_the_checkout_does(tmp_path):
    here = {p.fingerprint for p in a_listing().problems}
    assert len(here) == 5
    moved = report(
        *(
            finding("OD802", "warning", at=(f"{tmp_path}/src/train me.py", line, 5))
            for line in (17, 19)
        ),
        finding("OD101", message="Another figure."),
        subject="data/",
        target="colab-t4",
    )
    there = [p.fingerprint for p in a_listing(moved, root=str(tmp_path)).problems]
    assert len(set(there)) == 3
    assert set(there) <= here


def test_another_target_is_another_fingerprint():
    parts = tuple(report(finding("OD101"), subject="data/", target=t) for t in ("a", "b"))
    problems = list_problems(report(parts=parts)).problems
    assert len({problem.fingerprint for problem in problems}) == 2


def test_junit_is_read_by_a_junit_parser(tmp_path):
    (tmp_path / "r.xml").write_text(junit.render(a_listing(fail_on="warning")), encoding="utf-8")
    suites = junitparser.JUnitXml.fromfile(str(tmp_path / "r.xml"))
    (suite,) = list(suites)
    assert suite.name == "data/ on colab-t4"
    assert (suites.tests, suites.failures, suites.skipped, suites.errors) == (7, 3, 1, 0)
    cases = list(suite)
    assert len(cases) == 7
    failed = [
        case for case in cases if any(isinstance(r, junitparser.Failure) for r in case.result)
    ]
    assert [case.name.split()[0] for case in failed] == ["OD101", "OD802", "OD802"]
    assert len({case.name for case in cases}) == 7
    assert "model.fit(dataset)" in failed[0].result[0].text


def test_junit_fails_what_the_exit_code_fails():
    for fail_on, failures in (("error", 1), ("info", 4), ("never", 0)):
        root = ElementTree.fromstring(junit.render(a_listing(fail_on=fail_on)).encode())
        assert root.get("failures") == str(failures)
        assert len(root.findall(".//failure")) == failures


def read_command(line):
    """Read a line as the runner of GitHub Actions does."""
    match = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
    assert match, line

    def undone(text, also=()):
        for code, char in (*also, ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            text = text.replace(code, char)
        return text

    pairs = dict(item.split("=", 1) for item in match[2].split(","))
    also = (("%3A", ":"), ("%2C", ","))
    return match[1], {k: undone(v, also) for k, v in pairs.items()}, undone(match[3])


def test_github_annotations_survive_hostile_names():
    lines = github.render(a_listing()).splitlines()
    commands = [read_command(line) for line in lines if line.startswith("::")]
    assert [command for command, _, _ in commands] == [
        "error", "warning", "warning", "notice", "notice",
    ]  # fmt: skip
    assert commands[0][1] == {
        "file": "pyproject.toml",
        "line": "1",
        "title": "OD101 name-of-OD101",
    }
    assert commands[1][1]["col"] == "5"
    assert commands[3][1]["file"].startswith("a,b:c%\\x1b[2J\\n")
    assert commands[3][2].startswith("a,b:c%\\x1b[2J\\n::error::<x>&")
    assert "\x1b" not in "".join(lines)
    assert len(lines) == len(commands) + 1


def test_gitlab_entries_have_what_gitlab_needs_and_are_unique():
    entries = json.loads(gitlab.render(a_listing()))
    for entry in entries:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert not entry["location"]["path"].startswith(("./", "/"))
        assert entry["location"]["lines"]["begin"] >= 1
    assert len({entry["fingerprint"] for entry in entries}) == len(entries) == 5
    assert [entry["severity"] for entry in entries].count("critical") == 1


@pytest.mark.parametrize("renderer", [sarif, junit, github, gitlab])
def test_output_is_the_same_every_time_and_plain(renderer):
    once = renderer.render(a_listing())
    assert once == renderer.render(a_listing())
    assert "\x1b" not in once
    once.encode()
