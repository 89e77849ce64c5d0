"""What a rule file holds, field by field.

`RuleFile` is the file as written; `Rule` is the same with its expressions and templates parsed.
`FIELDS` says what each field is for, and is printed in `rules/README.md`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from oomdoctor.advise.expression import Expression, compile_expression
from oomdoctor.advise.template import Template, parse_template

Scalar = bool | int | float | str

# Every case is run through every variant and every computed number.
MAX_CASES = 100
MAX_VARIANTS = 32
MAX_COMPUTED = 32

FAMILIES = (
    "input",
    "host",
    "pipeline",
    "device",
    "batch",
    "precision",
    "model",
    "multi_gpu",
    "runtime",
    "crash",
    "code",
    "profile",
)
"""Folders of the catalogue. A team's own rules may use others."""


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts, and what the rule must make of them."""

    outcome: Literal["fired", "passed", "unknown"]
    facts: dict[str, dict[str, Scalar]]
    saves_bytes: int | str | None = None
    makes_it_fit: bool | None = None
    severity: Literal["error", "warning", "info"] | None = None
    says: tuple[str, ...] = ()


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other code for the same remedy, for data or machines of another kind."""

    when: str
    use_instead: str


class RuleFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as its file has it."""

    id: str
    name: str
    family: str
    severity: Literal["error", "warning", "info"]
    since: str
    summary: str
    message: str
    resource: Literal["ram", "vram", "none"]
    remedy: str
    fix_title: str
    why: str
    example: str
    speed: str
    effort: Literal["one line", "a few lines", "a rewrite"]
    accuracy: str
    whole_dataset: bool
    limits: str
    does_not_fix: str
    references: tuple[str, ...]
    when: str | None = None
    check: str | None = None
    unless: str | None = None
    worse_when: str | None = None
    milder_when: str | None = None
    saves: str | None = None
    fits: str | None = None
    use_instead: str = ""
    code_of: str | None = None
    computed: Annotated[dict[str, str], Meta(max_length=MAX_COMPUTED)] = {}
    purposes: tuple[Literal["prototype", "train", "production"], ...] = ()
    variants: Annotated[tuple[Variant, ...], Meta(max_length=MAX_VARIANTS)] = ()
    cases: Annotated[tuple[Case, ...], Meta(max_length=MAX_CASES)] = ()


class Rule:
    """A rule ready to run. Its parts are parsed when they are first needed, and kept."""

    def __init__(self, file: RuleFile, path: str) -> None:
        self.file = file
        self.path = path

    @property
    def id(self) -> str:
        """Such as OD101: permanent, never used again for something else."""
        return self.file.id

    @property
    def name(self) -> str:
        """What is found, readable after "allow"."""
        return self.file.name

    @cached_property
    def when(self) -> Expression:
        """The condition; of a rule about code, that its check found something."""
        condition = self.file.when or "True"
        if self.file.check is not None:
            condition = f'code.check == "{self.file.check}" and ({condition})'
        return compile_expression(condition, kind="flag")

    @cached_property
    def unless(self) -> Expression | None:
        """Where this is known to hold, all is well after all."""
        return compile_expression(self.file.unless, kind="flag") if self.file.unless else None

    @cached_property
    def worse_when(self) -> Expression | None:
        """Where this is known to hold, the finding is one step worse."""
        text = self.file.worse_when
        return compile_expression(text, kind="flag") if text else None

    @cached_property
    def milder_when(self) -> Expression | None:
        """Where this is known to hold, the finding is one step milder."""
        text = self.file.milder_when
        return compile_expression(text, kind="flag") if text else None

    @cached_property
    def saves(self) -> Expression | None:
        """Bytes saved; None where nobody can tell."""
        return compile_expression(self.file.saves, kind="number") if self.file.saves else None

    @cached_property
    def fits(self) -> Expression | None:
        """Whether the remedy alone is enough; None where nobody can tell."""
        return compile_expression(self.file.fits, kind="flag") if self.file.fits else None

    @cached_property
    def computed(self) -> dict[str, Expression]:
        """Numbers by placeholder, such as `computed.batch_size`."""
        return {
            f"computed.{name}": compile_expression(text, kind="number")
            for name, text in self.file.computed.items()
        }

    @cached_property
    def message(self) -> Template:
        """What is found."""
        return parse_template(self.file.message, self.computed)

    @cached_property
    def fix_title(self) -> Template:
        """The change in one line."""
        return parse_template(self.file.fix_title, self.computed)

    @cached_property
    def use_instead(self) -> Template:
        """The code to paste."""
        return parse_template(self.file.use_instead, self.computed, is_code=True)

    @cached_property
    def variants(self) -> tuple[tuple[Expression, Template], ...]:
        """Pairs of condition and code; the first that holds replaces `use_instead`."""
        return tuple(
            (
                compile_expression(variant.when, kind="flag"),
                parse_template(variant.use_instead, self.computed, is_code=True),
            )
            for variant in self.file.variants
        )


FIELDS = {
    "id": "letters and three or four digits, such as `OD101`. Permanent, never reused",
    "name": "what is found, as the file is named; it reads well after “allow”",
    "family": "the folder the file lies in",
    "severity": "`error`, `warning` or `info`",
    "since": "the first version that has it",
    "summary": "one line for lists, without numbers",
    "when": "the condition, an expression over facts; a rule about code may leave it out",
    "check": "of rules about code: which check of scripts it tells of, such as `cache-in-ram`. The "
    "rule fires once for each place found, if `when` holds; `example` must have one such place, "
    "and `use_instead` none",
    "unless": "optional: a condition under which all is well after all. Unlike in `when`, a fact "
    "that is missing does no harm: only where it is known to hold is the finding dropped",
    "worse_when": "optional: a condition under which the finding is one step worse, `warning` for "
    "`info` and `error` for `warning`",
    "milder_when": "optional: a condition under which the finding is one step milder, `info` for "
    "`warning`",
    "message": "what is found in this run, with facts in braces",
    "resource": "what the remedy relieves: `ram`, `vram` or `none`",
    "remedy": "the cure, a word from the vocabulary below",
    "fix_title": "the change in one line; facts in braces",
    "why": "why this runs out of memory",
    "example": "code that has the problem, as Python",
    "use_instead": "code to paste, as Python; facts in braces become literals, so write no quotes "
    "around them. A fact that `when` does not read needs a value to fall back on, "
    "`{data.batch_size|32}`. A line that begins with `{?data.labels_path}` is kept only where that "
    "fact is known and not false, one with `{!data.labels_path}` only where it is not. A brace "
    "that is meant is written twice. A report indents the code by five columns, so keep its lines "
    "to 75 characters",
    "code_of": "in place of `use_instead` and `variants`: the id of a rule of the same catalogue "
    "whose code this one shows; names in `computed` that both have are this rule's own",
    "speed": "what the remedy does to the time of an epoch. Tables print what stands before the "
    "first comma, colon, semicolon or full stop: say the most in up to 32 characters",
    "effort": "`one line`, `a few lines` or `a rewrite`",
    "accuracy": "what it may do to the result of training",
    "whole_dataset": "whether all the data is still trained on",
    "limits": "what the rule assumes",
    "does_not_fix": "the problems next to this one that the remedy leaves as they are",
    "references": "https addresses",
    "saves": "optional: bytes saved, an expression. Left out where nobody can tell",
    "fits": "optional: whether this remedy alone makes the run fit, a condition",
    "computed": "optional table: names and expressions, for use in braces as "
    "`{computed.batch_size}`. A name ending in `_bytes` is printed as a size",
    "purposes": "optional: `prototype`, `train`, `production`, where it is the remedy of choice",
    "variants": "optional tables with `when` and `use_instead`: other code for the same remedy. "
    "The first whose condition holds takes the place of `use_instead` above",
    "cases": "facts and the outcome they must give: at least one `fired`, one `passed`, one "
    '`unknown`. Sizes may be written `"64 GiB"`, versions `"2.16.0"`. `saves_bytes`, '
    "`makes_it_fit`, `severity` and `says` (words of the message, title or code) are checked "
    "where given",
}
"""What each field of a rule file is for, in the order people write them."""
