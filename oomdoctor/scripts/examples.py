"""Whether the code that a rule shows has the mistake, and the code it prescribes has not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from oomdoctor.scripts.scan import check_source
from oomdoctor.scripts.source import NotPython

CHECKS = (
    "array-as-constant",
    "bytes-to-float64",
    "cache-in-ram",
    "cache-of-batches",
    "copy-of-dataset",
    "dataset-held-in-list",
    "dataset-read-in-getitem",
    "floatx-of-64-bits",
    "function-made-in-loop",
    "growth-not-set",
    "large-array",
    "load-without-memory-map",
    "model-built-in-loop",
    "old-generator-method",
    "one-hot-labels",
    "partial-batch-under-strategy",
    "pictures-read-into-list",
    "predict-in-loop",
    "replay-buffer-in-ram",
    "retraced-for-each-number",
    "shuffle-of-everything",
    "shuffle-of-pictures",
    "shuffle-of-whole-batches",
    "slices-of-whole-array",
    "split-that-does-not-divide",
    "tensor-kept-in-loop",
)
"""All that a rule can name. Stable identifiers."""


def example_problems(check: str, example: str, codes: Iterable[str]) -> list[str]:
    """Return what is wrong with the code of a rule about code, in sentences.

    Example:
        >>> example_problems("cache-in-rum", "", [])
        ['cache-in-rum is not a check. Did you mean cache-in-ram?']
    """
    if check not in CHECKS:
        near = difflib.get_close_matches(check, CHECKS, n=1)
        hint = f" Did you mean {near[0]}?" if near else f" Known: {', '.join(CHECKS)}."
        return [f"{check} is not a check.{hint}"]
    found = []
    if check not in _found(example):
        found.append(f"{check} finds nothing in example.")
    if any(check in _found(code) for code in codes):
        found.append(f"{check} finds its mistake in use_instead as well.")
    return found


def _found(code: str) -> set[str]:
    try:
        return {match.check for match in check_source(code)}
    except NotPython:
        return set()
