"""A file → the pieces of Python in it: a script is one piece, a notebook one for each cell.

Nothing is run. Lines that IPython reads itself (`%matplotlib inline`, `!pip install`) are left
out, and cells of another language with them.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
import warnings
from dataclasses import dataclass

from oomdoctor.scripts.names import MENTIONS

_AWAIT = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_PYTHON_CELLS = frozenset(("capture", "oomwatch", "time", "timeit", "prun", "memit", "python"))
_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|.*\?\??\s*)$")
_ASSIGNED_MAGIC = re.compile(r"^(\s*[\w., ]+=\s*)[%!].*$")
_IGNORE = re.compile(r"#\s*oomdoctor:\s*ignore(?:\[([^\]]*)\])?(?![\w-])")
ALL_RULES = ("*",)


class NotPython(Exception):
    """The file cannot be read as Python; the message says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Python that is parsed in one go."""

    text: str
    tree: ast.Module
    cell: int | None = None


def mentions(content: bytes) -> bool:
    """Return whether a file can import TensorFlow or Keras at all."""
    return any(word in content for word in MENTIONS)


def read_script(content: bytes) -> Piece:
    """Return a script, parsed, or raise `NotPython` with the reason."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        # Python ends lines at \n, \r\n and \r alone.
        text = io.TextIOWrapper(io.BytesIO(content), encoding).read()
        return Piece(text, _parse(text))
    except (SyntaxError, ValueError, LookupError) as error:
        raise NotPython(_reason(error)) from None
    except (RecursionError, MemoryError):
        raise NotPython("it is nested too deep") from None


def read_notebook(content: bytes) -> tuple[list[Piece], list[str]]:
    """Return the cells of a notebook that are Python, and a note for each that is not."""
    try:
        notebook = json.loads(content)
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise NotPython("it is not a notebook") from None
    pieces: list[Piece] = []
    notes: list[str] = []
    for number, cell in enumerate(cells if isinstance(cells, list) else (), 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        lines = cell.get("source", cell.get("input", ""))
        text = lines if isinstance(lines, str) else "".join(map(str, lines or ()))
        try:
            piece = _cell(text, number)
        except (SyntaxError, ValueError) as error:
            notes.append(f"cell {number} is not Python: {_reason(error)}")
        except (RecursionError, MemoryError):
            notes.append(f"cell {number} is nested too deep")
        else:
            pieces += [piece] if piece else []
    return pieces, notes


def _cell(text: str, number: int) -> Piece | None:
    magic = _CELL_MAGIC.match(text)
    if magic is not None:
        if magic[1] not in _PYTHON_CELLS:
            return None
        text = "\n" + text.partition("\n")[2]
    try:
        return Piece(text, _parse(text), number)
    except SyntaxError:
        plain = "\n".join(map(_without_magic, text.split("\n")))
        return Piece(plain, _parse(plain), number)


def _without_magic(line: str) -> str:
    assigned = _ASSIGNED_MAGIC.match(line)
    if assigned is not None:
        return f"{assigned[1]}None"
    magic = _MAGIC.match(line)
    return f"{magic[1]}pass" if magic else line


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in strings that are not ours to mend
        tree: ast.Module = compile(text, "<script>", "exec", flags=_AWAIT, dont_inherit=True)
    return tree


def _reason(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno or 1}: {error.msg}"
    return str(error) or type(error).__name__


def ignored_lines(text: str) -> dict[int, tuple[str, ...]]:
    """Return the rules that comments suppress, by line; `*` is all of them.

    Example:
        >>> ignored_lines("x = 1  # oomdoctor: ignore[OD904, OD905]")
        {1: ('OD904', 'OD905')}
    """
    if "oomdoctor:" not in text:
        return {}
    found: dict[int, tuple[str, ...]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
            if match is not None:
                words = tuple(word.strip().upper() for word in (match[1] or "").split(","))
                found[token.start[0]] = tuple(filter(None, words)) or ALL_RULES
    except (tokenize.TokenError, SyntaxError):
        pass
    return found
