"""Names and log text are strangers: no control character of theirs reaches a terminal."""

from __future__ import annotations


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
