"""Estimates models that are named (a file, `module:callable`) in a process of its own.

Nothing of the model is loaded into the calling process, and what building it takes is capped.
"""

from __future__ import annotations

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.errors import InputError
from oomdoctor.facts import Estimate, Workload
from oomdoctor.model.samples import Samples
from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.process import (
    Died,
    Ending,
    WorkerOwner,
    WorkerProcess,
    environment_without_pool,
)
from oomdoctor.runner.runner import checked
from oomdoctor.units import format_bytes
from oomdoctor.worker.messages import (
    Answer,
    DataRead,
    Estimated,
    EstimateStep,
    OutOfMemory,
    ReadData,
    Request,
)
from oomdoctor.xla.cards import Card
from oomdoctor.xla.plugin import plugin_or_reason
from oomdoctor.xla.program import Jit

SECONDS = 600
"""A step that takes longer to trace is given up: BERT-Large takes half a minute."""

COMPILING_SECONDS = 3600
"""More than that where it is compiled too. The compiler is stopped earlier, by the processor time
that it uses (`xla.compiler`), so this only ends a process that hangs."""

RECORDING = {**settings_for_the_cpu(), "TF_NUM_INTEROP_THREADS": "1"}
"""The environment of a process that runs a step and records it: with the allocator whose events are
recorded, and with one operation at a time, as it is simulated."""


class Estimator(WorkerOwner):
    """A worker process that estimates one model after the other."""

    def __init__(self, *, ram_bytes: int | None = None) -> None:
        """Describe the process; it is started by the first estimate.

        Args:
            ram_bytes: What building a model may take; None is no limit.
        """
        self._ram_bytes = ram_bytes
        self._records = False

    def estimate(
        self,
        spec: ModelSpec,
        batch_size: int,
        *,
        kind: str = "train",
        jit: Jit = "auto",
        threads: int | None = None,
        card: Card | None = None,
        cards: tuple[Card, ...] = (),
        brief: bool = False,
        verify: bool = False,
    ) -> tuple[Estimate, Workload]:
        """Return the estimate of a step, on a card if one is given, and of the model."""
        plugin, missing = (None, "") if card is None else plugin_or_reason()
        request = EstimateStep(
            spec,
            batch_size,
            kind=kind,
            jit=jit,
            threads=threads,
            ram_bytes=self._ram_bytes,
            card=card,
            cards=cards,
            plugin=plugin,
            missing=missing,
            brief=brief,
            verify=verify,
        )
        seconds = SECONDS + (COMPILING_SECONDS if plugin else 0)
        answer = self._ask(request, spec.source, seconds)
        assert isinstance(answer, Estimated)
        return answer.estimate, answer.workload

    def read_data(self, name: str, folders: tuple[str, ...]) -> Samples:
        """Return what the data says of its samples that a function of the user's returns.

        Args:
            name: `module:callable`.
            folders: Where its module is looked for first.
        """
        answer = self._ask(ReadData(name, folders), name, SECONDS)
        assert isinstance(answer, DataRead)
        return answer.samples

    def _ask(self, request: Request, source: str, seconds: float) -> Answer:
        records = isinstance(request, EstimateStep) and request.verify
        if self._worker is None or not self.is_started or self._records < records:
            self.close()
            settings = RECORDING if records else {}
            self._worker = WorkerProcess({**environment_without_pool(), **settings})
            self._records = records
        try:
            answer = checked(self._worker.ask(request, seconds))
        except Died as died:
            self.close()
            raise self._why(source, died) from died
        if isinstance(answer, OutOfMemory):
            raise self._too_large(source)
        return answer

    def _why(self, source: str, died: Died) -> InputError:
        if died.ending is Ending.TIMED_OUT:
            return InputError(f"Tracing {source} took too long.")
        if "bad_alloc" in died.log or died.ending is Ending.KILLED:
            return self._too_large(source)
        last = (died.log.strip().splitlines() or [str(died)])[-1][:300]
        return InputError(f"The process that traced {source} ended ({died}): {last}")

    def _too_large(self, source: str) -> InputError:
        cap = "this machine has" if self._ram_bytes is None else format_bytes(self._ram_bytes)
        return InputError(
            f"Building {source} takes more RAM than {cap}: estimate it on a machine with more."
        )
