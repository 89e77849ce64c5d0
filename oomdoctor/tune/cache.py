"""Answers of searches that were found before.

Nothing in the cache folder is believed for being there (`_kept.py`): an answer counts byte for byte
as it is written here, with values in bounds, and if the question accepts it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from oomdoctor import _kept
from oomdoctor.facts import SizeTrial, Tuning

KIND = "tune"

FORMAT = 4
"""Part of every question: answers of another format, or found in another way, do not count."""

MAX_BYTES = 256 * 1024
"""No answer is larger; what is, was not written here."""
MOST_BYTES_OF_MEMORY = 1 << 60
LARGEST_BATCH = 1 << 40
MOST_TEXT = 1000
_OUTCOMES = frozenset(("fits", "oom", "died"))


class _Entry(msgspec.Struct):
    question: str
    tuning: Tuning


def digest(question: Mapping[str, Any]) -> str:
    """Return the name of a question: the same for the same values, in any order."""
    text = json.dumps({**question, "format": FORMAT}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def find(question: str, *, accepts: Callable[[Tuning], bool] | None = None) -> Tuning | None:
    """Return what was found before, or None.

    Args:
        question: Its digest.
        accepts: Whether an answer is one to this question: within its bounds of the batch size,
            for its memory and objective.
    """
    raw = _kept.read(KIND, question, most=MAX_BYTES)
    try:
        entry = msgspec.json.decode(raw or b"", type=_Entry)
        # An answer that was written here is written the same way again.
        is_ours = msgspec.json.encode(entry) == raw
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not is_ours or entry.question != question or not _is_sound(entry.tuning):
        return None
    if accepts is not None and not accepts(entry.tuning):
        return None
    return entry.tuning


def _is_sound(tuning: Tuning) -> bool:
    """Whether an answer can have come from a search."""
    sizes = (tuning.peak_bytes, tuning.budget_bytes, tuning.target_bytes)
    texts = (tuning.objective, tuning.limited_by, tuning.device or "", *tuning.notes)
    ran = {t.batch_size for t in tuning.trials if t.outcome == "fits"}
    return (
        tuning.batch_size in ran
        and all(0 <= size <= MOST_BYTES_OF_MEMORY for size in sizes)
        and tuning.target_bytes <= tuning.budget_bytes
        and tuning.replicas >= 1
        and all(len(text) <= MOST_TEXT and text.isprintable() for text in texts)
        and all(map(_is_sound_trial, tuning.trials))
    )


def _is_sound_trial(trial: SizeTrial) -> bool:
    return (
        1 <= trial.batch_size <= LARGEST_BATCH
        and trial.outcome in _OUTCOMES
        and 0 <= (trial.peak_bytes or 0) <= MOST_BYTES_OF_MEMORY
        and (trial.seconds or 0) >= 0
        and (trial.samples_per_second or 0) >= 0
    )


def keep(question: str, tuning: Tuning) -> None:
    """Keep an answer."""
    _kept.write(KIND, question, msgspec.json.encode(_Entry(question, tuning)))
