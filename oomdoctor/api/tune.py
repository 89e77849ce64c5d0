"""Which batch size?"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from oomdoctor._optional import require
from oomdoctor.api.conclude import conclude, installed, must_be_positive
from oomdoctor.api.feeding import fields_of_spec, read_feed, split_feed
from oomdoctor.api.machine import Size, probe_machine
from oomdoctor.api.model import estimating, jit_of, spec_of
from oomdoctor.api.tune_cache import found_before, question_of
from oomdoctor.errors import DoesNotFitError, OomDoctorError, UsageError
from oomdoctor.facts import Facts, Machine, SizeTrial, Tuning, Workload
from oomdoctor.findings import Finding, Report
from oomdoctor.tune.batch_size import BatchSize
from oomdoctor.units import MIB, format_bytes, parse_size

BUCKET_BYTES = 256 * MIB
"""Free memory changes by the minute, so it is rounded down to a multiple of this."""

MAX_REMEDIES = 3

HOST_SHARE = 0.5
"""Fraction of the free RAM that a step may take if the CPU trains: other programs need the rest."""

CPU_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
"""If this is set, the program that asks trains on the CPU, under that limit."""

DEFAULT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Options of a search; documented at `suggest_batch_size`."""

    memory: Size | None = None
    machine: str | Machine | None = None
    margin: float | None = None
    min_batch_size: int = 1
    max_batch_size: int | None = None
    multiple_of: int | None = None
    replicas: int = 1
    objective: str = "largest"
    max_seconds: float | None = DEFAULT_SECONDS
    cache: bool = True
    jit: str = "auto"
    """Whether XLA compiles the step on the GPU of `machine`."""
    how_trained: dict[str, Any] = field(default_factory=dict)
    """`input_shape`, `batch`, `optimizer`, `loss`, `precision`; None is the model's own."""

    def may_compile(self, machine: Machine, data: Any) -> bool:
        """Return whether sizes can be compiled for a named GPU instead of trained.

        Memory alone names no GPU: then sizes are trained, unless XLA is asked for.
        """
        is_named = any(gpu.origin == "catalogue" for gpu in machine.gpus)
        if self.memory is not None:
            is_named = self.jit == "on"
        return is_named and self.is_one_step(data) and self.objective == "largest"

    def is_one_step(self, data: Any) -> bool:
        """Return whether the step can be compiled: its shapes are the model's, on one GPU."""
        return data is None and self.replicas == 1 and self.jit != "off"

    @property
    def emulates_nothing(self) -> bool:
        """Whether this machine's own memory is meant."""
        return self.memory is None and self.machine is None


def suggest_batch_size(
    model: Any,
    data: Any = None,
    *,
    memory: Size | None = None,
    machine: str | Machine | None = None,
    input_shape: Any = None,
    batch: Any = None,
    optimizer: str | None = None,
    loss: str | None = None,
    margin: float | None = None,
    min_batch_size: int = 1,
    max_batch_size: int | None = None,
    multiple_of: int | None = None,
    replicas: int = 1,
    objective: str = "largest",
    max_seconds: float | None = DEFAULT_SECONDS,
    cache: bool = True,
    jit: str | bool = "auto",
) -> BatchSize:
    """Return the largest batch size that trains within a memory limit.

    The model is trained with `fit`, on random data, in a separate process, under TensorFlow's own
    allocator with that limit. The model itself is only read, and only a batch size that trained is
    returned. For a `machine` with a GPU, and without `data`, batch sizes are compiled by XLA for
    that GPU instead, if Keras would use XLA, and only a size that was compiled is returned.

    Example:
        >>> import oomdoctor
        >>> batch_size = oomdoctor.suggest_batch_size(model, memory="600MiB")  # doctest: +SKIP
        >>> model.fit(x, y, batch_size=batch_size)  # doctest: +SKIP

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`.
        data: Training data: arrays as `(x, y)`, a `tf.data.Dataset`, a `PyDataset`, or a function
            that returns a generator; or the path of a `.npy` or `.npz` file or of a folder of
            images. The shapes of its largest samples are used.
        memory: Memory limit, such as `6GiB`. None is the free memory of the GPU, or half of the
            free RAM if there is no GPU.
        machine: Machine to emulate, such as `colab-t4`.
        input_shape: Shape of one sample, if the model leaves dimensions open, such as
            `(224, 224, 3)`; `{"ids": (512,)}` if the inputs have names.
        batch: In place of `data`: `tf.TensorSpec`s as `fit` would be fed, nested like its data,
            such as `(x, y)`.
        optimizer: Optimizer for an uncompiled model.
        loss: Loss for an uncompiled model.
        margin: Fraction of the memory for batches to keep free, 0.05 by default, because no two
            processes need exactly the same. 0 returns the largest size that trained, without
            further promises.
        min_batch_size: Smallest batch size to consider.
        max_batch_size: Largest batch size to consider. By default the number of samples in
            `data`, or 8,192.
        multiple_of: Only consider multiples of this, and of `replicas`.
        replicas: Number of GPUs that share each batch.
        objective: `largest`, or `fastest`: the smallest size within 5 % of the best speed.
        max_seconds: Time budget. The answer is the largest size that trained by then. None
            searches to the end.
        cache: Whether to reuse the answer of an earlier search for the same question.
        jit: Whether XLA compiles the step on the GPU of `machine`: `auto` decides as Keras does,
            `off` trains sizes.

    Raises:
        DoesNotFitError: Not even the smallest size fits. Its `report` has the remedies.
    """
    options = TuneOptions(
        memory=memory,
        machine=machine,
        margin=margin,
        min_batch_size=min_batch_size,
        max_batch_size=max_batch_size,
        multiple_of=multiple_of,
        replicas=replicas,
        objective=objective,
        max_seconds=max_seconds,
        cache=cache,
        jit=jit_of(jit),
        how_trained={
            "input_shape": input_shape,
            "batch": batch,
            "optimizer": optimizer,
            "loss": loss,
        },
    )
    report = tune_report(model, data, options)
    assert report.facts.tuning is not None
    return BatchSize(report.facts.tuning)


