"""Paths → Scripts: finds the Python files, walks each, and gathers the matches."""

from __future__ import annotations

import ast
import os
import stat
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from oomdoctor.facts import CodeMatch, Scripts
from oomdoctor.scripts.projects import Project, Shelf
from oomdoctor.scripts.source import (
    NotPython,
    Piece,
    ignored_lines,
    lines_of_notebook,
    mentions,
    read_notebook,
    read_script,
)
from oomdoctor.scripts.walker import TooMuch, Walker

SUFFIXES = (".py", ".ipynb")
MAX_SCRIPT_BYTES = 2 * 1024 * 1024
MAX_NOTEBOOK_BYTES = 64 * 1024 * 1024
"""Notebooks keep their pictures."""
MAX_FILES = 100_000
MAX_MATCHES = 1000
"""Places told of in one file."""
MAX_TEXT = 60
MAX_NAME = 200
"""Characters that are kept of a name in the code."""
MAX_LINES = 1000
"""Lines of a piece of code that are searched for comments."""
MAX_UNPARSED = 2000
"""Characters of a piece of code that is written again on one line."""
FAILED = "the checks failed on it"
MAX_NOTES = 20

_PASSED_OVER = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages"))


def is_script(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a script or a notebook, by its name.

    Example:
        >>> is_script("train.py"), is_script("data.npy")
        (True, False)
    """
    return os.fspath(path).endswith(SUFFIXES)


def find_scripts(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the scripts below a folder, by name.

    Hidden folders, installed packages and virtual environments are passed over; a folder that is
    given is walked, whatever it is. Links to folders are not followed.
    """
    stack = [os.fspath(folder)]
    while stack:
        place = stack.pop()
        try:
            with os.scandir(place) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in inside:
            name = entry.name
            if name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if name not in _PASSED_OVER and not _is_environment(entry.path):
                    folders.append(entry.path)
            elif name.endswith(SUFFIXES) and entry.is_file():
                yield entry.path
        stack += reversed(folders)


def _is_environment(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, "pyvenv.cfg"))


def scan_scripts(paths: Sequence[str | os.PathLike[str]]) -> Scripts:
    """Return what the checks find in files, and in the scripts below folders."""
    found: dict[str, None] = {}
    for path in paths:
        inside = find_scripts(path) if os.path.isdir(path) else [os.fspath(path)]
        for name in inside:
            found.setdefault(os.path.normpath(name))
            if len(found) > MAX_FILES:
                break
    notes: list[str] = []
    if len(found) > MAX_FILES:
        notes.append(f"only the first {MAX_FILES:,} scripts were read")
    lines = 0
    unchecked = max(0, len(found) - MAX_FILES)
    matches: list[CodeMatch] = []
    shelf = Shelf()
    for name in list(found)[:MAX_FILES]:
        noted = len(notes)
        content = _read(name, notes)
        if content is not None:
            lines += _code_lines(name, content)
            if mentions(content) or shelf.leads_to_framework(name, content):
                matches += _matches(name, content, notes, shelf)
        unchecked += len(notes) > noted
    more = len(notes) - MAX_NOTES
    if more > 0:
        notes[MAX_NOTES:] = [f"{more:,} more scripts could not be read"]
    return Scripts(
        files=len(found),
        lines=lines,
        unchecked=unchecked,
        matches=tuple(matches),
        notes=tuple(notes),
    )


def _read(path: str, notes: list[str]) -> bytes | None:
    limit = MAX_NOTEBOOK_BYTES if path.endswith(".ipynb") else MAX_SCRIPT_BYTES
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            notes.append(f"{path} is not a file")
            return None
        if status.st_size > limit:
            notes.append(f"{path} is larger than {limit // 2**20} MiB and was not read")
            return None
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError as error:
        notes.append(f"{path} cannot be read ({error.strerror})")
        return None


def _code_lines(path: str, content: bytes) -> int:
    """Return the lines of a script, or of the code in a notebook's cells."""
    if path.endswith(".ipynb"):
        return lines_of_notebook(content)
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def _matches(path: str, content: bytes, notes: list[str], shelf: Shelf) -> list[CodeMatch]:
    try:
        if path.endswith(".ipynb"):
            pieces, about = read_notebook(content)
            notes += [f"{path}: {note}" for note in about]
        else:
            pieces = [read_script(content)]
        return check_pieces(pieces, path, shelf)
    except NotPython as error:
        notes.append(f"{path} was not checked: {error}")
    except RecursionError:
        notes.append(f"{path} was not checked: it is nested too deep")
    except MemoryError:
        notes.append(f"{path} was not checked: it needs too much memory")
    except TooMuch:
        notes.append(f"{path} was not checked: it has too many names and branches")
    # A file that no check was written for may fail in any way, and must not end the scan.
    except Exception as error:  # noqa: BLE001, RUF100
        notes.append(f"{path} was not checked: {FAILED} ({type(error).__name__})")
    return []


