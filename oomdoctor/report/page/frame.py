"""The page itself: one file that needs nothing else, and lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from oomdoctor._version import __version__
from oomdoctor.report.page.markup import Safe, data_island, join, script, style, tag

DATA = "oomdoctor-data"


def document(
    title: str,
    body: Safe,
    data: dict[str, Any] | None = None,
    *,
    scripts: Sequence[str] = (),
) -> str:
    """Return a whole page.

    The policy in it names our script by its hash: nothing else can run in it, and nothing can be
    fetched, even if a name in the report found a way through the escaping.

    Args:
        title: What the window is called.
        body: All that is shown.
        data: What the scripts draw, as plain values.
        scripts: Files of this package that run after `base.js`.
    """
    code = "".join(_asset(name) for name in ("base.js", *scripts))
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"oomdoctor {__version__}"),
        tag("title", title),
        style(_asset("page.css") + figure_style()),
    )
    island = None if data is None else data_island(DATA, data)
    page = tag("body", tag("main", body), island, script(code), class_="oomdoctor")
    return join(Safe("<!DOCTYPE html>\n"), tag("html", head, page, lang="en"), "\n")


def figure_style() -> str:
    """Return the style of the figures, for a page and for a notebook's cell."""
    return f".oomdoctor {{\n{_asset('figures.css')}}}\n"


@cache
def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
