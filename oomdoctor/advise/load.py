"""Finds, reads and checks rule files.

The catalogue ships as `oomdoctor/_rules` and lies in `rules/` beside the package in a checkout.
A team's own folder holds rule files, or folders of them by family. A rule file is small text:
larger ones, links that leave the folder, and what is not a plain file are refused. Reading one
runs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from oomdoctor._files import NotPlain, read_small
from oomdoctor._toml import read_toml
from oomdoctor.advise.expression import ExpressionError
from oomdoctor.advise.rule import FIELDS, Case, Rule, RuleFile, Variant
from oomdoctor.advise.template import Template, escaped
from oomdoctor.advise.vocabulary import nearest
from oomdoctor.errors import InputError, RuleError
from oomdoctor.findings import REMEDIES

MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 1000
MAX_ENTRIES = 10_000

_STRING = re.compile(
    r'"""(?P<long>.*?)"""|^(?P<key>\w+ = )"(?P<short>[^"\\\n]*)"$', re.MULTILINE | re.DOTALL
)
_TEMPLATES = ("message", "fix_title", "use_instead")
_ID = re.compile(r"[A-Z]{2,8}\d{3,4}")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_COMPUTED = re.compile(r"[a-z][a-z0-9_]*")
_TOML_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`")
_AT = re.compile(r"`\$\.?([A-Za-z_]*)(?:\[(\d+)\])?(?:\.([A-Za-z_]+))?")


def rules_folder() -> Path:
    """Return where the catalogue lies."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "_rules"
    return shipped if shipped.is_dir() else package.parent / "rules"


def load_rules(folders: Iterable[str | Path] = (), *, with_cases: bool = False) -> tuple[Rule, ...]:
    """Return the catalogue and a team's own rules, by id.

    Args:
        folders: More folders of rules.
        with_cases: True to read the catalogue's cases as well, for its pages; that takes longer.

    Raises:
        RuleError: A file is wrong. The first is named, with how many more there are.
        InputError: A folder cannot be read.
    """
    rules: list[Rule] = []
    errors: list[RuleError] = []
    catalogue = rules_folder()
    for folder in (catalogue, *folders):
        found, wrong = read_folder(folder, thorough=with_cases or folder is not catalogue)
        rules += found
        errors += wrong
    errors += repeated(rules)
    if errors:
        more = f" ({len(errors) - 1} more: oomdoctor rules --validate DIR)" if errors[1:] else ""
        raise RuleError(f"{errors[0]}{more}")
    return tuple(sorted(rules, key=lambda rule: rule.id))


def read_folder(folder: str | Path, *, thorough: bool = True) -> tuple[list[Rule], list[RuleError]]:
    """Return the rules of one folder, and one error for each bad file."""
    root = Path(folder)
    rules: list[Rule] = []
    errors: list[RuleError] = []
    for path in rule_files(root):
        try:
            rules.append(read_rule(path, root, thorough=thorough))
        except RuleError as error:
            errors.append(error)
    by_id = {rule.id: rule for rule in rules}
    shown: list[Rule] = []
    for rule in rules:
        try:
            shown.append(_with_code(rule, by_id))
        except RuleError as error:
            errors.append(error)
    return shown, errors


def _with_code(rule: Rule, by_id: Mapping[str, Rule]) -> Rule:
    """Return a rule with the code of the one that it names, if it names one."""
    if rule.file.code_of is None:
        return rule
    other = by_id.get(rule.file.code_of)
    if other is None or other.file.code_of is not None:
        raise RuleError(
            f"{_shown(rule.path)}: code_of: {rule.file.code_of!r:.40} is no rule of this folder "
            "with code of its own."
        )
    file = msgspec.structs.replace(
        rule.file,
        use_instead=other.file.use_instead,
        variants=other.file.variants,
        computed={**other.file.computed, **rule.file.computed},
    )
    return Rule(file, rule.path)


def repeated(rules: Iterable[Rule]) -> list[RuleError]:
    """Return one error for each id or name that was used before."""
    errors = []
    seen: dict[str, str] = {}
    for rule in rules:
        for word in (rule.id, rule.name):
            if word in seen:
                errors.append(
                    RuleError(f"{_shown(rule.path)}: {word} is taken by {_shown(seen[word])}.")
                )
            seen.setdefault(word, rule.path)
    return errors


