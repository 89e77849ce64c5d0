"""Brings a traced graph into the form the executor runs.

Function calls and branches are inlined, as TensorFlow lowers them; of a branch the larger side
is taken, which for a loss scale is the step that updates the weights. Operations that only hand
on their input are bypassed, as Grappler does. Loops stay whole.
"""

from __future__ import annotations

from dataclasses import replace

from oomdoctor.estimate.nodes import Graph, Node, Shape, Source, TensorType
from oomdoctor.estimate.pushdown import pushed_down

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall", "SymbolicGradient"})
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_NEUTRAL = {"Mul": (1, True), "AddV2": (0, True), "Sub": (0, False), "RealDiv": (1, False)}
"""The number that changes nothing, and whether it may stand first."""
_HANDS_ON = frozenset({"Identity", "IdentityN", "StopGradient", "PreventGradient"})


def simplified(graph: Graph) -> Graph:
    """Return the graph with calls inlined and pass-through operations bypassed."""
    flat = _Flat()
    arguments: list[int] = []
    known: dict[int, Source] = {}
    for number in graph.arguments:
        known[number] = (flat.add(_copy(graph.nodes[number], (), ())), 0)
        arguments.append(known[number][0])
    results, effects = flat.inline(graph, known, ())
    for node in flat.nodes:
        for key in ("cond", "body"):
            if key in node.bodies:
                node.bodies[key] = simplified(node.bodies[key])
    return Graph(flat.nodes, tuple(arguments), results, effects, graph.listed)


def _copy(node: Node, inputs: tuple[Source, ...], controls: tuple[int, ...]) -> Node:
    return Node(
        node.name, node.op, inputs, controls, node.outputs, node.attrs, dict(node.bodies),
        node.value, node.variable,
    )  # fmt: skip


