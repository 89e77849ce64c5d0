"""Moves constants down in products and sums, as Grappler does: c·(x·y) becomes x·(c·y).

It costs nothing to compute and can cost memory: `y` may be known long before `x`. In attention `y`
is the softmax and `x` its gradient. Scaled early, the softmax lies in memory twice from the forward
pass on, if what should use it first is not ready: which of query, key and value is computed last
is chance, and with it some percent of the peak.

Grappler does more: it also moves constants through differences and quotients, which was not seen
to change when a tensor is made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from oomdoctor.estimate.nodes import Graph, Node

_MOVES = frozenset({"Mul", "AddV2"})


def pushed_down(graph: Graph) -> list[Node]:
    """Return the nodes of a function with its constants moved down."""
    nodes = list(graph.nodes)
    uses = Counter(source for node in nodes for source, _ in node.inputs)
    uses.update(source for source, _ in graph.results)
    for at, node in enumerate(nodes):
        if node.op not in _MOVES or len(node.inputs) != 2:
            continue
        for side in (0, 1):
            constant, below = node.inputs[side], node.inputs[1 - side]
            child = nodes[below[0]]
            if (
                nodes[constant[0]].op != "Const"
                or child.op != node.op
                or uses[below[0]] != 1
                or len(child.inputs) != 2
            ):
                continue
            first, second = child.inputs
            if nodes[first[0]].op == "Const":
                first, second = second, first
            if nodes[first[0]].op != "Const":
                nodes[at] = replace(node, inputs=(first, below))
                nodes[below[0]] = replace(child, inputs=(constant, second))
                break
    return nodes


def moved_inputs(graph: Graph) -> dict[str, list[str]]:
    """Return the inputs of the nodes that this changes, all by name, as TensorFlow writes them."""

    def written(source: int, port: int) -> str:
        name = graph.nodes[source].name
        return f"{name}:{port}" if port else name

    return {
        node.name: [written(*source) for source in node.inputs]
        for before, node in zip(graph.nodes, pushed_down(graph), strict=True)
        if node is not before
    }
