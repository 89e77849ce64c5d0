"""What the process at hand can add: the allocator's own figures, and the model."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from oomdoctor.facts import Diagnosis, Workload
from oomdoctor.units import DTYPE_BYTES, element_count


def add_live_figures(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with what TensorFlow holds now, where the exception does not say.

    TensorFlow is asked only if the program has loaded it, and never made to start a device.
    """
    tensorflow = sys.modules.get("tensorflow")
    device = diagnosis.device or ""
    if tensorflow is None or diagnosis.in_use_bytes is not None or not device:
        return diagnosis
    name = device if ":" in device else f"{device}:0"
    try:
        figures = tensorflow.config.experimental.get_memory_info(name)
        now, peak = int(figures["current"]), int(figures["peak"])
    except Exception:  # the CPU keeps no figures, a device may be gone: they are a bonus
        return diagnosis
    note = f"TensorFlow holds {now:,} bytes on {name} now and held {peak:,} at most."
    return replace(diagnosis, notes=(*diagnosis.notes, note))


def describe_model(model: Any, batch_size: int | None = None) -> Workload:
    """Return what a Keras model says of itself; what it does not say is None."""
    optimizer = getattr(model, "optimizer", None)
    policy = getattr(model, "dtype_policy", None)
    return Workload(
        model=getattr(model, "name", None) or type(model).__name__,
        weights_bytes=_bytes_of(getattr(model, "weights", None)),
        trainable_bytes=_bytes_of(getattr(model, "trainable_weights", None)),
        optimizer=None if optimizer is None else type(optimizer).__name__.lower(),
        optimizer_bytes=_bytes_of(getattr(optimizer, "variables", None)),
        precision=getattr(policy, "name", None),
        batch_size=batch_size,
    )


def _bytes_of(variables: Iterable[Any] | None) -> int | None:
    """The bytes of variables; None if one has no shape or dtype."""
    try:
        shapes = [(tuple(v.shape), str(getattr(v.dtype, "name", v.dtype))) for v in variables or ()]
        return sum(element_count(shape) * DTYPE_BYTES[dtype] for shape, dtype in shapes)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
