"""A traced step → where to begin looking for a batch size, before anything has run.

The step that the worker has traced anyway is simulated (`oomdoctor.estimate`) at a few sizes, each
nearer to the one that fills the limit. A line through the last two says where to look. The last one
is simulated with its ops in several orders too.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.estimate.keras_model import read_traced
from oomdoctor.estimate.step import Simulation
from oomdoctor.measure.luck import Orders
from oomdoctor.measure.spec import MAX_BATCH_SIZE
from oomdoctor.measure.step import Step

FIRST_SIZES = (8, 16)
APPROACHES = 2
"""How often the line is drawn anew, nearer to the limit: small batches are ruled by workspaces."""

MOST_ORDERS = 16
MOST_OPS = 20_000
"""Orders are simulated until one of these is reached; the latter takes a second or two."""


@dataclass(frozen=True)
class Prior:
    """What the estimate says of a step near a limit."""

    fixed_bytes: int
    """Of any batch."""
    sample_bytes: int
    orders: Orders


def prior_of(step: Step, limit_bytes: int) -> Prior | None:
    """Return the bytes that any batch takes and those of each sample, near a limit.

    None where they are not known: the step is traced for each size anew, or the estimate errs,
    which must not keep anybody from measuring.
    """
    if not step.free:
        return None
    try:
        simulation = Simulation(read_traced(step.model, step.function(1), step.kind))
        far, near = FIRST_SIZES
        asked = {size: simulation.asked_for(size) for size in FIRST_SIZES}
        for _ in range(APPROACHES):
            fixed, each = _line(far, asked[far], near, asked[near])
            size = (
                min(MAX_BATCH_SIZE, int((limit_bytes - fixed) / each))
                if each > 0
                else MAX_BATCH_SIZE
            )
            if size <= near or size in asked:
                break
            asked[size] = simulation.asked_for(size)
            far, near = near, size
        fixed, each = _line(far, asked[far], near, asked[near])
        orders = Orders(near, simulation.asked_in_orders(near, MOST_ORDERS, MOST_OPS))
    except Exception:  # an estimate of any user's graph: whatever it stumbles over, we can measure
        return None
    return Prior(int(fixed), int(each), orders) if each >= 1 else None


def _line(first: int, first_bytes: int, second: int, second_bytes: int) -> tuple[float, float]:
    each = (second_bytes - first_bytes) / (second - first)
    return first_bytes - each * first, each
