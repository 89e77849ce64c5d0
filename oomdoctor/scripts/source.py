"""A file → the pieces of Python in it: a script is one piece, a notebook one for each cell.

Nothing is run. Lines that IPython reads itself (`%matplotlib inline`, `!pip install`) are left
out, and cells of another language with them.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from dataclasses import dataclass
from itertools import islice

from oomdoctor.foreign_json import NotJson
from oomdoctor.scripts.names import MENTIONS

MAX_WORDS = 250_000
"""Words and signs in one file: each may take a kilobyte once it is parsed."""
MAX_CODE_BYTES = 2 * 1024 * 1024
"""Code in all cells of a notebook, as JSON has it."""
MAX_NOTES = 20
"""Cells of one notebook that are noted."""
MAX_REASON = 200

TOO_LONG = f"it has more than {MAX_WORDS:,} words and signs"

_AWAIT = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_WORD = re.compile(r"\w+|[^\w\s]")
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_PYTHON_CELLS = frozenset(("capture", "oomwatch", "time", "timeit", "prun", "memit", "python"))
_NAMES = re.compile(r"[\w., ]+")
_IGNORE = re.compile(r"#\s*oomdoctor:\s*ignore(?:\[([^\]]{0,1000})\])?(?![\w-])")
_NOT_FOR_SOURCE = frozenset(("idna", "punycode"))
"""Encodings of names in the web's addresses: they take time that grows faster than the text."""
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
        if codecs.lookup(encoding).name in _NOT_FOR_SOURCE:
            raise NotPython(f"{encoding} is not an encoding for source code")
        # Python ends lines at \n, \r\n and \r alone.
        text = io.TextIOWrapper(io.BytesIO(content), encoding).read()
        if len(text) > MAX_WORDS and _words(text) > MAX_WORDS:
            raise NotPython(TOO_LONG)
        return Piece(text, _parse(text))
    except (SyntaxError, ValueError, LookupError) as error:
        raise NotPython(_reason(error)) from None
    except (RecursionError, MemoryError):
        raise NotPython("it is nested too deep") from None


def read_notebook(content: bytes) -> tuple[list[Piece], list[str]]:
    """Return the cells of a notebook that are Python, and a note for each that is not."""
    from oomdoctor.scripts.cells import code_cells, text_of_cell

    pieces: list[Piece] = []
    notes: list[str] = []
    code_bytes = words = 0
    for number, source in code_cells(content):
        code_bytes += len(source)
        try:
            text = text_of_cell(source) if code_bytes <= MAX_CODE_BYTES else ""
            words += _words(text)
            if code_bytes > MAX_CODE_BYTES or words > MAX_WORDS:
                notes.append(f"cell {number} and those after it were not checked: too much code")
                break
            piece = _cell(text, number)
        except (SyntaxError, ValueError, NotJson) as error:
            notes.append(f"cell {number} is not Python: {_reason(error)}")
        except (RecursionError, MemoryError):
            notes.append(f"cell {number} is nested too deep")
        else:
            pieces += [piece] if piece else []
    if len(notes) > MAX_NOTES:
        notes[MAX_NOTES:] = [f"{len(notes) - MAX_NOTES:,} more notes on cells"]
    return pieces, notes


def lines_of_notebook(content: bytes) -> int:
    """Return the lines of code in a notebook; outputs and text are none."""
    from oomdoctor.scripts.cells import code_cells, text_of_cell

    lines = 0
    try:
        for _, source in code_cells(content):
            if len(source) <= MAX_CODE_BYTES:
                text = text_of_cell(source)
                lines += text.count("\n") + bool(text)
    except (NotPython, NotJson, RecursionError, MemoryError):
        pass
    return lines


def _words(text: str) -> int:
    """Return how many words and signs a text has, or that there are too many."""
    return sum(1 for _ in islice(_WORD.finditer(text), MAX_WORDS + 1))


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
    names, sign, rest = line.partition("=")
    if sign and rest.lstrip()[:1] in ("%", "!") and _NAMES.fullmatch(names.lstrip()):
        return f"{line[: len(line) - len(rest.lstrip())]}None"
    bare = line.strip()
    if bare[:1] in ("%", "!", "?") or bare[-1:] == "?":
        return f"{line[: len(line) - len(line.lstrip())]}pass" if bare else line
    return line


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in strings that are not ours to mend
        tree: ast.Module = compile(text, "<script>", "exec", flags=_AWAIT, dont_inherit=True)
    return tree


def _reason(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno or 1}: {error.msg}"[:MAX_REASON]
    return (str(error) or type(error).__name__)[:MAX_REASON]


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
