"""A traced function as plain values: nodes, tensors, nested functions.

An unknown dimension is `None`: it follows from the batch and is worked out when the step is
simulated. A *body* is the graph of a function that a node calls: a branch, a loop, a call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int | None, ...]
Source = tuple[int, int]
"""Where an input comes from: the index of a node and the number of its output."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known of an output before the step runs."""

    dtype: str
    """Such as `float32`; `resource` and `variant` hold no bytes of their own."""
    shape: Shape | None
    """None where even the number of dimensions is unknown."""


@dataclass(slots=True)
class Node:
    """One operation of the graph."""

    name: str
    op: str
    inputs: tuple[Source, ...]
    controls: tuple[int, ...]
    outputs: tuple[TensorType, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    bodies: dict[str, Graph] = field(default_factory=dict)
    """Graphs of the functions it calls, by attribute: `body`, `cond`, `then_branch`, `f` …"""
    value: Any = None
    """Of a constant: a whole number, or a flat list of them. None where it is not needed."""
    variable: int | None = None
    """Of an argument that holds a variable: its number."""


@dataclass(slots=True)
class Graph:
    """A function: its nodes, which of them are arguments and what it returns."""

    nodes: list[Node]
    arguments: tuple[int, ...]
    results: tuple[Source, ...]
    effects: tuple[int, ...] = ()
    """Nodes that must run although nothing reads their outputs."""
    listed: dict[str, int] = field(default_factory=dict)
    """Where Grappler lists a node, by name; empty where it was not asked."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable the step uses, allocated before it starts."""

    name: str
    part: str
    """`weights`, `optimizer` or `other` (metrics, seeds)."""
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    layer: str | None = None
    """The path of the layer it belongs to, or a row beside the layers."""
