"""Lets values show themselves without knowing how.

Facts and findings lie below the renderers and may not import them. `api`, which lies above
both, says here which functions draw a value.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Protocol


class Drawing(Protocol):
    """Draws any value that oomdoctor hands to a user."""

    def text(self, value: Any) -> str:
        """Return the readable table."""

    def html(self, value: Any) -> str:
        """Return the same for a notebook."""

    def plain(self, value: Any) -> dict[str, Any]:
        """Return the same as plain JSON values."""

    def frame(self, value: Any) -> Any:
        """Return its rows as a pandas DataFrame."""


_drawing: Drawing | None = None


def draw_with(drawing: Drawing) -> None:
    """Say what draws every `Readable` value."""
    global _drawing  # noqa: PLW0603 - set once, when `api` is imported
    _drawing = drawing


class Readable:
    """A frozen value whose `repr` is a table, with HTML for notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        if _drawing is not None:
            return _drawing.text(self)
        if not is_dataclass(self):
            return f"{type(self).__name__}({self})"
        inside = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{type(self).__name__}({inside})"

    def _repr_html_(self) -> str | None:
        return None if _drawing is None else _drawing.html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as the JSON output has them."""
        assert _drawing is not None  # set when `api`, the only door to these values, was imported
        return _drawing.plain(self)

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        assert _drawing is not None
        return _drawing.frame(self)
