"""A traced step → where to begin looking for a batch size, before anything has run.

What the way back reads of the way forth must be kept until then: outputs of forward ops that feed
an op of the gradient tape. Their sizes, with what variables, gradients and slots take, give the
peak to within a factor of two or so, which is all a first probe needs. Loops hide what they keep.
"""

from __future__ import annotations

from typing import Any

from oomdoctor.measure.step import Step

_BACKWARD = "gradient_tape"
_LOOPS = ("While", "StatelessWhile")


def prior_of(step: Step) -> dict[str, int] | None:
    """Return the bytes that any batch takes and those of each sample, or None where unknown."""
    if not step.free:
        return None
    function = step.function(1)
    kept: dict[int, int] = {}
    for op in function.graph.get_operations():
        if op.type in _LOOPS:
            return None
        if _BACKWARD not in op.name:
            continue
        for tensor in op.inputs:
            if _BACKWARD not in tensor.op.name:
                kept[id(tensor)] = _bytes_of_sample(tensor)
    model = step.model
    trained = sum(_bytes_of(v) for v in model.trainable_variables)
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.variables, *(optimizer.variables if optimizer is not None else ())]
    held = sum(_bytes_of(variable) for variable in {id(v): v for v in variables}.values())
    each = sum(kept.values())
    return {"fixed_bytes": held + trained, "sample_bytes": each} if each else None


def _bytes_of_sample(tensor: Any) -> int:
    """Return what one sample takes of a tensor; 0 where the batch does not shape it."""
    shape = tensor.shape
    if shape.rank is None or None not in shape.as_list():
        return 0
    count = 1
    for size in shape.as_list():
        count *= size or 1
    return int(count * tensor.dtype.size)


def _bytes_of(variable: Any) -> int:
    value = variable.value
    return int(value.dtype.size * (value.shape.num_elements() or 0))
