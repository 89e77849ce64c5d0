"""Which batch size?"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from oomdoctor._optional import require
from oomdoctor.api.conclude import conclude, installed, must_be_positive
from oomdoctor.api.machine import Size, probe_machine
from oomdoctor.api.model import simulate, spec_of, traced_step
from oomdoctor.errors import DoesNotFitError, OomDoctorError, UsageError
from oomdoctor.facts import Facts, Machine, SizeTrial, Tuning, Workload
from oomdoctor.findings import Finding, Report
from oomdoctor.measure.redraw import DRAWS
from oomdoctor.measure.spec import ModelSpec
from oomdoctor.tune.batch_size import BatchSize
from oomdoctor.units import MIB, format_bytes, parse_size

BUCKET_BYTES = 256 * MIB
"""Free memory, which changes by the minute, is counted in steps of this."""

MAX_REMEDIES = 3

HOST_SHARE = 0.8
"""Part of the free RAM that a step may take where the CPU trains: the rest is the program's."""

CPU_LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
"""Where this is set, the program that asks trains on the CPU, under that limit."""

TOLD_BY_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
"""What changes an answer and is told to TensorFlow from outside."""

_WITHOUT_MARGIN = (
    f"Without a margin a size counts only if it trains in {DRAWS} orders of its ops, which "
    "TensorFlow draws anew in every process; another may still need a little more."
)


