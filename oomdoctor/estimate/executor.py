"""Runs a graph without computing: in which order, and which buffers are alive when.

The order is that of TensorFlow's executor with one inter-op thread. All nodes without inputs
start at once. A node that finishes makes others ready; cheap ones run next, the last expensive
one runs next if nothing cheap waits, and the other expensive ones are put on top of the thread
pool's stack. So work goes deep before it goes wide, and what was stacked early waits long: the
gradients of weights may be held back until the backward pass is over. The stack holds 1024;
what finds it full runs on the spot. (Read in the sources, seen in profiler traces.)

In which order consumers are taken is `plan.py`'s matter. For the node all others start from it is
chance, so in which order variables are read is a matter of luck, and in some models a third of
the peak depends on it. Here the draw is a seeded shuffle.

An operation writes into an input's buffer where nobody else holds it. A variable that somebody
has read and not yet used is copied when it is updated.

Ignored: races between threads, and constants.
"""

from __future__ import annotations

from collections import deque

from oomdoctor.estimate import kernels, loops, tensor_lists
from oomdoctor.estimate.buffers import TINY_BYTES, Buffer, Memory, Origin, Run
from oomdoctor.estimate.infer import infer
from oomdoctor.estimate.nodes import Graph, Node, Variable
from oomdoctor.estimate.plan import Plans
from oomdoctor.estimate.tensor_lists import NOTHING
from oomdoctor.estimate.tensors import Tensor, count
from oomdoctor.units import DTYPE_BYTES

MAX_LOOP = 100_000
POOL_TASKS = 1024
"""What the queue of a thread pool holds."""