def tune_report(
    model: Any,
    data: Any,
    options: TuneOptions,
    *,
    watch: Callable[[SizeTrial], None] | None = None,
) -> Report:
    """Return the search as a report.

    Args:
        model: A Keras model, a `.keras` file, or `module:callable`.
        data: Training data, or None.
        options: Options of the search.
        watch: Called with each trial as it ends.
    """
    _check(options)
    began = time.monotonic()
    require("tensorflow", extra="tensorflow", purpose="to run a training step")
    from oomdoctor.api.tune_compiled import compare_with_compiler, compile_sizes
    from oomdoctor.tune.cache import keep
    from oomdoctor.tune.trials import Trials
    from oomdoctor.tune.tuner import Failed, tune

    machine = probe_machine(machine=options.machine)
    if options.memory is not None and options.jit == "on":
        machine = probe_machine(machine=options.machine, vram=options.memory)
    options = replace(options, how_trained={**options.how_trained, "data": data})
    own, fed = split_feed(options.how_trained)
    samples = read_feed(**fed)
    fields = fields_of_spec(samples, fed["input_shape"])
    spec = spec_of(model, replicas=options.replicas, **own, **fields)
    wanted = _wanted(options, machine, samples)
    deadline = None if options.max_seconds is None else began + options.max_seconds
    why_run: tuple[str, ...] = ()
    if options.may_compile(machine, data):
        compiled = compile_sizes(model, machine, wanted, options, deadline, watch)
        if isinstance(compiled, Report):
            return compiled
        if isinstance(compiled, Failed):
            facts = Facts(machine=machine, versions=installed())
            raise _failure(compiled, model, facts, wanted.budget_bytes, options)
        why_run = compiled
    with Trials(spec, budget_bytes=wanted.budget_bytes, deadline=deadline) as trials:
        question = question_of(spec, wanted, trials.digest) if options.cache else None
        found: Any = None if question is None else found_before(question, wanted)
        if found is None:
            found = tune(trials, wanted, began=began, deadline=deadline, watch=watch)
            # What was cut short may be found in full another time.
            if question is not None and isinstance(found, Tuning) and found.limited_by != "time":
                keep(question, found)
    if options.memory is not None:
        machine = probe_machine(machine=machine, vram=wanted.budget_bytes)  # what was emulated
    workload = Workload(model=spec.source, replicas=options.replicas, precision=spec.precision)
    facts = Facts(machine=machine, workload=workload, versions=installed())
    if not isinstance(found, Tuning):
        raise _failure(found, model, facts, wanted.budget_bytes, options)
    if found.limited_by == "memory" and options.emulates_nothing and not machine.gpus:
        found = replace(found, limited_by="host RAM")
    if options.emulates_nothing and machine.gpus and options.is_one_step(data):
        found = replace(found, comparison=compare_with_compiler(model, machine, found, options))
    notes = (*why_run, *found.notes, *(samples.notes if samples else ()))
    found = replace(found, replicas=options.replicas, notes=tuple(dict.fromkeys(notes)))
    return conclude("tune", replace(facts, tuning=found), rules=())


