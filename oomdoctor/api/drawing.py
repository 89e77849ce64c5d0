"""How values show themselves: the renderers, handed to `_show`."""

from __future__ import annotations

from typing import Any


class Drawing:
    """Draws every value that the functions above hand out."""

    def text(self, value: Any) -> str:
        """Return the readable table."""
        from oomdoctor.report import text
        from oomdoctor.report.escape import harmless
        from oomdoctor.report.views import view_of

        return harmless(text.render(view_of(_shown(value))))

    def html(self, value: Any) -> str:
        """Return the same for a notebook."""
        from oomdoctor.report import html
        from oomdoctor.report.page.figures import figures_of_value
        from oomdoctor.report.views import view_of

        shown = _shown(value)
        return html.render(view_of(shown), figures_of_value(shown))

    def plain(self, value: Any) -> dict[str, Any]:
        """Return the same as plain JSON values."""
        from oomdoctor.report.frame import plain_value

        return plain_value(_shown(value))

    def frame(self, value: Any) -> Any:
        """Return its rows as a pandas DataFrame."""
        from oomdoctor.report.frame import frame

        return frame(_shown(value))


def _shown(value: Any) -> Any:
    # A batch size is an int that carries its search; the search is what there is to see.
    return getattr(value, "tuning", value)