def check_source(text: str, file: str = "script.py") -> tuple[CodeMatch, ...]:
    """Return what the checks find in Python source.

    Example:
        >>> code = "import tensorflow as tf; data = list(tf.data.TFRecordDataset('a'))"
        >>> [(match.check, match.line) for match in check_source(code)]
        [('dataset-held-in-list', 1)]
    """
    return tuple(check_pieces([read_script(text.encode())], file))


def check_pieces(pieces: list[Piece], file: str, shelf: Shelf | None = None) -> list[CodeMatch]:
    """Return what the checks find in pieces that are run one after the other."""
    project = Project(shelf, file) if shelf is not None else None
    walker = Walker(project, knows_framework=shelf is not None)
    starts: list[int] = []
    body: list[ast.stmt] = []
    end = 0
    for piece in pieces:
        starts.append(end)
        if end:
            ast.increment_lineno(piece.tree, end)
        body += piece.tree.body
        end += piece.text.count("\n") + 1
    walker.module(ast.Module(body=body, type_ignores=[]))
    made: dict[int, tuple[list[str], dict[int, tuple[str, ...]]]] = {}
    matches = []
    for check, node, more in walker.matches[:MAX_MATCHES]:
        index = bisect_right(starts, _start(node)[0] - 1) - 1
        if index not in made:
            text = pieces[index].text
            made[index] = text.split("\n"), ignored_lines(text)
        matches.append(
            _match(file, pieces[index].cell, check, node, more, starts[index], *made[index])
        )
    return sorted(matches, key=lambda match: (match.cell or 0, match.line, match.column))


def _match(
    file: str,
    cell: int | None,
    check: str,
    node: Any,
    more: dict[str, Any],
    start: int,
    lines: list[str],
    ignored: dict[int, tuple[str, ...]],
) -> CodeMatch:
    line, column = _start(node)
    line -= start
    last = (line if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else
            node.end_lineno - start)  # fmt: skip
    last = min(last, line + MAX_LINES)
    rules = {rule for at in range(line, last + 1) for rule in ignored.get(at, ())}
    if check == "shuffle-of-whole-batches" and _has_comment_between(node, lines, start):
        more = {**more, "is_fixable": False}  # it would end up beside the other call
    return CodeMatch(
        check=check,
        file=file,
        line=line,
        column=len(_part(lines[line - 1], 0, column)) + 1,
        cell=cell,
        text=_shown(node, lines, start),
        ignored=tuple(sorted(rules)),
        **{key: _cut(value) for key, value in more.items()},
    )


def _cut(value: Any) -> Any:
    return value[:MAX_NAME] if isinstance(value, str) else value


def _has_comment_between(node: Any, lines: list[str], start: int) -> bool:
    """Return whether a comment may stand between a call and the one before it in the chain."""
    before, call = node.func.value.end_lineno - start, node.func.end_lineno - start
    return call - before > MAX_LINES or any("#" in line for line in lines[before - 1 : call - 1])


def _start(node: Any) -> tuple[int, int]:
    """Return where a reader looks: at the method, where a call ends a chain of them."""
    function = getattr(node, "func", None)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        width = len(function.attr.encode())
        return function.end_lineno or 1, (function.end_col_offset or width) - width
    return node.lineno, node.col_offset


def _part(line: str, start: int, end: int | None) -> str:
    """Return a part of a line: the tree counts bytes, people count characters."""
    return line[start:end] if line.isascii() else line.encode()[start:end].decode(errors="replace")


def _shown(node: Any, lines: list[str], start: int) -> str:
    """Return the code on one line, shortened."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return f"def {node.name}"[:MAX_TEXT]
    first, last = node.lineno - start - 1, node.end_lineno - start - 1
    shows_end = isinstance(node, ast.Call) and _start(node) != (node.lineno, node.col_offset)
    if first == last:
        text = _part(lines[first], node.col_offset, node.end_col_offset)
    elif last - first < MAX_LINES and sum(map(len, lines[first : last + 1])) < MAX_UNPARSED:
        text = " ".join(ast.unparse(node).split())  # without the comments between
    elif shows_end:
        return "…" + _part(lines[last], 0, node.end_col_offset)[-MAX_TEXT + 1 :]
    else:
        return _part(lines[first], node.col_offset, None)[: MAX_TEXT - 1] + "…"
    if len(text) <= MAX_TEXT:
        return text
    return "…" + text[-MAX_TEXT + 1 :] if shows_end else text[: MAX_TEXT - 1] + "…"
