"""The trials of a search, each in a worker process of its own.

What one size leaves in memory would disturb the next, and the user's program trains only one. On a
CPU the pool is larger than the budget, so that a size that does not fit is detected within a second
(`worker/memory_limit.py`).
"""

from __future__ import annotations

import os

from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.runner import Runner
from oomdoctor.worker.messages import Fit, Trial

EPOCHS, STEPS = 6, 4
"""With threads it is chance which ops overlap: a small network took 170 MiB in one step and 299 in
the next. So a size trains for several short epochs."""

SECONDS = 10.0
"""No step begins later than this. Steps of large models take long, and vary less."""

GRACE_SECONDS = 2.0
"""Time a worker needs to answer after its last step."""


class Trials(Runner):
    """Trains one model with several batch sizes under one budget."""

    reorders = True
    """Whether sizes are trained in several orders of ops: each process has an order by chance."""

    def __init__(
        self, spec: ModelSpec, *, budget_bytes: int, deadline: float | None = None
    ) -> None:
        """Set up the worker; the first request starts it.

        Args:
            spec: The model.
            budget_bytes: Memory that training may take.
            deadline: When everything must be over, by `time.monotonic()`.
        """
        super().__init__(
            spec, limit_bytes=budget_bytes, spare_bytes=_spare(budget_bytes), deadline=deadline
        )
        self._has_trained = False

    def run(
        self,
        batch_size: int,
        *,
        limit_bytes: int,
        last: int = 0,
        alone: bool = True,
        brief: bool = False,
        seconds: float | None = None,
    ) -> Trial:
        """Train with one batch size under a limit.

        Args:
            batch_size: Samples in a batch, over all replicas.
            limit_bytes: What the allocator may hand out.
            last: Samples in the last batch of an epoch; 0 if that is not known.
            alone: Whether in a process in which no other size was trained.
            brief: Whether a few steps will do.
            seconds: When it is ended, once the worker is ready; None is at the deadline.
        """
        if self._has_trained and alone:
            self.close()
        self._has_trained = True
        request = Fit(
            batch_size,
            limit_bytes=limit_bytes,
            epochs=1 if brief else EPOCHS,
            steps=2 if brief else STEPS,
            reorder=self.reorders,
            last=last,
            seconds=None if seconds is None else max(0.0, seconds - GRACE_SECONDS),
            training_seconds=SECONDS,
        )
        return self.fit(request, seconds)


def _spare(budget_bytes: int) -> int:
    """Return how much larger than the budget a pool can be; the system must promise it."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(0, min(budget_bytes, machine_bytes - budget_bytes - 1))