def rule_files(root: Path) -> list[Path]:
    """Return the rule files of a folder and of the folders in it, by path."""
    try:
        inside = _entries(root)
        files = [entry.path for entry in inside if entry.name.endswith(".toml")]
        for entry in inside:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                deeper = _entries(entry.path)
                files += [item.path for item in deeper if item.name.endswith(".toml")]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"Cannot read the rules in {root}: {reason}.") from None
    if len(files) > MAX_FILES:
        raise InputError(f"{root} holds {len(files)} rule files; {MAX_FILES} is the most.")
    return [Path(path) for path in sorted(files)]


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        listed = list(islice(entries, MAX_ENTRIES + 1))
    if len(listed) > MAX_ENTRIES:
        raise InputError(f"{folder} holds more than {MAX_ENTRIES} files: it is no folder of rules.")
    return listed


def read_rule(path: Path, root: Path | None = None, *, thorough: bool = True) -> Rule:
    """Return one rule, or raise `RuleError` with the file, the line and what is wrong.

    Args:
        path: The rule file.
        root: The folder it belongs to; a link that leads out of it is refused.
        thorough: False for files that ship with oomdoctor, which the tests have checked: leaves
            out the cases, which nobody needs to advise, and parses the rest only when needed.
    """
    text = _read_text(path, root or path.parent)
    if not thorough:
        text = _STRING.sub(_as_literal, text.partition("\n[[cases]]")[0])
    try:
        table = read_toml(text)
    except ValueError as error:
        place = _TOML_PLACE.search(str(error))
        line = int(place[1]) if place and place[1] else text.rstrip().count("\n") + 1
        raise RuleError(
            f"{_shown(path)}:{line}: not TOML: {_TOML_PLACE.sub('', str(error)):.500}."
        ) from None
    try:
        file = msgspec.convert(table, RuleFile)
    except msgspec.ValidationError as error:
        raise _schema_error(path, text, str(error)) from None
    rule = Rule(file, str(path))
    checker = _Checker(path, text, in_family=root is not None and path.parent != root)
    if thorough:
        checker.check(rule)
    else:
        checker.parse(rule, "when")
    return rule


def _as_literal(match: re.Match[str]) -> str:
    """Turn a string without escapes into a literal one: the TOML reader steps through others.

    Read this way the catalogue takes a sixth of the time; the tests compare both ways.
    """
    text = match["long"] if match["long"] is not None else match["short"]
    if "\\" in text or "'''" in text or text.endswith("'"):
        return match[0]
    return f"{match['key'] or ''}'''{text}'''"


def _read_text(path: Path, root: Path) -> str:
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            raise RuleError(f"{_shown(path)}: it is a link that leads out of {root}.")
        content = read_small(path, most=MAX_FILE_BYTES)
    except NotPlain as error:
        raise RuleError(f"{_shown(path)}: {error.strerror}.") from None
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RuleError(f"{_shown(path)}: it cannot be read: {reason}.") from None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RuleError(f"{_shown(path)}:{line}: it is not UTF-8.") from None


def _shown(path: str | Path) -> str:
    """A path as it may be printed: a file's name can hold what moves the cursor."""
    return escaped(str(path))


def _schema_error(path: Path, text: str, message: str) -> RuleError:
    """Say what msgspec found, with the line it is on and the nearest key."""
    place = _AT.search(message)
    table, index, key = (place[1], place[2], place[3]) if place else ("", None, None)
    unknown = _UNKNOWN_FIELD.search(message)
    if unknown:
        inner = {"cases": Case, "variants": Variant}
        known = inner[table].__struct_fields__ if table in inner else tuple(FIELDS)
        line = _line_of(text, unknown[1], table, index)
        hint = nearest(unknown[1], known)
        return RuleError(f"{_shown(path)}:{line}: {unknown[1]!r:.60} is not a key of a rule.{hint}")
    line = _line_of(text, key or table, table, index)
    what = message.split(" - at ")[0][:300].replace("Object missing required field", "it lacks")
    where = f"{key or table}: " if place and table else ""
    return RuleError(f"{_shown(path)}:{line}: {where}{what[:1].lower()}{what[1:]}.")


