"""How far a run had come when it failed, and what the failed request was for.

Weights and optimizer state are created before the first batch: then no batch size helps. A run
that had trained for some epochs had loaded its data: then what is kept from step to step counts.
"""

from __future__ import annotations

import re

from oomdoctor.diagnose.events import Log
from oomdoctor.diagnose.request import Request

_BUILDERS = (
    "build",
    "build_wrapper",
    "add_weight",
    "add_variable",
    "add_optimizer_variables",
    "_create_slots",
    "_init_from_args",
    "default_variable_creator",
    "load_weights",
    "load_own_variables",
    "batch_set_value",
    "set_weights",
)
_LIBRARY = re.compile(
    r"(?:site|dist)-packages|[/\\]lib[/\\]python\d|[/\\](?:tensorflow|keras)[/\\](?:python|src)[/\\]"
)
_CREATED = re.compile(
    r"/Initializer/|_initializer/|(?:^|/)Initializer|/initial_value|(?:^|/)(?:zeros|ones)(?:_\d{1,6})?$"
    r"|/(?:truncated_normal|random_uniform|random_normal)/"
)
_OPTIMIZERS = (
    r"Adam|AdamW|AdamWeightDecay|Adamax|Nadam|Adagrad|Adadelta|Adafactor|RMSProp|RMSprop|Momentum"
    r"|SGD|Ftrl|Lamb|LAMB|Lion|Muon"
)
_STATE = re.compile(rf"(?:^|/)(?:{_OPTIMIZERS})(?:Optimizer)?(?:_\d{{1,6}})?(?:/|$)", re.IGNORECASE)
"""An op below the optimizer's own name: its slots and its update."""
_UPDATES = (
    "update_step",
    "_resource_apply_dense",
    "_resource_apply_sparse",
    "_resource_apply_sparse_duplicate_indices",
    "_apply_dense",
    "_apply_sparse",
)
"""Functions of optimizers that change weights."""


def is_optimizer_name(name: str) -> bool:
    """Whether a scope has the name of an optimizer."""
    return _STATE.fullmatch(name) is not None


def creates_weights(log: Log, request: Request) -> bool:
    """Whether weights or optimizer state were being created, or loaded, when memory ran out."""
    if request.event is None:
        return False
    op = (request.op or "").split(" ")[0]
    if _CREATED.search(op):
        return True
    frames = [frame for frame in log.frames if frame.line <= request.event.line + 60]
    return any(
        frame.function in _BUILDERS and _LIBRARY.search(frame.file) for frame in frames[-30:]
    )


def is_optimizer_state(log: Log, request: Request) -> bool:
    """Whether the op that asked belongs to the optimizer's state or its update."""
    if any(frame.function in _UPDATES for frame in list(log.frames)[-12:]):
        return True
    op = (request.op or "").split(" ")[0]
    found = _STATE.search(op)
    # Keras 2 put the gradients below the optimizer's name.
    return found is not None and "gradient" not in op[found.end() :].lower()


def stage_of(log: Log, request: Request) -> str | None:
    """Return `weights` or `training`; None where the log shows neither."""
    if creates_weights(log, request):
        return "weights"
    end = request.event.line if request.event else log.lines
    return "training" if log.first_progress is not None and log.first_progress <= end else None
