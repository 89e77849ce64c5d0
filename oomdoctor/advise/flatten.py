"""Flattens `Facts` into the two-level names of the vocabulary.

What a command did not produce stays None.
"""

from __future__ import annotations

import re

from oomdoctor.advise.flatten_data import (
    Value,
    data_values,
    feeding_values,
    known_sum,
    pipeline_values,
)
from oomdoctor.advise.flatten_profile import profile_values
from oomdoctor.facts import (
    CodeMatch,
    Diagnosis,
    Estimate,
    Facts,
    Gpu,
    Growth,
    Machine,
    Sharding,
    Workload,
)

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def values(facts: Facts, *, purpose: str | None = None) -> dict[str, Value]:
    """Return every fact of the vocabulary by name; None where it is not known.

    Args:
        facts: What the stages found.
        purpose: What the run is for: prototype, train or production.
    """
    flat: dict[str, Value] = {}
    flat.update(_machine(facts.machine))
    flat.update(data_values(facts.inventory, facts.footprint, facts.workload))
    flat.update(feeding_values(facts.footprint))
    flat.update(pipeline_values(facts.footprint.stages if facts.footprint else ()))
    flat.update(_model(facts.workload))
    flat.update(_step(facts.estimate))
    flat.update(_sharding(facts.sharding))
    flat.update(_baseline(facts.growth))
    flat.update(_crash(facts.diagnosis))
    # Known with every crash, so that rules for logs can leave recordings to rules of their own.
    flat["crash.is_recorded"] = None if facts.diagnosis is None else facts.profile is not None
    flat.update(profile_values(facts.profile))
    versions = dict(facts.versions)
    builds = ("tensorflow", "tensorflow-cpu", "tensorflow_cpu", "tf-nightly")
    build = next((versions[name] for name in builds if name in versions), None)
    flat["versions.tensorflow"] = version_number(build)
    flat["versions.keras"] = version_number(versions.get("keras"))
    flat["run.purpose"] = purpose
    flat.update(code_values(None))
    return flat


def code_values(match: CodeMatch | None) -> dict[str, Value]:
    """Return what a rule may read of one place in source code."""
    return {
        "code.check": match.check if match else None,
        "code.text": match.text if match else None,
        "code.name": match.name if match else None,
        "code.count": match.count if match else None,
        "code.parts": match.parts if match else None,
        "code.detail": match.detail if match else None,
        "code.held_bytes": match.size_bytes if match else None,
        "code.size": f" {match.size}" if match and match.size else None,
    }


def version_number(text: str | None) -> int | None:
    """Return a version as a number that compares, or None where there is none to read.

    Example:
        >>> version_number("2.21.0rc1")
        22100
    """
    match = _VERSION.match(text or "")
    if match is None:
        return None
    return int(match[1]) * 10000 + int(match[2]) * 100 + int(match[3] or 0)


def _least(sizes: list[int | None]) -> int | None:
    """The smallest size, or None: one that is unknown may be smaller still."""
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def _machine(machine: Machine | None) -> dict[str, Value]:
    ram = machine.ram if machine else None
    gpus = machine.gpus if machine else ()
    fullest = _fullest(gpus)
    processes = fullest.processes if fullest else None
    held = [process.used_bytes for process in processes or ()]
    known = [used for used in held if used is not None]
    return {
        "machine.ram_total_bytes": ram.total_bytes if ram else None,
        "machine.ram_available_bytes": ram.available_bytes if ram else None,
        "machine.ram_limit_bytes": ram.limit_bytes if ram else None,
        "machine.ram_limit_source": ram.limit_source if ram else None,
        "machine.ram_usable_bytes": _least([ram.total_bytes, ram.limit_bytes or ram.total_bytes])
        if ram
        else None,
        "machine.swap_total_bytes": ram.swap_total_bytes if ram else None,
        "machine.cpu_count": machine.cpu_count if machine else None,
        # No GPU seen is not "no GPU": the driver may be hidden from us.
        "machine.gpu_count": len(gpus) or None,
        "machine.gpu_name": fullest.name if fullest else None,
        "machine.gpu_total_bytes": _least([gpu.total_bytes for gpu in gpus]),
        "machine.gpu_free_bytes": _least([gpu.free_bytes for gpu in gpus]),
        "machine.gpu_usable_bytes": machine.usable_vram_bytes if machine else None,
        "machine.gpu_used_bytes": fullest.used_bytes if fullest else None,
        "machine.gpu_other_process_bytes": (
            None if processes is None or (held and not known) else sum(known)
        ),
        "machine.gpu_process_count": None if processes is None else len(processes),
        "machine.has_tensor_cores": _tensor_cores(gpus),
    }


def _fullest(gpus: tuple[Gpu, ...]) -> Gpu | None:
    known = [gpu for gpu in gpus if gpu.free_bytes is not None]
    if known:
        return min(known, key=lambda gpu: gpu.free_bytes or 0)
    return gpus[0] if gpus else None


def _tensor_cores(gpus: tuple[Gpu, ...]) -> bool | None:
    if not gpus or any(gpu.compute_capability is None for gpu in gpus):
        return None
    # The GTX 16 series reports 7.5 and has none.
    return all(
        (gpu.compute_capability or (0, 0)) >= (7, 0) and "GTX 16" not in gpu.name for gpu in gpus
    )


def _model(workload: Workload | None) -> dict[str, Value]:
    shape = (workload.input_shape if workload else None) or ()
    is_image = len(shape) == 3
    return {
        "model.name": workload.model if workload else None,
        "model.weights_bytes": workload.weights_bytes if workload else None,
        "model.trainable_bytes": workload.trainable_bytes if workload else None,
        "model.optimizer": workload.optimizer if workload else None,
        "model.optimizer_bytes": workload.optimizer_bytes if workload else None,
        "model.precision": workload.precision if workload else None,
        "model.input_height": shape[0] if is_image else None,
        "model.input_width": shape[1] if is_image else None,
        "model.has_batch_norm": workload.has_batch_norm if workload else None,
        "model.replicas": workload.replicas if workload else None,
        "model.batch_size": workload.batch_size if workload else None,
    }


