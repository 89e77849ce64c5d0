"""A model → where to begin looking for a batch size, before anything has run.

A step is simulated (`oomdoctor.estimate`) at a few sizes, each nearer to the one that fills the
limit. A line through the last two says where to look.
"""

from __future__ import annotations

from typing import Any

from oomdoctor.estimate.keras_model import trace_step
from oomdoctor.estimate.simulation import Simulation
from oomdoctor.model.spec import MAX_BATCH_SIZE, ModelSpec
from oomdoctor.worker.messages import Guessed

FIRST_SIZES = (8, 16)
APPROACHES = 2
"""How often the line is drawn again, nearer to the limit: kernels' scratch memory does not grow
with the batch, and makes up most of a small one."""


def guess_growth(model: Any, spec: ModelSpec, limit_bytes: int) -> Guessed:
    """Return the bytes that any batch takes and those of each sample, near a limit.

    They are None if the estimate fails, which must not keep anybody from measuring.
    """
    try:
        simulation = Simulation(trace_step(model, spec=spec))
        far, near = FIRST_SIZES
        asked = {size: simulation.asked_for(size) for size in FIRST_SIZES}
        for _ in range(APPROACHES):
            fixed, each = _line(far, asked[far], near, asked[near])
            room = (limit_bytes - fixed) / each if each > 0 else MAX_BATCH_SIZE
            size = int(min(MAX_BATCH_SIZE, room))
            if size <= near or size in asked:
                break
            asked[size] = simulation.asked_for(size)
            far, near = near, size
        fixed, each = _line(far, asked[far], near, asked[near])
    except Exception:  # an estimate of any user's graph: whatever it stumbles over, we can measure
        return Guessed()
    return Guessed(int(fixed), int(each)) if each >= 1 else Guessed()


def _line(first: int, first_bytes: int, second: int, second_bytes: int) -> tuple[float, float]:
    each = (second_bytes - first_bytes) / (second - first)
    return first_bytes - each * first, each
