"""What of a graph does not change between simulated steps: who waits for whom, in which order.

A node with few consumers keeps them as they are listed (`ordering.py`). One with more has them
in a hash set of addresses, whose order is drawn anew whenever TensorFlow builds the graph.
"""

from __future__ import annotations

import random
from typing import Literal

from oomdoctor.estimate import loops, ordering
from oomdoctor.estimate.nodes import Graph

Listing = Literal["own", "reversed", "shuffled"]
_LISTED = 8
"""A node keeps up to so many outgoing edges in a list, and more in a hash set."""


def needed_nodes(graph: Graph) -> set[int]:
    """Return the nodes that run: those the results and effects depend on."""
    stack = [source for source, _ in graph.results] + list(graph.effects)
    needed: set[int] = set()
    while stack:
        number = stack.pop()
        if number in needed:
            continue
        needed.add(number)
        node = graph.nodes[number]
        stack.extend(source for source, _ in node.inputs)
        stack.extend(node.controls)
    return needed


class Plan:
    """What of a graph does not change between runs."""

    def __init__(
        self, graph: Graph, order: int | None, ranks: dict[int, list[int]], listing: Listing
    ) -> None:
        nodes = graph.nodes
        needed = needed_nodes(graph)
        self.live = needed
        self.pending = [0] * len(nodes)
        self.edges: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
        self.controls: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            if number not in needed:
                continue
            for slot, (source, port) in enumerate(node.inputs):
                self.edges[source].append((number, port, slot))
            for source in node.controls:
                self.controls[source].append(number)
            self.pending[number] = len(node.inputs) + len(node.controls)
        if id(graph) not in ranks:
            ranks[id(graph)] = ordering.ranks(graph, needed)
        rank = _listed(ranks[id(graph)], listing)
        shuffle = None if order is None else random.Random(order).shuffle
        for at, edges in enumerate(self.edges):
            targets = self.controls[at]
            edges.sort(key=lambda edge: rank[edge[0]])
            targets.sort(key=rank.__getitem__)
            if shuffle is not None and len(edges) + len(targets) > _LISTED:
                shuffle(edges)
                shuffle(targets)
        self.roots = sorted((n for n in needed if not self.pending[n]), key=rank.__getitem__)
        if shuffle is not None and len(self.roots) > _LISTED:
            shuffle(self.roots)


def _listed(rank: list[int], listing: Listing) -> list[int]:
    """Return the places of nodes as they are, or as they are not."""
    if listing == "reversed":
        return [-place for place in rank]
    if listing == "shuffled":
        mixed = list(range(len(rank)))
        random.Random(len(rank)).shuffle(mixed)
        return mixed
    return rank


class Plans:
    """Keeps the plan of each graph, so that several batch sizes share it.

    Args:
        order: A seed for what TensorFlow leaves to chance. With None nothing is shuffled:
            optimizers' variables are then read last, which is about the worst that can happen.
        ranks: Places of nodes by the `id` of their graph, to share between orders.
        listing: In which order ready operations are taken. Any but `own` is not TensorFlow's, and
            shows what it would matter if ours were wrong.
    """

    def __init__(
        self,
        order: int | None = None,
        ranks: dict[int, list[int]] | None = None,
        listing: Listing = "own",
    ) -> None:
        self.order = order
        self._listing: Listing = listing
        self._ranks = {} if ranks is None else ranks
        self._plans: dict[int, tuple[Graph, Plan]] = {}
        self._unrolled: dict[tuple[int, int], Graph] = {}

    def unrolled(self, body: Graph, trips: int, parallel: int) -> Graph:
        """Return a loop's body, unrolled."""
        key = (id(body), trips)
        if key not in self._unrolled:
            self._unrolled[key] = loops.unrolled(body, trips, parallel)
        return self._unrolled[key]

    def of(self, graph: Graph) -> Plan:
        """Return the plan of a graph."""
        if id(graph) not in self._plans:
            self._plans[id(graph)] = (graph, Plan(graph, self.order, self._ranks, self._listing))
        return self._plans[id(graph)][1]
