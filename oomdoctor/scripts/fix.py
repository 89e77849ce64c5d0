"""Changes scripts where that is safe, and keeps their comments and layout.

Safe means: the program does the same, with less memory. A change of samples, of files or of what
a function is given is left to people. Notebooks are not changed, nor is what a link leads to
outside of the folder it is in: a project may not have others' files changed.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from oomdoctor._optional import require
from oomdoctor.facts import CodeMatch
from oomdoctor.scripts.scan import check_pieces
from oomdoctor.scripts.source import read_script

MAX_PASSES = 5
"""One change may make room for another, seldom for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A script before and after."""

    file: str
    before: bytes
    after: bytes
    places: int
    """How many mistakes were changed."""

    def diff(self) -> str:
        """Return the change as a unified diff."""
        before, after = (_lines(content) for content in (self.before, self.after))
        name = self.file.replace(os.sep, "/").lstrip("/")
        return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))

    def write(self) -> None:
        """Write the script anew, in one step: whoever reads it sees all of it or the old one."""
        path = os.path.realpath(self.file)
        mode = stat.S_IMODE(os.stat(path).st_mode)
        handle, new = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".oomdoctor-")
        try:
            with open(handle, "wb") as file:
                file.write(self.after)
            os.chmod(new, mode)
            os.replace(new, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise


def _lines(content: bytes) -> list[str]:
    text = content.decode("utf-8", "backslashreplace")
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file\n"
    return lines


def fix_scripts(matches: Iterable[CodeMatch]) -> list[Change]:
    """Return what `--fix` makes of the scripts with these matches; nothing is written."""
    by_file: dict[str, set[str]] = {}
    for match in matches:
        if match.is_fixable and match.cell is None and _is_at_home(match.file):
            by_file.setdefault(match.file, set()).add(match.check)
    if not by_file:
        return []
    require("libcst", extra="fix", purpose="to change scripts")
    changes = []
    for file, checks in by_file.items():
        try:
            with open(file, "rb") as opened:
                before = opened.read()
            after, places = fix_source(before, checks=checks)
        # Gone by now, or nested deeper than libcst can follow: either way not safe to change.
        except Exception:  # noqa: BLE001, RUF100
            continue
        if after != before:
            changes.append(Change(file=file, before=before, after=after, places=places))
    return changes


def _is_at_home(file: str) -> bool:
    folder = os.path.realpath(os.path.dirname(file))
    return os.path.realpath(file).startswith(os.path.join(folder, ""))


def fix_source(content: bytes, *, checks: Iterable[str]) -> tuple[bytes, int]:
    """Return a script without the mistakes that these checks find and that are safe to change.

    Example:
        >>> code = b"import keras; model.fit_generator(batches, 10)  # slow"
        >>> fix_source(code, checks=["old-generator-method"])[0].decode()
        'import keras; model.fit(batches, steps_per_epoch=10)  # slow'
    """
    from oomdoctor.scripts.fix_tree import change

    wanted = frozenset(checks)
    found = _fixable(content, wanted)
    places = len(found)
    for _ in range(MAX_PASSES):
        changed = change(content, found) if found else content
        if changed == content:
            break
        content, found = changed, _fixable(changed, wanted)
    return content, places - len(found)


def _fixable(content: bytes, checks: frozenset[str]) -> list[CodeMatch]:
    return [
        match
        for match in check_pieces([read_script(content)], "")
        if match.is_fixable and match.check in checks and not match.ignored
    ]