class _Flat:
    """Nodes of the flattened graph so far."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def inline(
        self, graph: Graph, fed: dict[int, Source], after: tuple[int, ...]
    ) -> tuple[tuple[Source, ...], tuple[int, ...]]:
        """Add a function's nodes and return where its results and effects ended up.

        Args:
            graph: The function.
            fed: For each argument node, what is passed.
            after: Nodes that must run before any of it.
        """
        graph = replace(graph, nodes=pushed_down(graph))
        sources: dict[Source, Source] = {(n, 0): s for n, s in fed.items()}
        done: dict[int, int] = {n: s[0] for n, s in fed.items()}
        for number in _in_order(graph):
            if number in fed:
                continue
            node = graph.nodes[number]
            inputs = tuple(sources[source] for source in node.inputs)
            controls = tuple(done[c] for c in node.controls)
            if not inputs and not controls and node.op != "Const":
                controls = after
            self._place(number, node, inputs, controls, sources, done)
        results = tuple(sources[source] for source in graph.results)
        return results, tuple(dict.fromkeys(done[n] for n in graph.effects))

    def _place(
        self,
        number: int,
        node: Node,
        inputs: tuple[Source, ...],
        controls: tuple[int, ...],
        sources: dict[Source, Source],
        done: dict[int, int],
    ) -> None:
        body = _inlined_body(node)
        if body is not None:
            predicate = node.op in _BRANCHES
            given = inputs[1:] if predicate else inputs
            after = (*controls, inputs[0][0]) if predicate else controls
            if predicate:
                given = tuple(self._gated(node, source, after) for source in given)
            if len(given) == len(body.arguments):
                fed = dict(zip(body.arguments, given, strict=True))
                results, effects = self.inline(body, fed, after)
                for port, source in enumerate(results):
                    sources[number, port] = source
                ends = tuple(dict.fromkeys((*effects, *(s for s, _ in results), *after)))
                done[number] = self.add(Node(f"{node.name}/done", "NoOp", (), ends, ()))
                return
        if node.op in _HANDS_ON and not controls and inputs:
            for port in range(len(node.outputs)):
                sources[number, port] = inputs[port]
            done[number] = inputs[0][0]
            return
        kept = self._handed_on(node, inputs)
        if kept is not None:
            if controls:
                kept = (self.add(Node(node.name, "Identity", (kept,), controls, node.outputs)), 0)
            sources[number, 0] = kept
            done[number] = kept[0]
            return
        at = self.add(_copy(node, inputs, controls))
        done[number] = at
        for port in range(len(node.outputs)):
            sources[number, port] = (at, port)

    def _gated(self, node: Node, source: Source, after: tuple[int, ...]) -> Source:
        """Let a branch's input pass only once it is known which branch runs."""
        name = f"{node.name}/{self.nodes[source[0]].name}"
        return (self.add(Node(name, "Identity", (source,), after, (self._type_of(source),))), 0)

    def _handed_on(self, node: Node, inputs: tuple[Source, ...]) -> Source | None:
        """Return the input an operation gives back unchanged, if it does."""
        if node.op in _NEUTRAL and len(inputs) == 2:
            neutral, first = _NEUTRAL[node.op]
            for at in (0, 1) if first else (1,):
                other = self.nodes[inputs[at][0]]
                if other.op == "Const" and not isinstance(other.value, list):
                    kept = inputs[1 - at]
                    same = self._type_of(kept).shape == node.outputs[0].shape
                    if other.value == neutral and other.value is not None and same:
                        return kept
        return inputs[0] if self._does_nothing(node, inputs) else None

    def _does_nothing(self, node: Node, inputs: tuple[Source, ...]) -> bool:
        """Whether an operation gives back its input, as far as the trace knows the shapes.

        The gradient of every addition sums over the broadcast dimensions and restores the
        shape; mostly there is nothing to sum and nothing to restore.
        """
        if node.op == "Sum":
            axes = self.nodes[inputs[1][0]]
            return axes.op == "BroadcastGradientArgs" and self._sums_nothing(axes, inputs[1][1])
        if node.op in ("Reshape", "BroadcastTo"):
            wanted = self._shape_meant(inputs[1])
            return wanted is not None and wanted == self._type_of(inputs[0]).shape
        return False

    def _sums_nothing(self, axes: Node, port: int) -> bool:
        own, other = (self._shape_meant(source) for source in axes.inputs)
        if port:
            own, other = other, own
        if own is None or other is None or len(own) < len(other):
            return False
        other = (1,) * (len(own) - len(other)) + other
        return not any(a == 1 and b != 1 for a, b in zip(own, other, strict=True))

    def _type_of(self, source: Source) -> TensorType:
        return self.nodes[source[0]].outputs[source[1]]

    def _shape_meant(self, source: Source) -> Shape | None:
        """Return the shape a tensor of numbers stands for, open dimensions as None."""
        node = self.nodes[source[0]]
        if node.op == "Shape":
            return self._type_of(node.inputs[0]).shape
        if node.op == "ShapeN":
            return self._type_of(node.inputs[source[1]]).shape
        if node.op == "Const" and isinstance(node.value, list) and -1 not in node.value:
            return tuple(node.value)
        return None


def _inlined_body(node: Node) -> Graph | None:
    if not node.bodies or not (node.op in _CALLS or node.op in _BRANCHES):
        return None
    return max(node.bodies.values(), key=lambda body: len(body.nodes))


def _in_order(graph: Graph) -> list[int]:
    """Return the nodes as they were made, those that wait for a later one moved behind it."""
    order: list[int] = []
    done: set[int] = set()
    waiting = list(range(len(graph.nodes)))
    while waiting:
        left: list[int] = []
        for number in waiting:
            node = graph.nodes[number]
            if all(s in done for s, _ in node.inputs) and all(c in done for c in node.controls):
                done.add(number)
                order.append(number)
            else:
                left.append(number)
        if len(left) == len(waiting):
            break  # a cycle, which only loops of the old kind have
        waiting = left
    return order
