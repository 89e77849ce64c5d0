"""Will the model train, and with which batch?"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from oomdoctor._optional import import_optional
from oomdoctor.api.conclude import must_be_positive
from oomdoctor.errors import UsageError
from oomdoctor.facts import Estimate, Workload
from oomdoctor.measure.spec import ModelSpec

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


def estimate_memory(
    model: Any,
    *,
    batch_size: int = 32,
    kind: str = "train",
    input_shape: Any = None,
    optimizer: str | None = None,
    loss: str | None = None,
    precision: str | None = None,
    jit: bool = False,
) -> Estimate:
    """Return the peak memory of one step, predicted without running it.

    The step is traced to a graph, and TensorFlow's executor and allocator are simulated over it.

    Example:
        >>> import oomdoctor
        >>> estimate = oomdoctor.estimate_memory(model, batch_size=32)  # doctest: +SKIP
        >>> estimate.largest_batch(6 * 2**30)  # doctest: +SKIP

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`. A live model is only read.
        batch_size: Samples per batch.
        kind: `train`, `evaluate` or `predict`.
        input_shape: One sample, where the model leaves dimensions open or another is wanted.
        optimizer: In place of the model's own, or for a model that is not compiled.
        loss: The same for the loss.
        precision: A dtype policy such as `mixed_float16`.
        jit: Whether the step will be compiled by XLA, which Keras does on a GPU.
    """
    return _simulate(
        model,
        batch_size=batch_size,
        kind=kind,
        jit=jit,
        input_shape=input_shape,
        optimizer=optimizer,
        loss=loss,
        precision=precision,
    )[0]


def _simulate(
    model: Any, *, batch_size: int, kind: str, jit: bool, **how_trained: Any
) -> tuple[Estimate, Workload]:
    return simulate(traced_step(model, kind=kind, **how_trained), batch_size, jit=jit)


def simulate(
    traced: Any, batch_size: int, *, jit: bool = False, threads: int | None = None
) -> tuple[Estimate, Workload]:
    """Return the estimate of a traced step with one batch size, and what was trained.

    Each size is simulated on its own, so that it does not matter which others are asked for.
    """
    from oomdoctor.estimate.step import Simulation, estimate

    must_be_positive(batch_size=batch_size)
    workload = replace(traced.workload, batch_size=batch_size)
    return estimate(Simulation(traced, threads=threads), batch_size, jit=jit), workload


def traced_step(
    model: Any, *, kind: str, folder: str | None = None, fresh: bool = False, **how_trained: Any
) -> Any:
    """Return the traced step of a model, which serves every batch size and machine.

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`.
        kind: `train`, `evaluate` or `predict`.
        folder: Where modules are looked for first; None is the current folder.
        fresh: Whether layers are named as in a process of its own. Not for live models.
        **how_trained: As for `estimate_memory`; None is the model's own.
    """
    precision = how_trained.get("precision")
    if precision is not None and precision not in PRECISIONS:
        raise UsageError(f"{precision!r} is not a precision: use one of {', '.join(PRECISIONS)}.")
    import_optional("tensorflow", extra="tensorflow", purpose="to trace a model")
    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.measure.build import build_model, forget_names, settings_kept

    overrides = {name: value for name, value in how_trained.items() if value is not None}
    if overrides or isinstance(model, (str, os.PathLike)) or not model.compiled:
        if fresh:
            forget_names()
        spec = spec_of(model, **overrides)
        if folder is not None:
            spec = replace(spec, sys_path=(folder, *spec.sys_path))
        with settings_kept():
            model, _ = build_model(spec)
            return trace_step(model, kind=kind)
    return trace_step(model, kind=kind)


def spec_of(model: Any, **how_trained: Any) -> ModelSpec:
    """Return how another process rebuilds a model; arguments that are None are left out."""
    given = {name: value for name, value in how_trained.items() if value is not None}
    if isinstance(model, (str, os.PathLike)):
        return ModelSpec(source=os.fspath(model), sys_path=(os.getcwd(),), **given)
    from oomdoctor.measure.live import spec_of_model

    return spec_of_model(model, **given)
