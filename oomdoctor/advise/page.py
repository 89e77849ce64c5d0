"""Rules as Markdown: one page each, and the index of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from oomdoctor.advise.cases import filled_codes, fired
from oomdoctor.advise.rule import FAMILIES, FIELDS, Rule
from oomdoctor.advise.vocabulary import FACTS
from oomdoctor.findings import REMEDIES

_INDEX_HEAD = """\
# Rules

<!-- Generated from the rule files by `oomdoctor rules --write-index`. Do not edit. -->

One rule, one file, one remedy. `oomdoctor rules ID` prints a rule's page, `--select` and
`--ignore` choose among them, and `--rules DIR` adds a team's own.
"""

_WRITING = """\
## Writing a rule

A rule is a TOML file, `<family>/<name>.toml`. Copy one that is close, then run
`oomdoctor rules --validate DIR`, which checks every file and runs its cases.

Conditions and sizes are expressions: facts, numbers, strings, `True` and `False`, `KiB MiB GiB`,
`+ - * / // %`, comparisons, `and or not`, `a if c else b`, and `in` a list of constants. There
are no calls. A fact that is missing makes a condition unknown, unless the rest decides it:
`False and unknown` is false, `True or unknown` is true. So keep a condition to facts that one
command knows together: joining a crash and a dataset by `or` gives a rule that never passes.

In code, `model` is the reader's compiled model, `x` and `y` are arrays, and `dataset` is a batched
`tf.data.Dataset`; everything else is imported or defined. Compare GPU memory with
`machine.gpu_usable_bytes`, as the verdict does. Use `'...'` strings where a backslash is meant.
"""


def render_page(rule: Rule) -> str:
    """Return the page of one rule."""
    file = rule.file
    # Shown with the facts of its first case: that is code one can paste, a template is not.
    shown = next(iter(fired(rule)), None)
    fix = shown.fix if shown else None
    title = fix.title if fix else file.fix_title
    parts = [
        f"# {file.id} {file.name}",
        file.summary,
        _table(
            ("", ""),
            [
                ("severity", file.severity),
                ("family", file.family),
                ("relieves", {"ram": "RAM", "vram": "GPU memory"}.get(file.resource, "neither")),
                ("remedy", f"`{file.remedy}`: {title}"),
                ("since", file.since),
            ],
        ),
        f"## When\n\n{_when(rule)}",
        f"For example: {shown.message}" if shown else "",
        f"## Why\n\n{file.why.strip()}",
        f"## Example\n\n{_code(file.example)}",
        f"## Use instead\n\n{_codes(rule)}",
        f"## What it costs\n\n{_costs(rule)}",
        f"## What it assumes\n\n{file.limits.strip()}",
        f"## What it does not fix\n\n{file.does_not_fix.strip()}",
        f"## Facts it reads\n\n{_facts(rule)}",
    ]
    if file.references:
        parts.append("## References\n\n" + "\n".join(f"- <{link}>" for link in file.references))
    return "\n\n".join(part for part in parts if part) + "\n"


def render_index(rules: Iterable[Rule]) -> str:
    """Return the text of `rules/README.md`."""
    rules = sorted(rules, key=lambda rule: rule.id)
    known = [family for family in FAMILIES if any(rule.file.family == family for rule in rules)]
    others = sorted({rule.file.family for rule in rules} - set(known))
    sections = [_INDEX_HEAD.strip()]
    for family in known + others:
        rows = [_index_row(rule) for rule in rules if rule.file.family == family]
        heads = ("id", "rule", "severity", "remedy", "what it finds")
        sections.append(f"## {family}\n\n{_table(heads, rows)}")
    sections.append(_WRITING.strip())
    fields = [(f"`{name}`", meaning) for name, meaning in FIELDS.items()]
    sections.append(f"### Fields\n\n{_table(('field', 'what it holds'), fields)}")
    remedies = ", ".join(f"`{remedy}`" for remedy in REMEDIES)
    sections.append(f"### Remedies\n\n{remedies}.")
    facts = [(f"`{fact.name}`", fact.kind, fact.meaning) for fact in FACTS.values()]
    sections.append(f"### Facts\n\n{_table(('fact', 'kind', 'meaning'), facts)}")
    return "\n\n".join(sections) + "\n"


def _index_row(rule: Rule) -> tuple[str, ...]:
    file = rule.file
    link = f"[{file.name}]({file.family}/{Path(rule.path).name})"
    return (file.id, link, file.severity, f"`{file.remedy}`", file.summary)


def _codes(rule: Rule) -> str:
    """The main code, and each variant under the condition that asks for it."""
    main, *others = filled_codes(rule)
    parts = [_code(main)]
    for variant, code in zip(rule.file.variants, others, strict=True):
        # Only the first variant that holds is used, so each also excludes those before it.
        start = "Or" if len(parts) == 1 else "Else"
        parts += [f"{start}, where `{_one_line(variant.when)}`:", _code(code)]
    return "\n\n".join(parts)


def _costs(rule: Rule) -> str:
    file = rule.file
    rows = [
        ("speed", file.speed),
        ("effort", file.effort),
        ("accuracy", file.accuracy),
        ("trains on all the data", "yes" if file.whole_dataset else "no"),
    ]
    if file.saves:
        rows.append(("bytes saved", f"`{_one_line(file.saves)}`"))
    if file.fits:
        rows.append(("enough alone when", f"`{_one_line(file.fits)}`"))
    if file.purposes:
        rows.append(("remedy of choice to", ", ".join(file.purposes)))
    return _table(("", ""), rows)


def _facts(rule: Rule) -> str:
    expressions = [rule.when, rule.unless, rule.worse_when, rule.milder_when, rule.saves, rule.fits]
    expressions += rule.computed.values()
    expressions += [condition for condition, _ in rule.variants]
    names = {name for expression in expressions if expression for name in expression.facts}
    templates = [rule.message, rule.use_instead, *(code for _, code in rule.variants)]
    names |= {name for template in templates for name in template.facts if name in FACTS}
    rows = [
        (f"`{name}`", FACTS[name].meaning, FACTS[name].how_to_get)
        for name in FACTS
        if name in names
    ]
    return _table(("fact", "meaning", "how to get it"), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _when(rule: Rule) -> str:
    file = rule.file
    lines = [f"oomdoctor check script.py finds {file.check}"] if file.check else []
    lines += [_wrapped(file.when)] if file.when else []
    parts = [_code("\n".join(lines), "text")]
    if file.unless:
        parts.append(f"All is well where `{_one_line(file.unless)}`.")
    if file.worse_when:
        parts.append(f"One step worse where `{_one_line(file.worse_when)}`.")
    if file.milder_when:
        parts.append(f"One step milder where `{_one_line(file.milder_when)}`.")
    return "\n\n".join(parts)


def _wrapped(expression: str) -> str:
    """A long condition on several lines, broken where it was written so."""
    return "\n".join(line.strip() for line in expression.strip().splitlines())


def _code(text: str, language: str = "python") -> str:
    # A fence longer than any inside cannot be closed by the rule's own text.
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
