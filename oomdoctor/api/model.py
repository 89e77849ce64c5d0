"""Will the model train, and with which batch?"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oomdoctor._optional import import_optional, require
from oomdoctor.api.conclude import conclude, installed, must_be_positive
from oomdoctor.api.machine import Size, probe_machine
from oomdoctor.errors import DoesNotFitError, UsageError
from oomdoctor.facts import Estimate, Facts, Machine, SizeTrial, Tuning, Workload
from oomdoctor.findings import Report
from oomdoctor.measure.spec import ModelSpec
from oomdoctor.tune.batch_size import BatchSize
from oomdoctor.units import format_bytes, parse_size

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")

HOST_SHARE = 0.8
"""Part of the free RAM that a step may take where the CPU trains: the rest is the program's."""


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
        spec = _spec(model, **overrides)
        if folder is not None:
            spec = replace(spec, sys_path=(folder, *spec.sys_path))
        with settings_kept():
            model, _ = build_model(spec)
            return trace_step(model, kind=kind)
    return trace_step(model, kind=kind)


def suggest_batch_size(
    model: Any,
    *,
    memory: Size | None = None,
    machine: str | Machine | None = None,
    input_shape: Any = None,
    optimizer: str | None = None,
    loss: str | None = None,
    precision: str | None = None,
    margin: float = 0.05,
    min_batch_size: int = 1,
    max_batch_size: int | None = None,
    multiple_of: int | None = None,
    replicas: int = 1,
    objective: str = "largest",
    watch: Callable[[SizeTrial], None] | None = None,
) -> BatchSize:
    """Return the largest batch size that trains within the memory there is.

    Real training steps are run in a process of their own, under TensorFlow's own allocator with
    that much memory. The model is only read. Only a size that was run is ever returned.

    Example:
        >>> import oomdoctor
        >>> batch_size = oomdoctor.suggest_batch_size(model, memory="600MiB")  # doctest: +SKIP
        >>> model.fit(x, y, batch_size=batch_size)  # doctest: +SKIP

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`.
        memory: What training may take, such as `6GiB`. None is what is free now: on the GPU, or
            in RAM where there is none.
        machine: A catalogue entry such as `colab-t4` whose card is emulated instead.
        input_shape: One sample, where the model leaves dimensions open.
        optimizer: For a model that is not compiled.
        loss: For a model that is not compiled.
        precision: A dtype policy such as `mixed_float16`.
        margin: Part of the memory that stays free; 0 searches for the exact maximum.
        min_batch_size: The smallest size worth having.
        max_batch_size: The largest size allowed.
        multiple_of: Sizes are multiples of this; of `replicas` where that is larger.
        replicas: GPUs that share each batch.
        objective: `largest`, or `fastest`: the smallest within 5 % of the best speed.
        watch: Told of each size as it was run.

    Raises:
        DoesNotFitError: Not even the smallest size fits; its `report` has the remedies.
    """
    report = tune_report(
        model,
        memory=memory,
        machine=machine,
        input_shape=input_shape,
        optimizer=optimizer,
        loss=loss,
        precision=precision,
        margin=margin,
        min_batch_size=min_batch_size,
        max_batch_size=max_batch_size,
        multiple_of=multiple_of,
        replicas=replicas,
        objective=objective,
        watch=watch,
    )
    assert report.facts.tuning is not None
    return BatchSize(report.facts.tuning)


def tune_report(
    model: Any,
    *,
    memory: Size | None,
    machine: str | Machine | None,
    margin: float,
    min_batch_size: int,
    max_batch_size: int | None,
    multiple_of: int | None,
    replicas: int,
    objective: str,
    watch: Callable[[SizeTrial], None] | None = None,
    **how_trained: Any,
) -> Report:
    """Return the search as a report, for the command line. Arguments as above."""
    from oomdoctor.measure.runner import Runner
    from oomdoctor.tune.tuner import OBJECTIVES, tune

    must_be_positive(min_batch_size=min_batch_size, replicas=replicas)
    if objective not in OBJECTIVES:
        raise UsageError(f"{objective!r} is no objective: use one of {', '.join(OBJECTIVES)}.")
    if not 0 <= margin < 1:
        raise UsageError(f"A margin is a part of the memory, from 0 to below 1: {margin} is not.")
    require("tensorflow", extra="tensorflow", purpose="to run a training step")
    known_machine = probe_machine(machine=machine)
    budget = _budget(memory, known_machine)
    spec = _spec(model, replicas=replicas, **how_trained)
    step = max(multiple_of or 1, replicas)
    with Runner(spec, limit_bytes=budget) as runner:
        found = tune(
            runner.run,
            budget_bytes=budget,
            margin=margin,
            minimum=min_batch_size,
            maximum=max_batch_size,
            multiple_of=step,
            objective=objective,
            watch=watch,
        )
    workload = Workload(model=spec.source, replicas=replicas, precision=spec.precision)
    facts = Facts(machine=known_machine, workload=workload, versions=installed())
    if not isinstance(found, Tuning):
        report = conclude("tune", facts, rules=())
        raise DoesNotFitError(_nothing_fits(found, budget), report)
    found = replace(found, replicas=replicas)
    facts = replace(facts, tuning=found)
    return conclude("tune", facts, rules=())


def _budget(memory: Size | None, machine: Machine) -> int:
    if memory is not None:
        return parse_size(memory)
    if machine.gpus:
        usable = machine.usable_vram_bytes
        if usable is None:
            raise UsageError("The GPU does not say how much memory is free: give memory=, --vram.")
        return usable
    if machine.ram.available_bytes is None:
        raise UsageError("How much memory is free is not known: give memory=, or --vram.")
    return int(machine.ram.available_bytes * HOST_SHARE)


def _spec(model: Any, **how_trained: Any) -> ModelSpec:
    given = {name: value for name, value in how_trained.items() if value is not None}
    if isinstance(model, (str, os.PathLike)):
        return ModelSpec(source=os.fspath(model), sys_path=(os.getcwd(),), **given)
    from oomdoctor.measure.live import spec_of_model

    return spec_of_model(model, **given)


def _nothing_fits(trials: tuple[SizeTrial, ...], budget: int) -> str:
    smallest = min((trial.batch_size for trial in trials), default=None)
    if smallest is None:
        return "No batch size lies between the smallest and the largest that were allowed."
    return (
        f"Not even a batch of {smallest} trains in {format_bytes(budget)}: a smaller input, a "
        "smaller model, a lighter optimizer or mixed precision would help; "
        "`oomdoctor estimate` shows what takes the memory."
    )
