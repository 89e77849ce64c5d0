"""The order in which TensorFlow lists the nodes of a graph, which decides what runs first.

Among operations that become ready together, the executor takes them as their consumers are
listed. That list is the work of Grappler: it prunes the graph by walking back from the results,
sorts it, and does so twice. The first time round it also drops control inputs of the last node
that others imply, each time moving the last one into the gap. The walk starts with whichever
control input ends up last, so a model's order looks arbitrary but is always the same. It
matters: it says whether a layer's weight gradient is computed at once, or only after the whole
backward pass while everything it needs is held.

Read in the sources of Grappler's model pruner, topological sort and dependency optimizer, and
checked against graphs optimized by TensorFlow 2.21: the walk and the sort reproduce its order
exactly, also the control inputs of the last node. Ignored: what its other passes rewrite
between, which changes the order of some siblings again.
"""

from __future__ import annotations

from oomdoctor.estimate.nodes import Graph

SMALL_GRAPH = 500
"""In graphs of fewer nodes the dropped control inputs were seen to leave no trace."""


def ranks(graph: Graph, needed: set[int]) -> list[int]:
    """Return for each node its place in the order; nodes that are not needed come last.

    Args:
        graph: The graph.
        needed: The nodes that run.
    """
    swaps = len(graph.nodes) >= SMALL_GRAPH
    nodes = graph.nodes
    before = [
        [source for source, _ in node.inputs] + list(node.controls) if number in needed else []
        for number, node in enumerate(nodes)
    ]
    sinks = _sinks(graph)
    for sink in sinks:
        before[sink] = _remaining(graph, sink, before, swaps)
    walked = _walk_back(sinks, before)
    position = [len(nodes)] * len(nodes)
    for place, number in enumerate(reversed(walked)):
        position[number] = place
    for number in needed:
        if position[number] == len(nodes):
            position[number] = len(nodes) + number
    return _sorted(needed, before, position)


def _sinks(graph: Graph) -> list[int]:
    found = dict.fromkeys(source for source, _ in graph.results)
    return list(found) or list(dict.fromkeys(graph.effects))


def _remaining(graph: Graph, sink: int, before: list[list[int]], swaps: bool) -> list[int]:
    """Return the inputs of a result once the control inputs that others imply are gone."""
    nodes = graph.nodes
    data = [source for source, _ in nodes[sink].inputs]
    controls: list[int] = []
    for number in nodes[sink].controls:
        controls += nodes[number].controls if nodes[number].op == "NoOp" else [number]
    if not controls:
        controls = [n for n in graph.effects if n != sink]
    controls = sorted(set(controls), key=lambda n: nodes[n].name)
    implied = _ancestors([n for control in controls for n in before[control]], before)
    if not swaps:
        implied |= _ancestors(data, before)
        return data + [n for n in controls if n not in implied]
    # One more slot is dropped than there are names: the result's own input stands first.
    kept = _swap_out([-1, *controls], implied | {-1})
    return data + _swap_out(kept, _ancestors(data, before))


def _ancestors(start: list[int], before: list[list[int]]) -> set[int]:
    seen: set[int] = set()
    stack = list(start)
    while stack:
        number = stack.pop()
        if number not in seen:
            seen.add(number)
            stack.extend(before[number])
    return seen


def _swap_out(items: list[int], drop: set[int]) -> list[int]:
    """Remove from the back to the front, filling each gap with the last item.

    Example:
        >>> _swap_out([9, 1, 9, 2, 3], {9})
        [2, 1, 3]
    """
    items = list(items)
    for slot in range(len(items) - 1, -1, -1):
        if items[slot] in drop:
            items[slot], items[-1] = items[-1], items[slot]
            items.pop()
    return items


def _walk_back(sinks: list[int], before: list[list[int]]) -> list[int]:
    stack = list(sinks)
    seen: set[int] = set()
    walked: list[int] = []
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        walked.append(number)
        stack.extend(before[number])
    return walked


def _sorted(needed: set[int], before: list[list[int]], position: list[int]) -> list[int]:
    """Sort topologically, level by level; among equals the earlier position comes first."""
    after: dict[int, list[int]] = {number: [] for number in needed}
    missing: dict[int, int] = {}
    for number in needed:
        sources = set(before[number]) & needed
        missing[number] = len(sources)
        for source in sources:
            after[source].append(number)
    ready = sorted((n for n in needed if not missing[n]), key=position.__getitem__)
    rank = [len(position)] * len(position)
    for place, number in enumerate(ready):
        rank[number] = place
        for target in sorted(after[number], key=position.__getitem__):
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return rank
