"""`oomdoctor rules`: lists the rules, prints one rule's page, checks a folder of rules."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from oomdoctor._version import __version__
from oomdoctor.advise.cases import filled_codes, fired, problems
from oomdoctor.advise.evaluate import find_rule
from oomdoctor.advise.load import load_rules, read_folder, repeated, rules_folder
from oomdoctor.advise.page import render_index, render_page
from oomdoctor.advise.rule import Rule
from oomdoctor.cli.options import CommandLineOption
from oomdoctor.cli.output import tell, write
from oomdoctor.errors import InputError, UsageError

NARROWEST = 30
"""The last column of the table has at least this width, or there is no table."""


@click.command("rules")
@click.argument("rule", required=False)
@click.option(
    "--rules",
    "folders",
    multiple=True,
    metavar="DIR",
    help="Folder with additional rules. May be repeated.",
)
@click.option(
    "--validate", metavar="DIR", help="Validate the rule files in this folder and run their cases."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option(
    "-o",
    "--output",
    cls=CommandLineOption,
    metavar="FILE",
    help="Write to FILE.",
)
@click.option(
    "--write-index",
    cls=CommandLineOption,
    is_flag=True,
    hidden=True,
    help="Rewrite rules/README.md.",
)
def command(
    rule: str | None,
    folders: tuple[str, ...],
    validate: str | None,
    format_: str,
    output: str | None,
    *,
    write_index: bool,
) -> None:
    """List the rules, or show the page of one RULE, given by id or name."""
    if validate is not None:
        if rule is not None:
            raise UsageError("Pass a RULE or --validate DIR, not both.")
        _validate(validate, format_, output)
        return
    rules = load_rules(folders, with_cases=True)
    if write_index:
        path = rules_folder() / "README.md"
        write(render_index(load_rules()), str(path))
        tell(f"Wrote {path}.")
    elif rule is not None:
        found = find_rule(rule, rules)
        _emit(render_page(found), [found], format_, output)
    else:
        _emit(_listing(rules), rules, format_, output)


def _validate(folder: str, format_: str, output: str | None) -> None:
    """Print every bad file; exit with 1 if there is one."""
    rules, errors = read_folder(folder)
    if not rules and not errors:
        raise InputError(f"{folder} holds no rule files: they end in .toml.")
    if Path(folder).resolve() != rules_folder().resolve():
        errors += repeated([*load_rules(), *rules])
    else:
        errors += repeated(rules)
    lines = [str(error) for error in errors]
    lines += [
        f"{rule.path}: {problem}"
        for rule in rules
        for problem in (*problems(rule), *_problems_of_code(rule))
    ]
    count = len(rules) + len(errors)
    if format_ == "json":
        text = _json({"valid": not lines, "rules_checked": count, "problems": lines})
    else:
        end = (
            f"{len(lines)} problem(s) in {count} rule(s)."
            if lines
            else f"{count} rule(s), no problems."
        )
        text = "\n".join([*lines, end]) + "\n"
    write(text, output, format_=format_)
    if lines:
        sys.exit(1)


def _problems_of_code(rule: Rule) -> list[str]:
    """Return what is wrong with the example of a rule about code."""
    if rule.file.check is None:
        return []
    from oomdoctor.scripts.examples import example_problems

    return example_problems(rule.file.check, rule.file.example, filled_codes(rule))


def _listing(rules: Iterable[Rule]) -> str:
    from tabulate import tabulate

    rows = [
        (rule.id, rule.name, rule.file.severity, rule.file.remedy, rule.file.summary)
        for rule in rules
    ]
    taken = sum(max((len(row[column]) for row in rows), default=0) + 2 for column in range(4))
    columns = shutil.get_terminal_size((160, 24)).columns
    heads = ("id", "rule", "severity", "remedy", "what it finds")
    if columns - taken >= NARROWEST:
        widths = [None] * 4 + [columns - taken]
        table = tabulate(rows, heads, tablefmt="simple", maxcolwidths=widths)
    else:
        table = "\n".join(_paragraph(row, columns) for row in rows)
    return f"{table}\n\nOne rule's page: oomdoctor rules ID\n"


def _paragraph(row: tuple[str, ...], columns: int) -> str:
    """Return a rule in two lines or more, for terminals too narrow for the table."""
    id_, *heading, summary = row
    indent = " " * (len(id_) + 2)
    lines = textwrap.wrap(
        summary, columns, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    )
    return "\n".join([f"{id_}  {' · '.join(heading)}", *lines])


def _emit(text: str, rules: Iterable[Rule], format_: str, output: str | None) -> None:
    if format_ == "json":
        text = _json({"rules": [_plain(rule) for rule in rules]})
    write(text, output, format_=format_)


def _plain(rule: Rule) -> dict[str, Any]:
    """A rule as plain values, with its code filled in from its cases."""
    from msgspec import to_builtins

    plain: dict[str, Any] = to_builtins(rule.file)
    del plain["cases"]
    plain["path"] = rule.path
    plain["filled_in"] = [finding.fix.code for finding in fired(rule) if finding.fix]
    return plain


def _json(content: dict[str, Any]) -> str:
    tool = {"name": "oomdoctor", "version": __version__}
    envelope = {"schema_version": 1, "tool": tool, "command": "rules", **content}
    return json.dumps(envelope, indent=2) + "\n"