class Executor(Memory):
    """Simulates one step of a graph.

    Args:
        variables: By number, as the graph's arguments name them.
        batch: The batch size, for dimensions that nothing else explains.
        threads: Threads inside one operation; some workspaces depend on it.
        scratch: Whether workspaces of CPU kernels count; on a GPU there are none of them.
        plans: What is known of the graphs from earlier runs.
    """

    def __init__(
        self,
        variables: list[Variable],
        *,
        batch: int,
        threads: int = 2,
        scratch: bool = True,
        plans: Plans | None = None,
    ) -> None:
        super().__init__()
        self.batch = batch
        self.threads = threads
        self.scratch = scratch
        self._variables: list[Buffer] = []
        self._copied: set[int] = set()
        """Variables that are updated row by row, which are copied whenever they are read."""
        self._kinds = variables
        self._plans = Plans() if plans is None else plans
        for number, variable in enumerate(variables):
            buffer = self.new(variable.bytes, Origin(variable.name, "VarHandleOp", variable.shape,
                               variable.dtype, "variable", number))  # fmt: skip
            self._variables.append(buffer)
        self.run.before, self.run.events = self.run.events, []

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
                tensor = self.allocated(node, arguments[number])
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
            self.drop(result)
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
                self.drop(tensor)
        tasks: deque[int] = deque()
        # A frame is what one call of the executor has still to do; see `_schedule`.
        frames: list[tuple[deque[int], deque[int]]] = [(deque(plan.roots), deque())]
        while frames:
            inline, waiting = frames[-1]
            if waiting:
                number = waiting.popleft()
                if len(tasks) < POOL_TASKS:
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
                self.drop(tensor)
            inputs[number] = []
            for at in wanted.get(number, ()):
                results[at] = self.share(outputs[graph.results[at][1]])
            ready: list[int] = []
            for target, port, slot in plan.edges[number]:
                inputs[target][slot] = self.share(outputs[port])
                pending[target] -= 1
                if not pending[target]:
                    ready.append(target)
            for tensor in outputs:
                self.drop(tensor)
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

    # ------------------------------------------------------------------ kernels

    def _compute(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        self.run.order.append(node.name)
        op = node.op
        special = _SPECIAL.get(op)
        if special is not None:
            return special(self, node, x)
        on_list = tensor_lists.OPERATIONS.get(op)
        if on_list is None and x and x[0].dtype == "variant":
            on_list = tensor_lists.ON_LISTS.get(op)
        if on_list is not None:
            return on_list(self, node, x, self.batch)
        if node.bodies:
            body = max(node.bodies.values(), key=lambda b: len(b.nodes))
            shift = 1 if "then_branch" in node.bodies else 0
            given = x[shift:]
            fed = {n: self.share(t) for n, t in zip(body.arguments, given, strict=True)}
            return self._call(node, body, fed)
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
        if node.op in kernels.CONVOLVING:
            largest = max(count(t.dims) * DTYPE_BYTES.get(t.dtype, 0) for t in (*x, *made))
            self.run.convolved_bytes = max(self.run.convolved_bytes, largest)
        if not self.scratch:
            return
        held = []
        for size in kernels.temporaries(node, x, made, self.threads):
            if size >= TINY_BYTES:
                origin = Origin(node.name, node.op, (size,), "uint8", "temp", None, self.caller)
                held.append(Tensor((), "", None, self.new(size, origin)))
        for tensor in held:
            self.drop(tensor)

    def _placed(self, node: Node, x: list[Tensor], tensor: Tensor, port: int) -> Tensor:
        """Give an output its memory: an input's, or its own."""
        op = node.op
        if not x:
            return self.allocated(node, tensor)
        if op in kernels.ALIASES or _is_untouched(op, x, tensor):
            return self.share(tensor._replace(buffer=x[0].buffer))
        if op == "IdentityN":
            return self.share(tensor._replace(buffer=x[port].buffer))
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
                    return self.share(tensor._replace(buffer=buffer))
        return self.allocated(node, tensor)

    # ------------------------------------------------------------------ variables

    def _read(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number = x[0].value
        kind = node.outputs[0]
        dims = tuple(d or 0 for d in kind.shape or ())
        if number is None or number in self._copied:
            return [self.allocated(node, Tensor(dims, kind.dtype))]
        return [self.share(Tensor(dims, kind.dtype, None, self._variables[number]))]

    def _assign(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number, value = x[0].value, x[1]
        if number is None:
            return []
        old = self._variables[number]
        if value.buffer is not None and value.buffer.number is not None:
            self._variables[number] = self.share(value).buffer
            self.drop(Tensor((), "", None, old))
        return []

    def _update(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number = x[0].value
        if number is not None:
            old = self._variables[number]
            if old.refs > 1 and old.number is not None:
                kind = self._kinds[number]
                origin = Origin(kind.name, node.op, kind.shape, kind.dtype, "variable", number)
                self._variables[number] = self.new(kind.bytes, origin)
                self.drop(Tensor((), "", None, old))
        return []

    def _while(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        cond, body = node.bodies["cond"], node.bodies["body"]
        state = [self.share(t) for t in x]
        # The loop owns its state: what it was given is released by the first round.
        for at, tensor in enumerate(x):
            x[at] = NOTHING
            self.drop(tensor)
        trips = loops.trip_count(cond, body, state)
        if trips is not None and trips * len(body.nodes) <= loops.MAX_NODES:
            parallel = int(node.attrs.get("parallel_iterations") or 32)
            flat = self._plans.unrolled(body, trips, parallel)
            return self._call(node, flat, dict(zip(flat.arguments, state, strict=True)))
        for _ in range(MAX_LOOP):
            test = self._call(
                node, cond, {n: self.share(t) for n, t in zip(cond.arguments, state, strict=True)}
            )
            proceed = test[0].value
            self.drop(test[0])
            if not proceed:
                if proceed is None:
                    self.run.unknown["While"] = self.run.unknown.get("While", 0)
                break
            fed = dict(zip(body.arguments, state, strict=True))
            state = self._call(node, body, fed)
        return state

    def _call(self, node: Node, body: Graph, fed: dict[int, Tensor]) -> list[Tensor]:
        """Run a function that a node calls; what it holds is known by the outermost caller."""
        outer = self.caller
        self.caller = outer or node.name
        try:
            return self._run(body, fed)
        finally:
            self.caller = outer

    def _variable_shape(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        number = x[0].value
        dims = self._kinds[number].shape if number is not None else ()
        return [Tensor((len(dims),), "int32", list(dims))]

    def _constant(self, node: Node, x: list[Tensor]) -> list[Tensor]:
        kind = node.outputs[0]
        return [Tensor(tuple(d or 0 for d in kind.shape or ()), kind.dtype, node.value)]


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
    "While": Executor._while,
    "StatelessWhile": Executor._while,
}