def _step(estimate: Estimate | None) -> dict[str, Value]:
    parts = dict(estimate.parts) if estimate else {}
    fixed = known_sum(parts.get(part) for part in ("weights", "gradients", "optimizer"))
    other = estimate.other if estimate else None
    return {
        "step.batch_size": estimate.batch_size if estimate else None,
        "step.program": estimate.program if estimate else None,
        "step.peak_bytes": estimate.peak_bytes if estimate else None,
        "step.low_bytes": estimate.low_bytes if estimate else None,
        "step.high_bytes": estimate.high_bytes if estimate else None,
        "step.other_peak_bytes": other.peak_bytes if other else None,
        "step.other_low_bytes": other.low_bytes if other else None,
        "step.other_high_bytes": other.high_bytes if other else None,
        "step.fixed_bytes": fixed,
        "step.activation_bytes": parts.get("activations"),
        "step.largest_tensor_bytes": estimate.largest_tensor_bytes if estimate else None,
        "step.per_sample_bytes": estimate.per_sample_bytes if estimate else None,
    }


def _sharding(sharding: Sharding | None) -> dict[str, Value]:
    return {
        "sharding.card": sharding.card if sharding else None,
        "sharding.card_bytes": sharding.card_bytes if sharding else None,
        "sharding.whole_bytes": sharding.whole_bytes if sharding else None,
        "sharding.cards": sharding.cards if sharding else None,
        "sharding.each_bytes": sharding.each_bytes if sharding else None,
    }


def _baseline(growth: Growth | None) -> dict[str, Value]:
    return {
        "baseline.recorded_bytes": growth.recorded_bytes if growth else None,
        "baseline.growth_bytes": growth.growth_bytes if growth else None,
        "baseline.allowed_bytes": growth.allowed_bytes if growth else None,
    }


def _crash(diagnosis: Diagnosis | None) -> dict[str, Value]:
    shape = (diagnosis.shape if diagnosis else None) or ()
    return {
        "crash.cause": diagnosis.cause if diagnosis else None,
        **_circumstances(diagnosis),
        "crash.requested_bytes": diagnosis.requested_bytes if diagnosis else None,
        "crash.limit_bytes": diagnosis.limit_bytes if diagnosis else None,
        "crash.in_use_bytes": diagnosis.in_use_bytes if diagnosis else None,
        "crash.device": diagnosis.device if diagnosis else None,
        "crash.op": diagnosis.op if diagnosis else None,
        "crash.layer": diagnosis.layer if diagnosis else None,
        "crash.batch_dimension": _batch_size(diagnosis, shape) if diagnosis else None,
        "crash.rank": len(shape) if shape else None,
        "crash.op_kind": _op_kind(diagnosis.op) if diagnosis else None,
        "crash.is_weight_gradient": _is_weight_gradient(diagnosis.op, shape) if diagnosis else None,
    }


_SIGNS = {
    "crash.is_on_gpu": "gpu",
    "crash.is_optimizer_state": "optimizer_state",
    "crash.has_shuffle_buffer": "shuffle_buffer",
    "crash.has_cache": "cache",
}


def _circumstances(diagnosis: Diagnosis | None) -> dict[str, Value]:
    """What a log shows beside the failure; what it does not show is False, not unknown."""
    if diagnosis is None:
        names = ("is_before_training", "is_training", "epochs", "may_be_held")
        return dict.fromkeys((*(f"crash.{name}" for name in names), *_SIGNS))
    others = {other.cause for other in diagnosis.alternatives}
    return {
        "crash.is_before_training": diagnosis.stage == "weights",
        "crash.is_training": diagnosis.stage == "training",
        "crash.epochs": diagnosis.epochs or 0,
        "crash.may_be_held": "gpu_held_by_other_process" in others,
        **{name: sign in diagnosis.signs for name, sign in _SIGNS.items()},
    }


def _batch_size(diagnosis: Diagnosis, shape: tuple[int, ...]) -> int | None:
    """The batch that was given or inferred; else the first dimension, which mostly is one."""
    if diagnosis.cause == "xla_exhausted" and diagnosis.batch_dimension is None:
        return diagnosis.batch_size  # the shape is that of the largest buffer
    return diagnosis.batch_size or (shape[0] if shape else None)


def _op_kind(op: str | None) -> str | None:
    last = (op or "").split(" ")[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"_\d+$", "", last) or None


_KEPT_FOR_WEIGHTS = re.compile(
    r"/Initializer/|_initializer/|(?:^|/)(?:Adam|Momentum|RMSprop|Adagrad)\w*/(?:.*/)?"
    r"(?:Assign|Initializer|zeros)\w*$"
)


def _is_weight_gradient(op: str | None, shape: tuple[int, ...]) -> bool:
    """Whether the name and the shape prove it; no proof is False, so that rules can go on."""
    if op is None:
        return False
    if _KEPT_FOR_WEIGHTS.search(op.split(" ")[0]):
        return True
    if "gradient" not in op:
        return False
    kind = _op_kind(op) or ""
    if "BackpropFilter" in kind:
        return True
    # The gradient of `inputs @ weights` has two products: the second one belongs to the weights.
    # A first layer has that one only, unnumbered: then a first dimension that no batch has tells.
    is_second = op.split(" ")[0].endswith("_1")
    return kind == "MatMul" and len(shape) == 2 and (is_second or shape[0] >= 10_000_000)
