"""The order in which TensorFlow lists the nodes of a graph, which decides what runs first.

Among operations that become ready together, the executor takes them as their consumers are
listed. That list is the work of Grappler, which goes over the graph twice. The second time it
prunes by walking back from the results and from everything that has a side effect, by name; then
several passes sort the nodes, level by level or by depth. The first time round it also drops
control inputs of the last node that others imply, each time moving the last one into the gap. So
a model's order looks arbitrary but is always the same. It matters: it says whether a layer's
weight gradient is computed at once, or only after the whole backward pass while everything it
needs is held.

Read in the sources of Grappler's model pruner, remapper, arithmetic and dependency optimizer, and
checked against graphs optimized by TensorFlow 2.21: of nodes with two to eight consumers, 0 to
10 % have them in another order than here. What is missing is what the passes rewrite, since one
node less moves others up a level. Where it can be had cheaply, Grappler's own list is used
(`listing.py`), which agrees with what runs in all but 0 to 5 %.
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
    own = _own_ranks(graph, needed)
    return _as_listed(graph, needed, own) if graph.listed else own


def _as_listed(graph: Graph, needed: set[int], own: list[int]) -> list[int]:
    """Return the places Grappler itself gave; what it has rewritten goes where we expected it."""
    ordered = sorted(needed, key=own.__getitem__)
    place, places = -1, {}
    for number in ordered:
        place = graph.listed.get(graph.nodes[number].name, place)
        places[number] = place
    # Sorting is stable, so nodes that Grappler does not know stay behind their predecessor.
    rank = [len(own)] * len(own)
    for at, number in enumerate(sorted(ordered, key=places.__getitem__)):
        rank[number] = at
    return rank


def _own_ranks(graph: Graph, needed: set[int]) -> list[int]:
    swaps = len(graph.nodes) >= SMALL_GRAPH
    nodes = graph.nodes
    before = [
        [source for source, _ in node.inputs] + list(node.controls) if number in needed else []
        for number, node in enumerate(nodes)
    ]
    sinks = _sinks(graph)
    for sink in sinks:
        before[sink] = _remaining(graph, sink, before, swaps)
    ends = [(nodes[n].name, n) for n in needed if _has_effect(nodes[n].op)]
    ends += [("identity_RetVal", sink) for sink in sinks]
    walked = _walk_back([number for _, number in sorted(ends)], before)
    order = [number for number in reversed(walked) if number in needed]
    order += sorted(needed.difference(order))
    order = _by_level(order, before)
    order = _by_depth(order, graph, before)
    order = _by_level(_by_level(order, before), before)
    rank = [len(nodes)] * len(nodes)
    for place, number in enumerate(order):
        rank[number] = place
    return rank


def _has_effect(op: str) -> bool:
    """Whether TensorFlow calls an operation stateful, so that Grappler keeps it."""
    return op == "ReadVariableOp" or op.startswith(("Assign", "Resource", "Stateful", "Random"))


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


def _by_level(order: list[int], before: list[list[int]]) -> list[int]:
    """Sort topologically, level by level; among equals the earlier one comes first."""
    after: dict[int, list[int]] = {number: [] for number in order}
    missing: dict[int, int] = {}
    for number in order:
        sources = [source for source in dict.fromkeys(before[number]) if source in after]
        missing[number] = len(sources)
        for source in sources:
            after[source].append(number)
    ready = [number for number in order if not missing[number]]
    for number in ready:
        for target in after[number]:
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)
    return ready


def _by_depth(order: list[int], graph: Graph, before: list[list[int]]) -> list[int]:
    """Sort topologically by depth: the reverse of the order in which a walk leaves the nodes.

    The walk starts at the last node without inputs and takes the last consumer first.
    """
    after: dict[int, list[tuple[int, int]]] = {number: [] for number in order}
    roots = []
    for number in order:
        data = dict.fromkeys(s for s in graph.nodes[number].inputs if s[0] in after)
        given = {source for source, _ in data}
        for source, port in data:
            after[source].append((port, number))
        for source in dict.fromkeys(before[number]):
            if source in after and source not in given:
                after[source].append((_CONTROL, number))
                given.add(source)
        if not given:
            roots.append(number)
    entered: set[int] = set()
    left: set[int] = set()
    done: list[int] = []
    for root in reversed(roots):
        stack = [root]
        while stack:
            number = stack[-1]
            if number in left:
                stack.pop()
            elif number in entered:
                stack.pop()
                left.add(number)
                done.append(number)
            else:
                entered.add(number)
                # By output, control edges last; the sort is stable.
                targets = sorted(after[number], key=_port)
                stack.extend(target for _, target in targets if target not in entered)
    done.reverse()
    return done


_CONTROL = 1 << 30


def _port(edge: tuple[int, int]) -> int:
    return edge[0]
