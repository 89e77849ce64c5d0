"""Says what the bytes at the peak are: by part, and by layer.

A buffer belongs to the layer whose operations made it, forward or backward: the scope in a node's
name tells. What no layer made, such as a sum between two layers, a transposition in a model's own
`call`, or the sum of gradients where a tensor was used twice, belongs to the layer whose gradient
needs it; failing that, to the nearest layer it was computed from, and then to the nearest that it
leads to. The inputs, the loss and the optimizer have rows of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from oomdoctor.estimate.buffers import Origin
from oomdoctor.estimate.nodes import Graph, Variable
from oomdoctor.estimate.scopes import INPUTS, OTHER, ROWS, Scopes

OPTIMIZERS = frozenset(
    {"adam", "adamw", "sgd", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "ftrl", "lion",
     "adafactor", "lamb", "muon", "loss_scale_optimizer", "optimizer"}
)  # fmt: skip
"""Name scopes of Keras's optimizers."""
PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
_TAPE = "gradient_tape"


class Owner(NamedTuple):
    """Whose a buffer is."""

    row: str
    """The path of a layer, or a row beside the layers."""
    is_backward: bool


def owners_of(graph: Graph, scopes: Scopes, variables: list[Variable]) -> dict[str, Owner]:
    """Return whose the outputs of each node are, by the node's name.

    Args:
        graph: The step, calls inlined; inputs come before what uses them.
        scopes: What was noted while it was traced.
        variables: By number.
    """
    nodes = graph.nodes
    arguments = set(graph.arguments)
    rows: list[str | None] = []
    for number, node in enumerate(nodes):
        if number not in arguments:
            rows.append(scopes.row_of(node.name))
        elif node.variable is None:
            rows.append(INPUTS)
        else:
            rows.append(variables[node.variable].layer)
    backward = [_TAPE in node.name for node in nodes]
    needed_by: list[str | None] = [None] * len(nodes)
    told = list(rows)
    for number, node in enumerate(nodes):
        for source, _ in node.inputs:
            row = told[number]
            if backward[number] and _is_layer(row) and needed_by[source] is None:
                needed_by[source] = row
    for number, node in enumerate(nodes):
        if rows[number] is None:
            given = [rows[source] for source, _ in node.inputs]
            layers = [row for row in given if _is_layer(row)]
            rows[number] = needed_by[number] or next(iter(layers or filter(None, given)), None)
            backward[number] = any(backward[source] for source, _ in node.inputs)
    for number in range(len(nodes) - 1, -1, -1):
        for source, _ in nodes[number].inputs:
            if rows[source] is None or (rows[source] == OTHER and rows[number] is not None):
                rows[source] = rows[number]
    return {
        node.name: Owner(rows[number] or OTHER, backward[number])
        for number, node in enumerate(nodes)
    }


def owner_of(
    origin: Origin, owners: dict[str, Owner], scopes: Scopes, variables: list[Variable]
) -> Owner:
    """Return whose a buffer is.

    Args:
        origin: Where the buffer came from.
        owners: By name of the node.
        scopes: What was noted while the step was traced.
        variables: By number.
    """
    if origin.variable is not None:
        return Owner(variables[origin.variable].layer or OTHER, False)
    if not origin.caller:
        known = owners.get(origin.node)
        if known is not None:
            return known
        if origin.node == INPUTS:
            return Owner(INPUTS, False)
        # A recorded step has nodes that TensorFlow's optimizer made.
        return Owner(scopes.row_of(origin.node) or OTHER, _TAPE in origin.node)
    # Inside of a loop or a function, its own names tell more, and its caller's name the rest.
    caller = owners.get(origin.caller, Owner(OTHER, False))
    return Owner(scopes.row_of(origin.node) or caller.row, caller.is_backward)


def _is_layer(row: str | None) -> bool:
    return row is not None and row not in ROWS


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
    if origin.node.startswith(_TAPE) and origin.dims in trainable:
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
