"""Runs a graph without computing: in which order, and which buffers are alive when.

The order is that of TensorFlow's executor with one inter-op thread. All nodes without inputs
start at once. A node that finishes makes others ready; cheap ones run next, the last expensive
one runs next if nothing cheap waits, and the other expensive ones are put on top of the thread
pool's stack. So work goes deep before it goes wide, and what was stacked early waits long: the
gradients of weights may be held back until the backward pass is over. The stack holds 1024;
what finds it full runs on the spot. (Read in the sources, seen in profiler traces.)

Consumers are taken as they are listed (`ordering.py`), but a node with more than eight of them
keeps them in a hash set of addresses: their order is drawn anew whenever the graph is built.
That holds for the node all others start from, so in which order variables are read is a matter
of luck, and in some models a third of the peak depends on it. Here the draw is a seeded shuffle.

A *buffer* is counted by the tensors and variables that hold it and released with the last one.
An operation writes into an input's buffer where nobody else holds it. A variable that somebody
has read and not yet used is copied when it is updated.

Ignored: races between threads, and constants.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from oomdoctor.estimate import kernels, loops, ordering
from oomdoctor.estimate.nodes import Graph, Node, Variable
from oomdoctor.estimate.shapes import Tensor, count, infer
from oomdoctor.units import DTYPE_BYTES

_TINY_BYTES = 512
"""Smaller buffers (shapes, scalars) are not followed: together they are a few hundred KiB."""
MAX_LOOP = 100_000
_QUEUE = 1024
_LISTED = 8
"""A node keeps up to so many outgoing edges in a list, and more in a hash set."""
OPTIMIZERS = frozenset(
    {"adam", "adamw", "sgd", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "ftrl", "lion",
     "adafactor", "lamb", "muon", "loss_scale_optimizer", "optimizer"}
)  # fmt: skip
"""Name scopes of Keras's optimizers."""


class Buffer:
    """A piece of memory and how many hold it."""

    __slots__ = ("children", "number", "refs")

    def __init__(self, number: int | None, children: list[Tensor] | None = None) -> None:
        self.number = number
        """None where it is too small to be followed, or a list of other tensors."""
        self.refs = 1
        self.children = children


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a buffer came from."""

    node: str
    op: str
    dims: tuple[int, ...]
    dtype: str
    kind: str
    """`output`, `temp` or `variable`."""
    variable: int | None = None


@dataclass(slots=True)
class Run:
    """The allocations of one simulated step."""

    events: list[tuple[int, int]] = field(default_factory=list)
    """An allocation is (buffer, bytes), a release is (buffer, -1)."""
    origins: list[Origin] = field(default_factory=list)
    """By number of the buffer."""
    before: list[tuple[int, int]] = field(default_factory=list)
    """Buffers that live before the step: variables and arguments."""
    after: dict[int, int] = field(default_factory=dict)
    """For each variable, the buffer it lies in after the step."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Operations whose shape could not be told, with the bytes assumed for them."""
    order: list[str] = field(default_factory=list)


class _Plan:
    """What of a graph does not change between runs."""

    def __init__(self, graph: Graph, order: int | None, ranks: dict[int, list[int]]) -> None:
        nodes = graph.nodes
        needed = _needed(graph)
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
        rank = ranks[id(graph)]
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


def is_optimizer(name: str) -> bool:
    """Whether a node belongs to the optimizer's update.

    Example:
        >>> is_optimizer("cond/adam_1/Sqrt_13"), is_optimizer("model/conv2d/Relu")
        (True, False)
    """
    return any(part.rstrip("_0123456789") in OPTIMIZERS for part in name.split("/", 2)[:2])


