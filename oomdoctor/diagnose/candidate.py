"""A cause that is considered, with what speaks for it."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.diagnose.events import Place


@dataclass(frozen=True, slots=True)
class Candidate:
    """One cause and how likely it is."""

    cause: str
    confidence: float
    why: str
    """A sentence that says what ran out, or what happened instead."""
    evidence: tuple[Place, ...] = ()
