from oomdoctor.estimate.executor import Executor
from oomdoctor.estimate.loops import trip_count, unrolled
from oomdoctor.estimate.nodes import Graph, Node, TensorType, Variable
from oomdoctor.estimate.plan import Plans
from oomdoctor.estimate.simplify import simplified
from oomdoctor.estimate.tensors import Tensor

ROW = TensorType("float32", (None, 1024))
RESOURCE = TensorType("resource", ())


def node(name, op, inputs=(), controls=(), outputs=(ROW,), **rest):
    return Node(name, op, tuple(inputs), tuple(controls), tuple(outputs), **rest)


def run(nodes, results, *, batch=4, variables=(), effects=()):
    arguments = tuple(n for n, x in enumerate(nodes) if x.op == "Placeholder")
    graph = Graph(nodes, arguments, tuple(results), tuple(effects))
    fed = {n: Tensor((batch, 1024), "float32") for n in arguments if nodes[n].variable is None}
    executor = Executor(list(variables), batch=batch, plans=Plans())
    return executor.step(graph, fed)


def peak(run):
    current = highest = sum(size for _, size in run.before)
    sizes = dict(run.before)
    for buffer, size in run.events:
        sizes.setdefault(buffer, size)
        current += size if size > 0 else -sizes[buffer]
        highest = max(highest, current)
    return highest


def test_an_operation_writes_into_an_input_nobody_else_holds():
    chain = [
        node("x", "Placeholder"),
        node("a", "Exp", [(0, 0)]),
        node("b", "Relu", [(1, 0)]),
        node("c", "Tanh", [(2, 0)]),
    ]
    # The batch is the caller's, so the first operation needs a buffer; the others reuse it.
    assert peak(run(chain, [(3, 0)])) == 2 * 4 * 4096


def test_an_input_that_is_needed_later_is_not_overwritten():
    kept = [
        node("x", "Placeholder"),
        node("a", "Exp", [(0, 0)]),
        node("b", "Relu", [(1, 0)]),
        node("c", "Mul", [(1, 0), (2, 0)]),
    ]
    assert peak(run(kept, [(3, 0)])) == 3 * 4 * 4096


def test_everything_but_the_batch_is_released_at_the_end():
    result = run(
        [node("x", "Placeholder"), node("a", "Exp", [(0, 0)]), node("b", "Cast", [(1, 0)])],
        [(2, 0)],
    )
    allocated = {buffer for buffer, size in result.events if size > 0}
    released = {buffer for buffer, size in result.events if size < 0}
    assert allocated == released


def test_the_open_dimension_follows_the_batch():
    nodes = [node("x", "Placeholder"), node("a", "Exp", [(0, 0)])]
    assert peak(run(nodes, [(1, 0)], batch=8)) == 2 * peak(run(nodes, [(1, 0)], batch=4))


def test_what_nobody_asked_for_does_not_run():
    nodes = [node("x", "Placeholder"), node("a", "Exp", [(0, 0)]), node("dead", "Exp", [(0, 0)])]
    assert "dead" not in run(nodes, [(1, 0)]).order


def variable_step(order_of_read):
    weights = Variable("w", "weights", 4096 * 4, (4, 1024), "float32")
    value = TensorType("float32", (4, 1024))
    nodes = [
        node("x", "Placeholder"),
        node("w", "Placeholder", outputs=[RESOURCE], variable=0),
        node("read", "ReadVariableOp", [(1, 0)], outputs=[value]),
        node("update", "AssignSubVariableOp", [(1, 0), (0, 0)], [2], outputs=[]),
        node("use", "Mul", [(0, 0), (2, 0)], [3] if order_of_read == "late" else []),
    ]
    if order_of_read == "early":
        nodes[3].controls = (4,)
    return run(nodes, [(4, 0)], variables=[weights], effects=[3])


def test_a_variable_that_was_read_and_not_yet_used_is_copied_when_it_is_updated():
    copies = [o for o in variable_step("late").origins if o.op == "AssignSubVariableOp"]
    assert len(copies) == 1
    assert not [o for o in variable_step("early").origins if o.op == "AssignSubVariableOp"]