class Plans:
    """Keeps the plan of each graph, so that several batch sizes share it.

    Args:
        order: A seed for what TensorFlow leaves to chance. With None nothing is shuffled:
            optimizers' variables are then read last, which is about the worst that can happen.
        ranks: Places of nodes by the `id` of their graph, to share between orders.
    """

    def __init__(self, order: int | None = None, ranks: dict[int, list[int]] | None = None) -> None:
        self.order = order
        self._ranks = {} if ranks is None else ranks
        self._plans: dict[int, tuple[Graph, _Plan]] = {}
        self._unrolled: dict[tuple[int, int], Graph] = {}

    def unrolled(self, body: Graph, trips: int, parallel: int) -> Graph:
        """Return a loop's body, unrolled."""
        key = (id(body), trips)
        if key not in self._unrolled:
            self._unrolled[key] = loops.unrolled(body, trips, parallel)
        return self._unrolled[key]

    def of(self, graph: Graph) -> _Plan:
        """Return the plan of a graph."""
        if id(graph) not in self._plans:
            self._plans[id(graph)] = (graph, _Plan(graph, self.order, self._ranks))
        return self._plans[id(graph)][1]


def _needed(graph: Graph) -> set[int]:
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


class Executor:
    """Simulates one step of a graph.

    Args:
        variables: By number, as the graph's arguments name them.
        batch: The batch size, for dimensions that nothing else explains.
        threads: Threads inside one operation; some workspaces depend on it.
        plans: What is known of the graphs from earlier runs.
    """

    def __init__(
        self,
        variables: list[Variable],
        *,
        batch: int,
        threads: int = 2,
        plans: Plans | None = None,
    ) -> None:
        self.run = Run()
        self.batch = batch
        self.threads = threads
        self._variables: list[Buffer] = []
        self._copied: set[int] = set()
        """Variables that are updated row by row, which are copied whenever they are read."""
        self._kinds = variables
        self._plans = Plans() if plans is None else plans
        for number, variable in enumerate(variables):
            buffer = self._new(variable.bytes, Origin(variable.name, "VarHandleOp", variable.shape,
                               variable.dtype, "variable", number))  # fmt: skip
            self._variables.append(buffer)
        self.run.before, self.run.events = self.run.events, []

    # ------------------------------------------------------------------ buffers

    def _new(self, size_bytes: int, origin: Origin) -> Buffer:
        if size_bytes < _TINY_BYTES:
            return Buffer(None)
        number = len(self.run.origins)
        self.run.origins.append(origin)
        self.run.events.append((number, size_bytes))
        return Buffer(number)

    def _drop(self, tensor: Tensor) -> None:
        buffer = tensor.buffer
        if buffer is None:
            return
        buffer.refs -= 1
        if buffer.refs:
            return
        if buffer.number is not None:
            self.run.events.append((buffer.number, -1))
        if buffer.children is not None:
            for child in buffer.children:
                self._drop(child)

    def _allocated(self, node: Node, tensor: Tensor) -> Tensor:
        size = count(tensor.dims) * DTYPE_BYTES.get(tensor.dtype, 0)
        if size < _TINY_BYTES:
            return tensor
        origin = Origin(node.name, node.op, tensor.dims, tensor.dtype, "output")
        return tensor._replace(buffer=self._new(size, origin))

    # ------------------------------------------------------------------ scheduling

    def step(self, graph: Graph, arguments: dict[int, Tensor]) -> Run:
        """Run the whole step.

        Args:
            graph: The traced step.
            arguments: For the number of an argument node, what is fed.
        """
        fed: dict[int, Tensor] = {}
        held: list[Tensor] = []
        self._copied = _updated_by_row(graph)
        for number in graph.arguments:
            node = graph.nodes[number]
            if number in arguments:
                tensor = self._allocated(node, arguments[number])
                fed[number] = tensor
                held.append(tensor)
            else:
                fed[number] = Tensor((), "resource", node.variable)
        self.run.before += self.run.events
        self.run.events = []
        for tensor in held:
            # The caller keeps the batch until the step is over.
            if tensor.buffer is not None:
                tensor.buffer.refs += 1
        for result in self._run(graph, fed):
            self._drop(result)
        for number, buffer in enumerate(self._variables):
            if buffer.number is not None:
                self.run.after[number] = buffer.number
        return self.run

    def _run(self, graph: Graph, fed: dict[int, Tensor]) -> list[Tensor]:
        plan = self._plans.of(graph)
        nodes, pending = graph.nodes, plan.pending.copy()
        inputs: list[list[Tensor]] = [[None] * len(n.inputs) for n in nodes]  # type: ignore[list-item]
        wanted: dict[int, list[int]] = {}
        for at, (source, _) in enumerate(graph.results):
            wanted.setdefault(source, []).append(at)
        results: list[Tensor] = [Tensor((), "none")] * len(graph.results)
        for number, tensor in fed.items():
            if number not in plan.live:
                self._drop(tensor)
        tasks: deque[int] = deque()
        # A frame is what one call of the executor has still to do; see `_schedule`.
        frames: list[tuple[deque[int], deque[int]]] = [(deque(plan.roots), deque())]
        while frames:
            inline, waiting = frames[-1]
            if waiting:
                number = waiting.popleft()
                if len(tasks) < _QUEUE:
                    tasks.appendleft(number)
                else:
                    frames.append((deque([number]), deque()))
                continue
            if not inline:
                frames.pop()
                if not frames and tasks:
                    frames.append((deque([tasks.popleft()]), deque()))
                continue
            number = inline.popleft()
            node, given = nodes[number], inputs[number]
            outputs = [fed[number]] if number in fed else self._compute(node, given)
            for tensor in given:
                self._drop(tensor)
            inputs[number] = []
            for at in wanted.get(number, ()):
                results[at] = self._share(outputs[graph.results[at][1]])
            ready: list[int] = []
            for target, port, slot in plan.edges[number]:
                inputs[target][slot] = self._share(outputs[port])
                pending[target] -= 1
                if not pending[target]:
                    ready.append(target)
            for tensor in outputs:
                self._drop(tensor)
            for target in plan.controls[number]:
                pending[target] -= 1
                if not pending[target]:
                    ready.append(target)
            self._schedule(nodes, ready, inline, waiting)
        return results

    @staticmethod
    def _schedule(
        nodes: list[Node], ready: list[int], inline: deque[int], waiting: deque[int]
    ) -> None:
        current = None
        for number in ready:
            if nodes[number].op in kernels.CHEAP:
                inline.append(number)
            else:
                if current is not None:
                    waiting.append(current)
                current = number
        if current is not None:
            (waiting if inline else inline).append(current)

    def _share(self, tensor: Tensor) -> Tensor:
        if tensor.buffer is not None:
            tensor.buffer.refs += 1
        return tensor

    # ------------------------------------------------------------------ kernels

    def _compute(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        self.run.order.append(node.name)
        op = node.op
        special = _SPECIAL.get(op)
        if special is not None:
            return special(self, node, x)
        if node.bodies:
            body = max(node.bodies.values(), key=lambda b: len(b.nodes))
            shift = 1 if "then_branch" in node.bodies else 0
            given = x[shift:]
            fed = {n: self._share(t) for n, t in zip(body.arguments, given, strict=True)}
            return self._run(body, fed)
        outputs, sure = infer(node, x, self.batch)
        made: list[Tensor] = []
        for port, tensor in enumerate(outputs):
            made.append(self._placed(node, x, tensor, port))
        if not sure:
            size = sum(count(t.dims) * DTYPE_BYTES.get(t.dtype, 0) for t in outputs)
            self.run.unknown[op] = self.run.unknown.get(op, 0) + size
        self._work(node, x, made)
        return made

    def _work(self, node: Node, x: list[Tensor], made: list[Tensor]) -> None:
        held = []
        for size in kernels.temporaries(node, x, made, self.threads):
            if size >= _TINY_BYTES:
                origin = Origin(node.name, node.op, (size,), "uint8", "temp")
                held.append(Tensor((), "", None, self._new(size, origin)))
        for tensor in held:
            self._drop(tensor)

    def _placed(self, node: Node, x: list[Tensor], tensor: Tensor, port: int) -> Tensor:
        """Give an output its memory: an input's, or its own."""
        op = node.op
        if not x:
            return self._allocated(node, tensor)
        if op in kernels.ALIASES or _is_untouched(op, x, tensor):
            return self._share(tensor._replace(buffer=x[0].buffer))
        if op == "IdentityN":
            return self._share(tensor._replace(buffer=x[port].buffer))
        if port == 0 or op == "SparseSoftmaxCrossEntropyWithLogits":
            candidates = kernels.reusable(op) if op not in _SECOND else ((0,) if port else ())
            size = count(tensor.dims)
            for at in candidates:
                if at >= len(x):
                    break
                other = x[at]
                buffer = other.buffer
                if (
                    buffer is not None
                    and buffer.refs == 1
                    and other.dtype == tensor.dtype
                    and count(other.dims) == size
                ):
                    return self._share(tensor._replace(buffer=buffer))
        return self._allocated(node, tensor)

    # ------------------------------------------------------------------ variables

    def _read(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number = x[0].value
        kind = node.outputs[0]
        dims = tuple(d or 0 for d in kind.shape or ())
        if number is None or number in self._copied:
            return [self._allocated(node, Tensor(dims, kind.dtype))]
        return [self._share(Tensor(dims, kind.dtype, None, self._variables[number]))]

    def _assign(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number, value = x[0].value, x[1]
        if number is None:
            return []
        old = self._variables[number]
        if value.buffer is not None and value.buffer.number is not None:
            self._variables[number] = self._share(value).buffer
            self._drop(Tensor((), "", None, old))
        return []

    def _update(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number = x[0].value
        if number is not None:
            old = self._variables[number]
            if old.refs > 1 and old.number is not None:
                kind = self._kinds[number]
                origin = Origin(kind.name, node.op, kind.shape, kind.dtype, "variable", number)
                self._variables[number] = self._new(kind.bytes, origin)
                self._drop(Tensor((), "", None, old))
        return []

    # ------------------------------------------------------------------ lists and loops

    def _new_list(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        return [Tensor((), "variant", None, Buffer(None, []))]

    def _reserve(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        size = x[1].value if isinstance(x[1].value, int) else 0
        return [Tensor((), "variant", None, Buffer(None, [_NOTHING] * min(size, MAX_LOOP)))]

    def _own_list(self, tensor: Tensor) -> Tensor:
        """Return the list to write to: the same one where nobody else holds it."""
        buffer = tensor.buffer
        if buffer.refs == 1:
            return self._share(tensor)
        children = [self._share(child) for child in buffer.children or []]
        return Tensor((), "variant", None, Buffer(None, children))

    def _push(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        result = self._own_list(x[0])
        result.buffer.children.append(self._share(x[1]))
        return [result]

    def _pop(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        result = self._own_list(x[0])
        children = result.buffer.children
        element = children.pop() if children else _NOTHING
        return [result, element]

    def _set_item(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        result = self._own_list(x[0])
        children = result.buffer.children
        at = x[1].value if isinstance(x[1].value, int) else len(children) - 1
        while len(children) <= at:
            children.append(_NOTHING)
        self._drop(children[at])
        children[at] = self._share(x[2])
        return [result]

    def _get_item(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        children = x[0].buffer.children or []
        at = x[1].value if isinstance(x[1].value, int) else 0
        element = children[at] if at < len(children) else _NOTHING
        kind = node.outputs[0]
        if element is _NOTHING or element.dtype == "none":
            template = next((c for c in children if c.dtype != "none"), None)
            dims = template.dims if template else tuple(d or self.batch for d in kind.shape or ())
            return [self._allocated(node, Tensor(dims, kind.dtype))]
        return [self._share(element)]

    def _stack(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        children = x[0].buffer.children or []
        kind = node.outputs[0]
        template = next((c for c in children if c.dtype != "none"), None)
        dims = template.dims if template else tuple(d or self.batch for d in (kind.shape or ())[1:])
        return [self._allocated(node, Tensor((len(children), *dims), kind.dtype))]

    def _unstack(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        source = x[0]
        rows = source.dims[0] if source.dims else 0
        children = [
            self._allocated(node, Tensor(source.dims[1:], source.dtype)) for _ in range(rows)
        ]
        return [Tensor((), "variant", None, Buffer(None, children))]

    def _list_length(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        return [Tensor((), "int32", len(x[0].buffer.children or []))]

    def _zeros_like(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        if x[0].dtype != "variant":
            outputs, _ = infer(node, x, self.batch)
            return [self._placed(node, x, outputs[0], 0)]
        children = [
            self._allocated(node, Tensor(c.dims, c.dtype)) if c.dtype != "none" else _NOTHING
            for c in x[0].buffer.children or []
        ]
        return [Tensor((), "variant", None, Buffer(None, children))]

    def _add_n(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        if x[0].dtype != "variant":
            outputs, _ = infer(node, x, self.batch)
            return [self._placed(node, x, outputs[0], 0)]
        longest = max((t.buffer.children or [] for t in x), key=len)
        children = [
            self._allocated(node, Tensor(c.dims, c.dtype)) if c.dtype != "none" else _NOTHING
            for c in longest
        ]
        return [Tensor((), "variant", None, Buffer(None, children))]

    def _while(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        cond, body = node.bodies["cond"], node.bodies["body"]
        state = [self._share(t) for t in x]
        # The loop owns its state: what it was given is released by the first round.
        for at, tensor in enumerate(x):
            x[at] = _NOTHING
            self._drop(tensor)
        trips = loops.trip_count(cond, body, state)
        if trips is not None and trips * len(body.nodes) <= loops.MAX_NODES:
            parallel = int(node.attrs.get("parallel_iterations") or 32)
            flat = self._plans.unrolled(body, trips, parallel)
            return self._run(flat, dict(zip(flat.arguments, state, strict=True)))
        for _ in range(MAX_LOOP):
            test = self._run(
                cond, {n: self._share(t) for n, t in zip(cond.arguments, state, strict=True)}
            )
            proceed = test[0].value
            self._drop(test[0])
            if not proceed:
                if proceed is None:
                    self.run.unknown["While"] = self.run.unknown.get("While", 0)
                break
            fed = dict(zip(body.arguments, state, strict=True))
            state = self._run(body, fed)
        return state

    def _variable_shape(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number = x[0].value
        dims = self._kinds[number].shape if number is not None else ()
        return [Tensor((len(dims),), "int32", list(dims))]

    def _constant(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        kind = node.outputs[0]
        return [Tensor(tuple(d or 0 for d in kind.shape or ()), kind.dtype, node.value)]


_NOTHING = Tensor((), "none")
_SECOND = frozenset({"SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"})
"""Losses that write their gradient, the second output, into the logits."""


def _updated_by_row(graph: Graph) -> set[int]:
    found = set()
    for node in graph.nodes:
        if node.op.startswith(("ResourceScatter", "ResourceSparseApply")):
            source = graph.nodes[node.inputs[0][0]]
            while source.op == "Identity":
                source = graph.nodes[source.inputs[0][0]]
            if source.variable is not None:
                found.add(source.variable)
    return found


def _is_untouched(op: str, x: list[Tensor], out: Tensor) -> bool:
    """Whether an operation hands its input on because there is nothing to do."""
    if op in ("Sum", "Mean", "Max", "Prod", "Min", "All", "Any", "Tile", "BroadcastTo", "Pad",
              "Slice", "Cast", "Transpose"):  # fmt: skip
        same = count(x[0].dims) == count(out.dims) and x[0].dtype == out.dtype
        if not same:
            return False
        if op == "Transpose":
            moved = [i for i in x[1].value or [] if x[0].dims[i] != 1] if x[1].value else None
            return moved is not None and moved == sorted(moved)
        return True
    return False


_SPECIAL = {
    "Const": Executor._constant,
    "ReadVariableOp": Executor._read,
    "AssignVariableOp": Executor._assign,
    "AssignAddVariableOp": Executor._update,
    "AssignSubVariableOp": Executor._update,
    "ResourceScatterAdd": Executor._update,
    "ResourceScatterSub": Executor._update,
    "ResourceScatterUpdate": Executor._update,
    "VariableShape": Executor._variable_shape,
    "EmptyTensorList": Executor._new_list,
    "TensorListReserve": Executor._reserve,
    "TensorListPushBack": Executor._push,
    "TensorListPopBack": Executor._pop,
    "TensorListSetItem": Executor._set_item,
    "TensorListGetItem": Executor._get_item,
    "TensorListStack": Executor._stack,
    "TensorListFromTensor": Executor._unstack,
    "TensorListLength": Executor._list_length,
    "ZerosLike": Executor._zeros_like,
    "AddN": Executor._add_n,
    "While": Executor._while,
    "StatelessWhile": Executor._while,
}