def suggest_batch_size(
    model: Any,
    data: Any = None,
    *,
    memory: Size | None = None,
    machine: str | Machine | None = None,
    input_shape: Any = None,
    optimizer: str | None = None,
    loss: str | None = None,
    margin: float = 0.05,
    min_batch_size: int = 1,
    max_batch_size: int | None = None,
    multiple_of: int | None = None,
    replicas: int = 1,
    objective: str = "largest",
    cache: bool = True,
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
        data: What `fit` will be given: arrays as `(x, y)`, a `tf.data.Dataset`, a `PyDataset`, or
            a function that returns a generator. Its largest samples are what is run.
        memory: What training may take, such as `6GiB`. None is what is free now: on the GPU, or
            in RAM where there is none.
        machine: A catalogue entry such as `colab-t4`, to train on in place of this machine.
        input_shape: One sample, where the model leaves dimensions open.
        optimizer: For a model that is not compiled.
        loss: For a model that is not compiled.
        margin: Part of the memory for batches that may stay unused; 0 searches for the exact
            maximum.
        min_batch_size: The smallest size worth having.
        max_batch_size: The largest size allowed.
        multiple_of: Sizes are multiples of this, and of `replicas`.
        replicas: GPUs that share each batch.
        objective: `largest`, or `fastest`: the smallest within 5 % of the best speed.
        cache: Whether an answer that was found before, for the same question, will do.

    Raises:
        DoesNotFitError: Not even the smallest size fits; its `report` has the remedies.
    """
    report = tune_report(
        model,
        data,
        memory=memory,
        machine=machine,
        input_shape=input_shape,
        optimizer=optimizer,
        loss=loss,
        margin=margin,
        min_batch_size=min_batch_size,
        max_batch_size=max_batch_size,
        multiple_of=multiple_of,
        replicas=replicas,
        objective=objective,
        cache=cache,
    )
    assert report.facts.tuning is not None
    return BatchSize(report.facts.tuning)


def tune_report(
    model: Any,
    data: Any = None,
    *,
    memory: Size | None,
    machine: str | Machine | None,
    margin: float,
    min_batch_size: int,
    max_batch_size: int | None,
    multiple_of: int | None,
    replicas: int,
    objective: str,
    cache: bool,
    watch: Callable[[SizeTrial], None] | None = None,
    **how_trained: Any,
) -> Report:
    """Return the search as a report, for the command line. Arguments as above."""
    from oomdoctor.tune.bench import Bench
    from oomdoctor.tune.cache import keep
    from oomdoctor.tune.tuner import OBJECTIVES, Failed, Wanted, tune

    must_be_positive(
        min_batch_size=min_batch_size,
        max_batch_size=max_batch_size,
        multiple_of=multiple_of,
        replicas=replicas,
    )
    if objective not in OBJECTIVES:
        raise UsageError(f"{objective!r} is no objective: use one of {', '.join(OBJECTIVES)}.")
    if not 0 <= margin < 1:
        raise UsageError(f"A margin is a part of the memory, from 0 to below 1: {margin} is not.")
    require("tensorflow", extra="tensorflow", purpose="to run a training step")
    known_machine = probe_machine(machine=machine)
    budget = _budget(memory, known_machine)
    emulates_nothing = memory is None and machine is None
    trains_in_ram = not known_machine.gpus and (emulates_nothing or CPU_LIMIT in os.environ)
    samples = None if data is None else _samples(data)
    spec = spec_of(
        model, replicas=replicas, samples=samples and json.dumps(samples.tree), **how_trained
    )
    here = known_machine if emulates_nothing else probe_machine()
    wanted = Wanted(
        budget_bytes=budget,
        margin=margin,
        minimum=min_batch_size,
        maximum=max_batch_size,
        multiple_of=math.lcm(multiple_of or 1, replicas),
        objective=objective,
        samples=samples and samples.count,
        shares_memory=trains_in_ram,
        reserved_bytes=samples.held_bytes if samples and trains_in_ram else 0,
        host_bytes=_host_bytes(known_machine) if emulates_nothing else None,
    )
    with Bench(
        spec,
        budget_bytes=budget,
        has_gpu=bool(here.gpus),
        thorough=not margin,
    ) as bench:
        question = _question(spec, wanted, bench.digest) if cache else None
        found: Tuning | Failed | None = (
            None if question is None else _found_before(question, wanted)
        )
        if found is None:
            found = tune(bench, wanted, watch)
            if question is not None and isinstance(found, Tuning):
                keep(question, found)
    workload = Workload(model=spec.source, replicas=replicas, precision=spec.precision)
    facts = Facts(machine=known_machine, workload=workload, versions=installed())
    if not isinstance(found, Tuning):
        report = _remedies(model, facts, budget, min_batch_size, how_trained)
        raise DoesNotFitError(_nothing_fits(found.trials, budget, report), report)
    if found.limited_by == "memory" and emulates_nothing and not known_machine.gpus:
        found = replace(found, limited_by="host RAM")
    notes = (*found.notes, *(samples.notes if samples else ()))
    if not margin:
        notes += (_WITHOUT_MARGIN,)
    found = replace(found, replicas=replicas, notes=tuple(dict.fromkeys(notes)))
    facts = replace(facts, tuning=found)
    return conclude("tune", facts, rules=())


def _question(
    spec: ModelSpec, wanted: Any, digest_of_built: Callable[[], str | None]
) -> str | None:
    """Return the name of what is asked, or None where the same words may mean another model."""
    from oomdoctor._version import __version__
    from oomdoctor.measure.own_code import digest_of_code
    from oomdoctor.tune.cache import digest

    described: Any = asdict(spec)
    if spec.config is not None:
        content = digest_of_code() if spec.objects else ""
    elif spec.source.endswith(".keras"):
        content = _digest_of_file(spec.source)
    else:
        content = digest_of_built()  # code can change under the same name: it is loaded first
    if content is None:
        return None
    described["content"] = content
    described.pop("sys_path")
    return digest(
        {
            "spec": described,
            "wanted": asdict(wanted),
            "versions": [__version__, *installed()],
            "device": [platform.machine(), platform.node(), os.cpu_count()],
            "environment": [os.environ.get(name) for name in TOLD_BY_ENVIRONMENT],
        }
    )


def _digest_of_file(path: str) -> str | None:
    whole = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(MIB):
                whole.update(block)
    except OSError:
        return None
    return whole.hexdigest()


def _found_before(question: str, wanted: Any) -> Tuning | None:
    from oomdoctor.tune.cache import find

    def accepts(tuning: Tuning) -> bool:
        return bool(
            tuning.batch_size >= wanted.minimum
            and (wanted.maximum is None or tuning.batch_size <= wanted.maximum)
            and tuning.batch_size % wanted.multiple_of == 0
            and tuning.budget_bytes == wanted.budget_bytes
            and tuning.objective == wanted.objective
        )

    found = find(question, accepts=accepts)
    if found is None:
        return None
    note = "Found before and kept; cache=False or --no-cache runs it again."
    return replace(found, notes=(*found.notes, note))


def _samples(data: Any) -> Any:
    from oomdoctor.measure.samples import read_samples

    return read_samples(data)


def _budget(memory: Size | None, machine: Machine) -> int:
    if memory is not None:
        return parse_size(memory)
    if machine.gpus:
        usable = machine.usable_vram_bytes
        if usable is None:
            raise UsageError("The GPU does not say how much memory is free: give memory=, --vram.")
        return _rounded(usable)
    if machine.ram.available_bytes is None:
        raise UsageError("How much memory is free is not known: give memory=, or --vram.")
    return _rounded(int(machine.ram.available_bytes * HOST_SHARE))


def _host_bytes(machine: Machine) -> int | None:
    """Return the RAM that batches are prepared in, in steps as well."""
    free = machine.ram.available_bytes
    return None if free is None else _rounded(free)


def _rounded(free_bytes: int) -> int:
    """Return free memory in steps, so that an answer found today is found again tomorrow."""
    return free_bytes // BUCKET_BYTES * BUCKET_BYTES or free_bytes


def _remedies(
    model: Any, facts: Facts, budget: int, batch_size: int, how_trained: dict[str, Any]
) -> Report:
    """Return what the rules say of a step with the smallest batch on a card of that size."""
    card = probe_machine(vram=budget)
    try:
        estimate, workload = simulate(traced_step(model, kind="train", **how_trained), batch_size)
    except OomDoctorError:
        return replace(conclude("tune", facts, rules=()), verdict="does_not_fit")
    # That it does not fit is known; the estimate says what takes the memory.
    estimate = replace(estimate, peak_bytes=max(estimate.peak_bytes, budget + 1))
    facts = replace(facts, machine=card, estimate=estimate, workload=workload)
    report = conclude("tune", facts, rules=())
    return replace(report, verdict="does_not_fit")


def _nothing_fits(trials: tuple[SizeTrial, ...], budget: int, report: Report) -> str:
    smallest = min((trial.batch_size for trial in trials), default=None)
    if smallest is None:
        return "No batch size lies between the smallest and the largest that were allowed."
    titles = [finding.fix.title for finding in report.findings if finding.fix and _helps(finding)]
    unique = list(dict.fromkeys(titles))[:MAX_REMEDIES]
    what = f"Not even a batch of {smallest} trains in {format_bytes(budget)}."
    if not unique:
        return f"{what} `oomdoctor estimate` shows what takes the memory."
    return f"{what} What would help: {'; '.join(unique)}."


def _helps(finding: Finding) -> bool:
    """Return whether a finding has a remedy that the smallest batch leaves open."""
    is_about_batches = finding.remedy in ("reduce_batch", "gradient_accumulation", "multi_gpu")
    return finding.outcome == "fired" and not is_about_batches
