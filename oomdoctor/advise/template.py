"""Text and code with facts filled in.

A placeholder is a fact in braces, `{data.decoded_bytes}`, or a number the rule computes,
`{computed.batch_size}`; `{data.batch_size|32}` stands for 32 where the fact is not known. A brace
that is meant is written twice.

In code a line that begins with `{?data.labels_path}` is kept only where that fact is known (and
not false or zero), and one that begins with `{!data.labels_path}` only where it is not.

In a message a value reads as a person writes it (4.09 GiB), and control characters are escaped.
In code a text becomes a Python string literal, whatever it holds, and a number stays a number:
a path cannot break out of its quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oomdoctor.advise.grammar import ExpressionError
from oomdoctor.advise.vocabulary import FACTS, nearest
from oomdoctor.units import format_bytes

_PIECE = re.compile(
    r"\{(?P<guard>[?!])(?P<guarded>[A-Za-z_]+\.[A-Za-z0-9_]+)\}"
    r"|(?P<open>\{\{)|(?P<close>\}\})"
    r"|\{(?P<name>[A-Za-z_]+\.[A-Za-z0-9_]+)(?:\|(?P<default>[^{}\n]*))?\}"
    r"|(?P<lone>[{}])"
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A fact to be filled in."""

    name: str
    kind: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Guard:
    """Keeps the line it begins, or drops it."""

    name: str
    keeps_known: bool

    def drops(self, values: Mapping[str, Any]) -> bool:
        """Return whether the line goes."""
        return bool(values.get(self.name)) is not self.keeps_known


@dataclass(frozen=True, slots=True)
class Template:
    """Text in pieces: literal strings, placeholders, and what drops lines."""

    pieces: tuple[str | Placeholder | Guard, ...]

    @property
    def facts(self) -> frozenset[str]:
        """All names it reads."""
        return frozenset(piece.name for piece in self.pieces if not isinstance(piece, str))

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The facts it names, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Placeholder))


def parse_template(text: str, computed: Mapping[str, Any], *, is_code: bool = False) -> Template:
    """Return a template, or raise `ExpressionError` for a placeholder that cannot be filled.

    Args:
        text: Text with placeholders.
        computed: Names of the numbers the rule computes.
        is_code: Whether values are to be Python literals.
    """
    pieces: list[str | Placeholder | Guard] = []
    end = 0
    for match in _PIECE.finditer(text):
        pieces.append(text[end : match.start()])
        end = match.end()
        if match["lone"]:
            raise ExpressionError(
                f"a lone {match['lone']} near {text[match.start() :][:30]!r}: write it twice, "
                "or name a fact in braces."
            )
        if match["guard"]:
            after_guard = pieces[-1] == "" and isinstance(pieces[-2:][0], Guard)
            begins = after_guard or match.start() == 0 or text[match.start() - 1] == "\n"
            _check_guard(match, begins_line=is_code and begins)
            pieces.append(Guard(match["guarded"], match["guard"] == "?"))
            continue
        if match["open"] or match["close"]:
            pieces.append("{" if match["open"] else "}")
            continue
        placeholder = _placeholder(match["name"], match["default"], computed)
        if is_code and placeholder.kind == "text" and text[match.start() - 1] in "\"'":
            raise ExpressionError(
                f"leave out the quotes around {{{placeholder.name}}}: they are added, "
                "and the path inside them escaped."
            )
        pieces.append(placeholder)
    pieces.append(text[end:])
    return Template(tuple(piece for piece in pieces if piece != ""))


def _check_guard(match: re.Match[str], *, begins_line: bool) -> None:
    name = match["guarded"]
    if name not in FACTS:
        raise ExpressionError(f"{match[0]}: {name} is not a fact.{nearest(name, FACTS)}")
    if not begins_line:
        raise ExpressionError(f"{match[0]} keeps or drops a line of code: it must begin one.")


def _placeholder(name: str, default: str | None, computed: Mapping[str, Any]) -> Placeholder:
    if name in computed:
        kind = "bytes" if name.endswith("_bytes") else "count"
    elif name in FACTS:
        kind = FACTS[name].kind
    else:
        raise ExpressionError(f"{{{name}}} is not a fact.{nearest(name, [*FACTS, *computed])}")
    if default is not None and kind != "text" and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", default):
        raise ExpressionError(f"{{{name}|{default}}}: the value to fall back on must be a number.")
    return Placeholder(name, kind, default)


def render_text(template: Template, values: Mapping[str, Any]) -> str:
    """Return a message for a person."""
    return "".join(
        piece if isinstance(piece, str) else _as_text(piece, values.get(piece.name))
        for piece in template.pieces
        if not isinstance(piece, Guard)
    )


def render_code(template: Template, values: Mapping[str, Any]) -> str:
    """Return code in which every value is a literal, without the lines that do not apply."""
    code: list[str] = []
    drops = False
    for piece in template.pieces:
        if isinstance(piece, Guard):
            drops = drops or piece.drops(values)
        elif isinstance(piece, Placeholder):
            if not drops:
                code.append(_as_code(piece, values.get(piece.name)))
        elif not drops:
            code.append(piece)
        elif "\n" in piece:  # here the line ends
            drops = False
            code.append(piece.partition("\n")[2])
    return "".join(code)


def _as_text(placeholder: Placeholder, value: Any) -> str:
    kind = placeholder.kind
    if value is None:
        return "unknown" if placeholder.default is None else placeholder.default
    if kind == "bytes":
        return format_bytes(value)
    if kind == "version":
        return version_text(value)
    if kind == "flag":
        return "yes" if value else "no"
    if kind == "text":
        return escaped(str(value))
    # 1499.6 and 16283 read best whole, 1.5 does not.
    return f"{value:,.0f}" if kind == "count" or abs(value) >= 100 else f"{value:.1f}"


def _as_code(placeholder: Placeholder, value: Any) -> str:
    kind = placeholder.kind
    if value is None:
        if placeholder.default is None:
            return "..."
        value = placeholder.default
        return value if kind != "text" else string_literal(value)
    if kind == "text":
        return string_literal(str(value))
    if kind == "version":
        return string_literal(version_text(value))
    if kind == "flag":
        return "True" if value else "False"
    return str(int(value)) if kind in ("bytes", "count") else f"{value:g}"


def string_literal(text: str) -> str:
    r"""Return a Python literal that evaluates to the text, on one line.

    Example:
        >>> print(string_literal('a"b\n'))
        "a\"b\n"
    """
    escape = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escape.get(char) or escaped(char) for char in text) + '"'


def escaped(text: str) -> str:
    r"""Return text in which what cannot be printed is spelled out.

    Example:
        >>> print(escaped("a\x1b[31mb"))
        a\x1b[31mb
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def version_text(number: int) -> str:
    """Return a version as people write it.

    Example:
        >>> version_text(22100)
        '2.21.0'
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