def _check(options: TuneOptions) -> None:
    from oomdoctor.tune.tuner import OBJECTIVES

    must_be_positive(
        min_batch_size=options.min_batch_size,
        max_batch_size=options.max_batch_size,
        multiple_of=options.multiple_of,
        replicas=options.replicas,
    )
    if options.objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise UsageError(f"{options.objective!r} is not an objective: use one of {known}.")
    margin = options.margin
    if margin is not None and not 0 <= margin < 1:
        raise UsageError(f"margin= must be at least 0 and less than 1, not {margin}.")
    seconds = options.max_seconds
    if seconds is not None and not seconds > 0:
        raise UsageError(f"max_seconds= must be positive, not {seconds}.")


def _wanted(options: TuneOptions, machine: Machine, samples: Any) -> Any:
    from oomdoctor.tune.tuner import MARGIN, Wanted

    trains_in_ram = not machine.gpus and (options.emulates_nothing or CPU_LIMIT in os.environ)
    free_ram = machine.ram.available_bytes
    return Wanted(
        budget_bytes=_budget(options.memory, machine),
        margin=MARGIN if options.margin is None else options.margin,
        minimum=options.min_batch_size,
        maximum=options.max_batch_size,
        multiple_of=math.lcm(options.multiple_of or 1, options.replicas),
        objective=options.objective,
        samples=samples and samples.count,
        reserved_bytes=samples.held_bytes if samples and trains_in_ram else 0,
        host_bytes=_rounded(free_ram) if options.emulates_nothing and free_ram else None,
    )


def _budget(memory: Size | None, machine: Machine) -> int:
    if memory is not None:
        return parse_size(memory)
    if machine.gpus:
        usable = machine.usable_vram_bytes
        if usable is None:
            raise UsageError("The GPU does not report its free memory: pass memory= (--vram).")
        return _rounded(usable)
    if machine.ram.available_bytes is None:
        raise UsageError("Free RAM is unknown: pass memory= (--vram).")
    return _rounded(int(machine.ram.available_bytes * HOST_SHARE))


def _rounded(free_bytes: int) -> int:
    """Return free memory in steps, so that an answer found today is found again tomorrow."""
    return free_bytes // BUCKET_BYTES * BUCKET_BYTES or free_bytes


def _failure(
    failed: Any, model: Any, facts: Facts, budget: int, options: TuneOptions
) -> OomDoctorError:
    """Return the error that says why there is no answer."""
    tried = [trial.batch_size for trial in failed.trials]
    if failed.out_of_time and not failed.is_hopeless:
        so_far = (
            f"a batch size of {min(tried)} does not fit, and no time was left for a smaller one"
            if tried
            else "starting TensorFlow, building the model and two training steps took longer"
        )
        return UsageError(
            f"No batch size was found within {options.max_seconds:g} s: {so_far}. Allow more time "
            "with max_seconds= (--time)."
        )
    if not tried:
        return UsageError(
            "No batch size is allowed: see min_batch_size=, max_batch_size= and multiple_of=."
        )
    report = _remedies(model, facts, budget, options)
    smallest = options.min_batch_size if failed.is_hopeless else min(tried)
    titles = [finding.fix.title for finding in report.findings if finding.fix and _helps(finding)]
    unique = list(dict.fromkeys(titles))[:MAX_REMEDIES]
    what = f"Not even a batch size of {smallest} fits in {format_bytes(budget)}."
    help_ = (
        f"What would help: {'; '.join(unique)}."
        if unique
        else "`oomdoctor estimate` shows what takes the memory."
    )
    return DoesNotFitError(f"{what} {help_}", report)


def _remedies(model: Any, facts: Facts, budget: int, options: TuneOptions) -> Report:
    """Return what the rules say of a step with the smallest batch on a card of that size."""
    card = probe_machine(vram=budget)
    try:
        with estimating(model, kind="train", **options.how_trained) as estimated:
            estimate, workload = estimated(options.min_batch_size)
    except OomDoctorError:
        return replace(conclude("tune", facts, rules=()), verdict="does_not_fit")
    # That it does not fit is known; the estimate says what takes the memory.
    estimate = replace(estimate, peak_bytes=max(estimate.peak_bytes, budget + 1))
    facts = replace(facts, machine=card, estimate=estimate, workload=workload)
    report = conclude("tune", facts, rules=())
    return replace(report, verdict="does_not_fit")


def _helps(finding: Finding) -> bool:
    """Return whether a finding has a remedy that the smallest batch leaves open."""
    is_about_batches = finding.remedy in ("reduce_batch", "gradient_accumulation", "multi_gpu")
    return finding.outcome == "fired" and not is_about_batches
