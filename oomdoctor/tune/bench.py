"""The worker of one search: it looks ahead, and then it judges.

To look ahead it has more memory than the limit: it records what steps of two sizes allocate, and
foresees from that which size fits. Then it runs that size under the limit, with memory as in a
process that has trained on one sample only: what a run leaves there can help the next one or harm
it, and `fit` starts fresh too. A GPU's memory cannot be put in order, so there the process is.

TensorFlow orders the ops of a step anew in every process, so the largest size that one process
trains can be too large for the next. Where no margin covers that, the worker draws several orders.
"""

from __future__ import annotations

import os
from types import TracebackType

from oomdoctor.measure.redraw import DRAWS
from oomdoctor.measure.runner import Runner
from oomdoctor.measure.spec import ModelSpec, Trial

JUDGED_STEPS = 4
"""The second step is often the highest: by then every variable has been replaced once."""

MORE_STEPS = 4
"""Even with one thread the order of ops is a matter of timing, and with it the peak: a dense
network that passed three steps failed in the next. Where peaks differ, so many more are run."""

THOROUGH_STEPS = 4
"""Where no margin covers it: a dense network failed in its fourth step, and in none before."""

RECORDED_STEPS, MORE_RECORDED = 2, 2
"""By the second every variable has been replaced that an update replaces. A recurrent network's
third was yet another: where their peaks differ more are recorded. One tells how sizes grow."""


class Bench:
    """Runs the batch sizes of one model under one budget."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        budget_bytes: int,
        has_gpu: bool = False,
        thorough: bool = False,
        seconds_per_trial: float = 120,
    ) -> None:
        """Describe the worker; it starts when it is needed.

        Args:
            spec: The model.
            budget_bytes: What training may take.
            has_gpu: Whether this machine has a GPU: each size then has a process of its own.
            thorough: Whether a size is run in several orders of ops.
            seconds_per_trial: After so long a trial counts as died; in several orders, after so
                many times as long.
        """
        spare = _spare(budget_bytes)
        self._runner = Runner(
            spec,
            limit_bytes=budget_bytes,
            spare_bytes=spare,
            threads=0,
            seconds_per_trial=seconds_per_trial * (DRAWS if thorough else 1),
        )
        self._roomy_bytes = budget_bytes + spare
        self._has_gpu = has_gpu
        self._thorough = thorough

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._runner.close()

    def digest(self) -> str | None:
        """Return a digest of the model and of the code behind it, or None where there is none."""
        return self._runner.digest()

    def prior(self, limit_bytes: int) -> dict[str, int] | None:
        """Return what the estimate says of steps near a limit, and start the worker."""
        return self._runner.start(limit_bytes)

    def record(self, batch_size: int, *, once: bool = False) -> Trial:
        """Run a size with more memory than the limit, and remember what it allocates.

        Args:
            batch_size: Samples in a batch.
            once: Whether one step is enough: only its sizes matter, beside those of a larger batch.
        """
        return self._runner.run(
            batch_size,
            steps=1 if once else RECORDED_STEPS,
            more_steps=0 if once else MORE_RECORDED,
            record=True,
            limit_bytes=self._roomy_bytes,
        )

    def foresee(
        self, *, limit_bytes: int, lowest: int, highest: int, batches_ahead: int
    ) -> int | None:
        """Return the largest size that should fit, or None where that cannot be told."""
        return self._runner.foresee(
            limit_bytes=limit_bytes,
            lowest=lowest,
            highest=highest,
            batches_ahead=batches_ahead,
        )

    def run(
        self,
        batch_size: int,
        *,
        limit_bytes: int,
        batches_ahead: int = 0,
        last: int = 0,
    ) -> Trial:
        """Run a size under a limit, as in a fresh process.

        Args:
            batch_size: Samples in a batch.
            limit_bytes: What the allocator may hand out.
            batches_ahead: Further batches that lie in memory.
            last: Samples in the last batch of an epoch, where they are fewer: it is run too, and
                then a full one again, as in the next epoch.
        """
        if self._has_gpu:
            self.close()
        return self._runner.run(
            batch_size,
            steps=THOROUGH_STEPS if self._thorough else JUDGED_STEPS,
            more_steps=MORE_STEPS,
            limit_bytes=limit_bytes,
            batches_ahead=batches_ahead,
            settled=True,
            thorough=self._thorough,
            last=last,
        )

    def measure(self, batch_size: int) -> Trial:
        """Run a size that is known to fit once more, for its speed."""
        return self._runner.run(batch_size, more_steps=MORE_STEPS)


def _spare(budget_bytes: int) -> int:
    """Return how much larger than the budget a pool can be; the system must promise it."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(0, min(budget_bytes, machine_bytes - budget_bytes - 1))