def _line_of(text: str, key: str, table: str = "", index: str | None = None) -> int:
    """The line a key is written on, from the given table of tables on; 1 if it is not found."""
    start = 0
    if index is not None:
        places = [m.start() for m in re.finditer(rf"^[ \t]*\[\[{table}\]\]", text, re.M)]
        start = places[int(index)] if int(index) < len(places) else 0
    word = re.escape(key)
    # Blanks of this line alone: `\s` would go through all empty lines, from each of them.
    written = rf"^[ \t]*(?:\[+[ \t]*)?['\"]?{word}['\"]?[ \t]*[=.\]]"
    match = re.compile(written, re.M).search(text, start)
    place = match.end() if match else start
    return text.count("\n", 0, place) + 1


class _Checker:
    """Checks what the schema cannot, and parses expressions and templates."""

    def __init__(self, path: Path, text: str, *, in_family: bool) -> None:
        self.path = path
        self.text = text
        self.in_family = in_family

    def fail(self, key: str, what: str) -> RuleError:
        return RuleError(f"{_shown(self.path)}:{_line_of(self.text, key)}: {key}: {what:.500}")

    def check(self, rule: Rule) -> None:
        self._words(rule.file)
        optional = ("unless", "worse_when", "milder_when", "saves", "fits")
        self.parse(rule, "computed", "when", *optional, *_TEMPLATES, "variants")
        for key, condition in (("when", rule.when), ("fits", rule.fits)):
            if condition is not None and not condition.facts:
                raise self.fail(key, "it reads no fact, so it is always the same.")
        self._placeholders(rule, rule.use_instead, rule.when.facts)
        for condition, code in rule.variants:
            self._placeholders(rule, code, rule.when.facts | condition.facts)

    def parse(self, rule: Rule, *keys: str) -> None:
        for key in keys:
            try:
                getattr(rule, key)
            except ExpressionError as error:
                raise self.fail(key, str(error)) from None

    def _words(self, file: RuleFile) -> None:
        if not _ID.fullmatch(file.id):
            raise self.fail("id", f"{file.id!r:.40} is not an id: write OD101.")
        if file.name != self.path.stem or not _NAME.fullmatch(file.name):
            raise self.fail(
                "name", f"it must be words joined by -, equal to the file name {self.path.stem}."
            )
        if self.in_family and file.family != self.path.parent.name:
            raise self.fail("family", f"it must equal the folder, {self.path.parent.name}.")
        if bool(file.use_instead) == (file.code_of is not None):
            raise self.fail(
                "use_instead", "write the code, or name a rule in code_of: one of both."
            )
        if file.when is None and file.check is None:
            raise self.fail("when", "it is missing: only a rule with a check can do without.")
        if file.check is not None and not _NAME.fullmatch(file.check):
            raise self.fail("check", f"{file.check!r:.40} is not words joined by -.")
        if file.remedy not in REMEDIES:
            hint = nearest(file.remedy, REMEDIES)
            raise self.fail("remedy", f"{file.remedy!r:.40} is not a remedy.{hint}")
        for address in file.references:
            if not address.startswith("https://") or not address.isprintable():
                raise self.fail("references", f"{address!r:.60} is not an https address.")
        for name in file.computed:
            if not _COMPUTED.fullmatch(name):
                raise self.fail("computed", f"{name!r:.40} is not a plain lower-case name.")

    def _placeholders(self, rule: Rule, code: Template, known: frozenset[str]) -> None:
        """Code without a value would not run, so each needs one to fall back on."""
        for placeholder in code.placeholders:
            expression = rule.computed.get(placeholder.name)
            needs = expression.facts if expression else {placeholder.name}
            if placeholder.default is None and not needs <= known:
                raise self.fail(
                    "use_instead",
                    f"`when` does not read {{{placeholder.name}}}, so it may be unknown: give a "
                    f"value to fall back on, {{{placeholder.name}|…}}.",
                )
