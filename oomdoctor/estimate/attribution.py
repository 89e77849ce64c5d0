"""Says what the bytes at the peak are: by part, by layer, by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oomdoctor.estimate.buffers import Origin
from oomdoctor.estimate.nodes import Variable

OPTIMIZERS = frozenset(
    {"adam", "adamw", "sgd", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "ftrl", "lion",
     "adafactor", "lamb", "muon", "loss_scale_optimizer", "optimizer"}
)  # fmt: skip
"""Name scopes of Keras's optimizers."""
PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
OTHER = "(outside layers)"


def is_optimizer(name: str) -> bool:
    """Whether a node belongs to the optimizer's update.

    Example:
        >>> is_optimizer("cond/adam_1/Sqrt_13"), is_optimizer("model/conv2d/Relu")
        (True, False)
    """
    return any(part.rstrip("_0123456789") in OPTIMIZERS for part in name.split("/", 2)[:2])


def part_of(origin: Origin, variables: list[Variable], trainable: set[tuple[int, ...]]) -> str:
    """Return the part a buffer belongs to.

    Args:
        origin: Where the buffer came from.
        variables: By number.
        trainable: Shapes of the trainable variables, to tell a weight's gradient.
    """
    if origin.variable is not None:
        return variables[origin.variable].part
    if origin.kind == "temp":
        return "workspace"
    if is_optimizer(origin.node):
        return "optimizer"
    if origin.node.startswith("gradient_tape") and origin.dims in trainable:
        return "gradients"
    return "activations"


def layer_of(name: str, layers: dict[str, str], known: set[str]) -> str:
    """Return the Keras layer a node's scope belongs to.

    Example:
        >>> layer_of("gradient_tape/functional_1/conv2d_1/Relu", {"conv2d_1": "conv2d"}, {"conv2d"})
        'conv2d'
    """
    for part in reversed(name.split("/")[:-1]):
        if part in layers:
            return layers[part]
        stem, _, number = part.rpartition("_")
        if number.isdigit() and stem in known:
            return stem
        if part in known:
            return part
    return OTHER


def totals(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    """Return the bytes of each name."""
    found: Counter[str] = Counter()
    for name, size in pairs:
        found[name] += size
    return found
