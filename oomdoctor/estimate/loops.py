"""Unrolls a loop, because TensorFlow runs several of its iterations at once.

Up to `parallel_iterations` rounds of a loop (32 where nobody says otherwise) are under way
together. In the backward pass of an RNN the chain through the states runs ahead, and the weight
gradients of all those rounds wait in memory to be added up, as traces of LSTM and GRU show.
"""

from __future__ import annotations

from oomdoctor.estimate.infer import infer
from oomdoctor.estimate.nodes import Graph, Node, Source
from oomdoctor.estimate.tensors import Tensor

MAX_NODES = 300_000
"""Longer loops are simulated one round after the other."""
MAX_TRIPS = 100_000


def trip_count(cond: Graph, body: Graph, state: list[Tensor]) -> int | None:
    """Return how often a loop runs, or None where that depends on data.

    Only the whole numbers are followed from round to round.
    """
    counters = [at for at, tensor in enumerate(state) if not tensor.dims and "int" in tensor.dtype]
    values = [t._replace(buffer=None) for t in state]
    for trip in range(MAX_TRIPS):
        proceed = _value(cond, values, 0)
        if proceed is None:
            return None
        if not proceed:
            return trip
        moved = [(at, _value(body, values, at)) for at in counters]
        if all(values[at].value == value for at, value in moved):
            return None
        for at, value in moved:
            values[at] = values[at]._replace(value=value)
    return None


def _value(graph: Graph, arguments: list[Tensor], at: int) -> int | bool | None:
    """Evaluate one result of a function as a number."""
    known: dict[int, list[Tensor]] = {
        number: [tensor] for number, tensor in zip(graph.arguments, arguments, strict=True)
    }

    def outputs(number: int) -> list[Tensor]:
        if number not in known:
            node = graph.nodes[number]
            if node.op == "Const":
                kind = node.outputs[0]
                known[number] = [
                    Tensor(tuple(d or 0 for d in kind.shape or ()), kind.dtype, node.value)
                ]
            else:
                given = [outputs(source)[port] for source, port in node.inputs]
                known[number] = infer(node, given, 1)[0]
        return known[number]

    source, port = graph.results[at]
    value: int | bool | None = outputs(source)[port].value
    return value


def unrolled(body: Graph, trips: int, parallel: int) -> Graph:
    """Return the loop as one graph from its first state to its last."""
    nodes: list[Node] = []
    first: list[int] = []
    for number in body.arguments:
        kept = body.nodes[number]
        nodes.append(Node(kept.name, "Placeholder", (), (), kept.outputs, variable=kept.variable))
        first.append(len(nodes) - 1)
    state: list[Source] = [(n, 0) for n in first]
    ends: list[int] = []
    chains: list[tuple[int, ...]] = []
    late: list[list[int]] = []
    sums = _running_sums(body)
    arguments = set(body.arguments)
    order = [n for n in range(len(body.nodes)) if n not in arguments]
    for trip in range(trips):
        if trip >= parallel:
            state = [_gate(nodes, source, ends[trip - parallel]) for source in state]
        place = {number: state[at] for at, number in enumerate(body.arguments)}
        at: dict[int, int] = {}
        begin = len(nodes)
        for number in order:
            at[number] = begin + len(at)
        for number in order:
            node = body.nodes[number]
            inputs = tuple(place[s] if s in arguments else (at[s], port) for s, port in node.inputs)
            controls = tuple(at[c] for c in node.controls if c in at)
            nodes.append(
                Node(node.name, node.op, inputs, controls, node.outputs, node.attrs, node.bodies,
                     node.value)
            )  # fmt: skip
        state = [place[s] if s in arguments else (at[s], port) for s, port in body.results]
        done = tuple(dict.fromkeys(source for source, _ in state if source >= begin))
        nodes.append(Node("round", "NoOp", (), done, ()))
        ends.append(len(nodes) - 1)
        chains.append(tuple(n for n in done if n not in {at[s] for s in sums}))
        late.append([at[s] for s in sums])
    for trip, sums_here in enumerate(late):
        ahead = chains[min(trip + parallel, trips) - 1]
        for number in sums_here:
            nodes[number].controls += ahead
    return Graph(nodes, tuple(first), tuple(state))


def _running_sums(body: Graph) -> list[int]:
    """Return the nodes that add something of a round to a sum carried from round to round."""
    carried = {body.arguments[at]: source for at, (source, _) in enumerate(body.results)}
    found = []
    for argument, source in carried.items():
        node = body.nodes[source]
        if node.op in ("AddN", "AddV2", "Add") and node.outputs[0].shape:
            given = [s for s, _ in node.inputs]
            if argument in given and "float" in node.outputs[0].dtype:
                found.append(source)
    return found


def _gate(nodes: list[Node], source: Source, after: int) -> Source:
    kind = nodes[source[0]].outputs[source[1]]
    nodes.append(Node("next", "Identity", (source,), (after,), (kind,)))
    return (len(nodes) - 1, 0)
