"""Diagnoses files, texts and exceptions: the door to this package."""

from __future__ import annotations

import os
import traceback
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import IO

from oomdoctor.diagnose.collect import collect
from oomdoctor.diagnose.judge import judge
from oomdoctor.diagnose.read import Reader
from oomdoctor.facts import Diagnosis

MOST_TRACEBACK = 2_000_000
"""Characters; an exception may carry a whole dump."""


def diagnose_files(
    paths: Iterable[str | os.PathLike[str]],
    stdin: IO[bytes] | None,
    *,
    batch_size: int | None = None,
) -> Diagnosis:
    """Return the diagnosis of logs, taken as one run.

    Args:
        paths: Files, folders of logs, notebooks; `-` is `stdin`.
        stdin: Read where a path is `-`.
        batch_size: The batch size of the run, where it is known.

    Raises:
        InputError: One of them cannot be read.
    """
    reader = Reader()
    diagnosis = judge(collect(reader.lines(paths, stdin), reader.notes), batch_size=batch_size)
    return _located(diagnosis, reader.starts) if len(reader.starts) > 1 else diagnosis


def _located(diagnosis: Diagnosis, starts: list[tuple[int, str]]) -> Diagnosis:
    """The diagnosis with the name of the file in each line, and the line's number in it."""
    offsets = [offset for offset, _ in starts]

    def located(evidence: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
        found = []
        for number, text in evidence:
            offset, name = starts[bisect_left(offsets, number) - 1]
            found.append((number - offset, f"{name}: {text}"))
        return tuple(found)

    others = (replace(o, evidence=located(o.evidence)) for o in diagnosis.alternatives)
    return replace(diagnosis, evidence=located(diagnosis.evidence), alternatives=tuple(others))


def diagnose_text(text: str, *, batch_size: int | None = None) -> Diagnosis:
    """Return the diagnosis of a text."""
    reader = Reader()
    return judge(collect(reader.text(text), reader.notes), batch_size=batch_size)


def diagnose_exception(error: BaseException, *, batch_size: int | None = None) -> Diagnosis:
    """Return the diagnosis of an exception and its traceback."""
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception:  # an exception whose own text cannot be had
        lines = [type(error).__name__]
    return diagnose_text("".join(lines)[-MOST_TRACEBACK:], batch_size=batch_size)


def is_about_memory(diagnosis: Diagnosis) -> bool:
    """Whether memory is the matter, fatal or not."""
    return diagnosis.cause not in ("not_memory", "no_failure")


def verdict_of(diagnosis: Diagnosis) -> str:
    """Return whether the run fits: `fits`, `does_not_fit` or `unknown`."""
    if diagnosis.cause == "not_memory":
        return "unknown"
    return "does_not_fit" if is_about_memory(diagnosis) and diagnosis.is_fatal else "fits"
