"""The trials of one search: sizes are run in one worker, and verified in a fresh one.

On a CPU the worker's pool is larger than the budget, so that a size that does not fit is known
within a second (`worker/memory_limit.py`).
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any

from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.runner import Runner
from oomdoctor.worker.messages import Fit, Guessed, Trial

EPOCHS, STEPS = 3, 4
FRESH_EPOCHS = 6
"""Which ops overlap in threads is chance, and a small network took 170 MiB in one step and 299 in
the next. So a size trains for several short epochs, more in a fresh process."""

SECONDS, FRESH_SECONDS = 5.0, 10.0
"""Then no further step begins: large models take long for each, and differ less."""

GRACE_SECONDS = 2.0
"""What a worker needs to answer after its last step."""


class Trials:
    """Runs the batch sizes of one model under one budget."""

    def __init__(
        self, spec: ModelSpec, *, budget_bytes: int, deadline: float | None = None
    ) -> None:
        """Describe the worker; it starts when it is needed.

        Args:
            spec: The model.
            budget_bytes: What training may take.
            deadline: When everything must be over, by `time.monotonic()`.
        """
        self._deadline = deadline
        self._runner = Runner(
            spec,
            limit_bytes=budget_bytes,
            spare_bytes=_spare(budget_bytes),
            deadline=deadline,
        )

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.close()

    def digest(self) -> str | None:
        """Return a digest of the model and of the code behind it, or None if there is none."""
        return self._runner.digest()

    def guess(self, limit_bytes: int) -> Guessed:
        """Return what the estimate says of steps near a limit."""
        return self._runner.guess_growth(limit_bytes)

    def run(self, batch_size: int, *, limit_bytes: int) -> Trial:
        """Train a size under a limit."""
        return self._fit(batch_size, limit_bytes, epochs=EPOCHS, training_seconds=SECONDS)

    def verify(self, batch_size: int, *, limit_bytes: int, last: int = 0) -> Trial:
        """Train a size in a fresh process, with a last batch of so many samples."""
        self._runner.close()
        return self._fit(
            batch_size,
            limit_bytes,
            epochs=FRESH_EPOCHS,
            training_seconds=FRESH_SECONDS,
            last=last,
        )

    def _fit(self, batch_size: int, limit_bytes: int, **how: Any) -> Trial:
        request = Fit(
            batch_size, limit_bytes=limit_bytes, steps=STEPS, seconds=self._seconds(), **how
        )
        return self._runner.fit(request)

    def _seconds(self) -> float | None:
        if self._deadline is None:
            return None
        return max(0.0, self._deadline - time.monotonic() - GRACE_SECONDS)


def _spare(budget_bytes: int) -> int:
    """Return how much larger than the budget a pool can be; the system must promise it."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(0, min(budget_bytes, machine_bytes - budget_bytes - 1))
