"""A model that is named, built and traced here, and estimated at any batch size.

In a process of its own, because the file may be a stranger's: what building it takes is capped.
"""

from __future__ import annotations

import resource

from oomdoctor.estimate.keras_model import Traced, trace_step
from oomdoctor.estimate.step import Simulation, estimate
from oomdoctor.model.build import build_model, forget_names
from oomdoctor.model.spec import ModelSpec
from oomdoctor.worker.messages import Estimated, EstimateStep


class Estimates:
    """Keeps the step that was traced last, which serves every batch size."""

    def __init__(self) -> None:
        self._key: tuple[ModelSpec, str] | None = None
        self._traced: Traced | None = None

    def estimate(self, request: EstimateStep) -> Estimated:
        """Return the estimate of one batch size."""
        key = (request.spec, request.kind)
        if self._traced is None or self._key != key:
            cap_memory(request.ram_bytes)
            forget_names()
            model, _ = build_model(request.spec)
            self._traced = trace_step(model, kind=request.kind, spec=request.spec)
            self._key = key
        simulation = Simulation(self._traced, threads=request.threads)
        found = estimate(simulation, request.batch_size, jit=request.jit)
        return Estimated(found, self._traced.workload)


def cap_memory(limit_bytes: int | None) -> None:
    """Let this process take no more memory of its own than this."""
    if limit_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            limit_bytes = min(limit_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))
