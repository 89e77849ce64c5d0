"""Says what the bytes at the peak are: by part, by layer, by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oomdoctor.estimate.executor import Origin, is_optimizer
from oomdoctor.estimate.nodes import Variable

PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
OTHER = "(outside layers)"


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
