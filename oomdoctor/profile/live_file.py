"""A recording that `MemoryCallback` writes as it goes, for `oomdoctor profile --from`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from oomdoctor.profile import records
from oomdoctor.profile.store import INSIDE, OUTSIDE, Appender
from oomdoctor.recording import Limit, Step, Suspect


class LiveFile:
    """Both files of a recording, written by the program itself."""

    def __init__(
        self, folder: str | os.PathLike[str], started_at: float, limits: tuple[Limit, ...]
    ) -> None:
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self._outside, self._inside = Appender(place / OUTSIDE), Appender(place / INSIDE)
        self._outside.write(
            records.Run(
                version=records.VERSION,
                command=["fit"],
                started_at=started_at,
                limits=[
                    records.LimitLine(limit.what, limit.limit_bytes, limit.source)
                    for limit in limits
                ],
            )
        )

    def begin(self, seconds: float, label: str, number: int) -> None:
        """An epoch begins."""
        self._inside.write(records.Begin(t=seconds, phase="epoch", label=label, number=number))

    def finish(self, seconds: float) -> None:
        """It ends."""
        self._inside.write(records.Finish(t=seconds, phase="epoch"))

    def end(self, seconds: float, suspects: Iterable[Suspect]) -> None:
        """`fit` returned."""
        for one in suspects:
            self._inside.write(
                records.Suspicion(
                    kind=one.kind,
                    what=one.what,
                    count=one.count,
                    per_step=one.per_step,
                    held_bytes=one.held_bytes,
                    advice=one.advice,
                    step=1,
                )
            )
        self._outside.write(records.Stop(t=seconds, exit_code=0))

    def step(self, step: Step) -> None:
        """A step was trained."""
        self._outside.write(records.S(t=step.seconds, rss=step.rss_bytes))
        self._inside.write(
            records.B(
                t=step.seconds,
                step=step.step,
                epoch=step.epoch,
                rss=step.rss_bytes,
                now=step.allocator_bytes,
                peak=step.allocator_peak_bytes,
            )
        )
