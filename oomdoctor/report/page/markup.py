"""HTML that cannot be broken into: whatever is not made here is escaped."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from oomdoctor.report.escape import printable

_VOID = frozenset(("meta", "br", "hr", "input"))
_CODE = re.compile(r"`([^`]+)`")


class Safe(str):
    """Text that is HTML already. Only this module makes it, out of escaped parts."""

    __slots__ = ()


Child = str | None


def tag(name: str, /, *children: Child, **attributes: str | bool | None) -> Safe:
    r"""Return an element. Strings inside it are escaped, None is left out.

    An underscore at the end of an attribute is dropped, one inside becomes a hyphen; an attribute
    that is None or False is left out.

    Example:
        >>> tag("p", "a < b", tag("b", "c"), class_="x")
        '<p class="x">a &lt; b<b>c</b></p>'
    """
    written = "".join(
        f" {_attribute(key)}"
        if value is True
        else f' {_attribute(key)}="{html.escape(_shown(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Safe(f"<{name}{written}>")
    return Safe(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Safe:
    """Return elements and strings one after the other; strings are escaped."""
    return Safe(
        "".join(
            child if isinstance(child, Safe) else html.escape(_shown(child))
            for child in children
            if child is not None
        )
    )


def with_code(text: str) -> Safe:
    """Return a sentence with what stands in backticks as code.

    Example:
        >>> with_code("`a<b` grows")
        '<code>a&lt;b</code> grows'
    """
    pieces = _CODE.split(text)
    return join(*(tag("code", p) if number % 2 else p for number, p in enumerate(pieces)))


def script(text: str) -> Safe:
    """Return a script of ours. It comes from a file of this package, never from a report."""
    return Safe(f"<script>{text}</script>")


def style(text: str) -> Safe:
    """Return a style sheet of ours."""
    return Safe(f"<style>{text}</style>")


def data_island(identity: str, value: Any) -> Safe:
    r"""Return plain values as JSON that a script can read and that cannot end its element.

    Example:
        >>> data_island("d", ["</script>"])
        '<script type="application/json" id="d">["\\u003c/script\\u003e"]</script>'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: also no U+2028
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    text = text.replace("##", "#\\u0023")  # a command to some CI systems
    return Safe(f'<script type="application/json" id="{html.escape(identity)}">{text}</script>')


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _shown(text: str) -> str:
    """Text without control characters; lines stay lines."""
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))
