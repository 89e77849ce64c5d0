"""Names, logs and rules are strangers: none of their text may act where it is printed.

A terminal obeys control characters. A CI system obeys lines: GitHub those that begin with `::`
after blanks, Azure, TeamCity and older runners of GitHub what is written as `##[…]` or
`##word[…]` anywhere.
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

_SECTION = re.compile(r"##(?=[\w-]*\[)")
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_FOREIGN_COMMAND = re.compile(r"^([^\S\n]*):(?=:)(?!(?<=^:):(?:error|warning|notice) file=)", re.M)
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")

Value = TypeVar("Value")


def printable(text: str) -> str:
    r"""Return text with everything that is not printable written as an escape.

    Example:
        >>> printable("a\x1b[2Jb\udcff")
        'a\\x1b[2Jb\\udcff'
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def cut(text: str, width: int) -> str:
    """Return text no wider than `width`, keeping its beginning, which says what it is.

    Example:
        >>> cut("python train.py --epochs 3", 10)
        'python tr…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def shorten(text: str, width: int) -> str:
    """Return text no wider than `width`, keeping its end, which tells paths apart.

    Example:
        >>> shorten("a/very/long/path.npy", 10)
        '…/path.npy'
    """
    return text if len(text) <= width else "…" + text[-(width - 1) :]


def harmless(text: str, format_: str = "text", *, colour: bool = False) -> str:
    r"""Return a finished text that no terminal and no CI system obeys, whatever it quotes.

    Each format has its own way to write a character so that a reader finds it unchanged; in text
    and Markdown a blank is put in.

    Example:
        >>> print(harmless("fine\n  ::error::gotcha \x1b[2J ##vso[x]"))
        fine
          : :error::gotcha \x1b[2J ## vso[x]

    Args:
        text: What is to be printed.
        format_: One of the formats of a report. With `github`, our own commands stay commands.
        colour: Whether codes of colour are ours, because everything else was escaped before.
    """
    if format_ in ("json", "sarif", "gitlab"):
        return _SECTION.sub(r"#\\u0023", text).replace("\x7f", r"\u007f")
    if colour:
        pieces = _COLOUR.split(text)
        text = "".join(p if n % 2 else _lines(p) for n, p in enumerate(pieces))
    else:
        text = _lines(text)
    if format_ in ("junit", "html"):
        return _COMMAND.sub(r"\1&#58;", _SECTION.sub("#&#35;", text))
    command = _FOREIGN_COMMAND if format_ == "github" else _COMMAND
    return command.sub(r"\1: ", _SECTION.sub("## ", text))


def _lines(text: str) -> str:
    """Return text in which only the ends of lines and tabs are not printable."""
    if text.isprintable():
        return text
    return re.sub(r"[^\n\t]+", lambda match: printable(match[0]), text)


def cleaned(value: Value) -> Value:
    """Return a view in which every text is printable, on one line except in code."""
    if isinstance(value, tuple):
        return tuple(_cleaned(item, "") for item in value)  # type: ignore[return-value]
    assert is_dataclass(value)
    changed = {item.name: _cleaned(getattr(value, item.name), item.name) for item in fields(value)}
    return replace(value, **changed)  # type: ignore[type-var]


def _cleaned(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return _lines(value) if name == "code" else printable(value)
    return cleaned(value) if isinstance(value, tuple) or is_dataclass(value) else value