def test_the_workspace_of_a_pooling_gradient_is_eight_bytes_per_output():
    picture = TensorType("float32", (None, 32, 32, 8))
    pooled = TensorType("float32", (None, 16, 16, 8))
    nodes = [
        node("x", "Placeholder", outputs=[picture]),
        node("pool", "MaxPool", [(0, 0)], outputs=[pooled]),
        node("grad", "MaxPoolGrad", [(0, 0), (1, 0), (1, 0)], outputs=[picture]),
    ]
    graph = Graph(nodes, (0,), ((2, 0),))
    executor = Executor([], batch=2, plans=Plans())
    result = executor.step(graph, {0: Tensor((2, 32, 32, 8), "float32")})
    temps = [o.dims[0] for o in result.origins if o.kind == "temp"]
    assert temps == [2 * 16 * 16 * 8 * 8]


NUMBER = TensorType("int32", ())


def counting_loop(limit):
    cond = Graph(
        [
            node("i", "Placeholder", outputs=[NUMBER]),
            node("sum", "Placeholder"),
            node("n", "Const", outputs=[NUMBER], value=limit),
            node("less", "Less", [(0, 0), (2, 0)], outputs=[TensorType("bool", ())]),
        ],
        (0, 1),
        ((3, 0),),
    )
    body = Graph(
        [
            node("i", "Placeholder", outputs=[NUMBER]),
            node("sum", "Placeholder"),
            node("one", "Const", outputs=[NUMBER], value=1),
            node("next", "AddV2", [(0, 0), (2, 0)], outputs=[NUMBER]),
            node("part", "Exp", [(1, 0)]),
        ],
        (0, 1),
        ((3, 0), (4, 0)),
    )
    return cond, body


def test_a_loop_runs_as_often_as_its_counter_says():
    cond, body = counting_loop(7)
    state = [Tensor((), "int32", 0), Tensor((4, 1024), "float32")]
    assert trip_count(cond, body, state) == 7
    names = [n.name for n in unrolled(body, 7, 32).nodes]
    assert names.count("part") == 7


def test_a_loop_whose_end_depends_on_data_has_no_known_length():
    cond, body = counting_loop(None)
    assert trip_count(cond, body, [Tensor((), "int32", 0), Tensor((4, 1024), "float32")]) is None


def test_calls_are_inlined_and_pass_through_operations_bypassed():
    body = Graph([node("a", "Placeholder"), node("b", "Exp", [(0, 0)])], (0,), ((1, 0),))
    nodes = [
        node("x", "Placeholder"),
        node("same", "Identity", [(0, 0)]),
        node("call", "PartitionedCall", [(1, 0)], bodies={"f": body}),
    ]
    flat = simplified(Graph(nodes, (0,), ((2, 0),)))
    assert [n.op for n in flat.nodes if n.op != "NoOp"] == ["Placeholder", "Exp"]
    assert flat.nodes[flat.results[0][0]].name == "b"


def order_of(nodes, results, listing):
    graph = Graph(nodes, (0,), tuple(results))
    executor = Executor([], batch=4, plans=Plans(0, {}, listing))
    return executor.step(graph, {0: Tensor((4, 1024), "float32")}).order


def test_another_listing_runs_the_same_operations_in_another_order():
    branches = [
        node("x", "Placeholder"),
        node("a", "Exp", [(0, 0)]),
        node("b", "Tanh", [(0, 0)]),
        node("c", "AddV2", [(1, 0), (2, 0)]),
    ]
    own, other = (order_of(branches, [(3, 0)], listing) for listing in ("own", "reversed"))
    assert own != other
    assert sorted(own) == sorted(other)
    chain = [node("x", "Placeholder"), node("a", "Exp", [(0, 0)]), node("b", "Tanh", [(1, 0)])]
    assert order_of(chain, [(2, 0)], "own") == order_of(chain, [(2, 0)], "shuffled")
