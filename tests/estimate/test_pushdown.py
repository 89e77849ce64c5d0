"""Constants move down as Grappler moves them, and what that does to attention."""

import pytest

from oomdoctor.estimate.nodes import Graph, Node, TensorType
from oomdoctor.estimate.pushdown import moved_inputs, pushed_down

ROW = TensorType("float32", (None, 8))


def product(*, below="Mul", leaves=("x", "y"), constant_first=False, used_again=False):
    """Return c·(x·y), or the same with another operation below."""
    kinds = {"x": "Placeholder", "y": "Placeholder", "c": "Const", "d": "Const", "e": "Const"}
    names = [*leaves, "c"]
    nodes = [Node(name, kinds[name], (), (), (ROW,)) for name in names]
    nodes.append(Node("child", below, ((0, 0), (1, 0)), (), (ROW,)))
    inputs = ((2, 0), (3, 0)) if constant_first else ((3, 0), (2, 0))
    nodes.append(Node("parent", "Mul", inputs, (), (ROW,)))
    results = [(4, 0), (3, 0)] if used_again else [(4, 0)]
    return Graph(nodes, (), tuple(results))


@pytest.mark.parametrize("constant_first", [True, False])
def test_the_constant_goes_to_the_second_factor(constant_first):
    graph = product(constant_first=constant_first)
    assert moved_inputs(graph) == {"child": ["c", "y"], "parent": ["x", "child"]}


def test_two_constants_come_together():
    assert moved_inputs(product(leaves=("d", "y"))) == {
        "child": ["c", "d"],
        "parent": ["y", "child"],
    }


@pytest.mark.parametrize(
    "graph",
    [
        product(below="AddV2"),  # another operation
        product(below="Reshape"),
        product(used_again=True),  # somebody wants the product itself
        product(leaves=("d", "e")),  # all constants: Grappler computes it
    ],
)
def test_what_would_change_a_value_somebody_sees_stays(graph):
    assert moved_inputs(graph) == {}
    assert pushed_down(graph) == graph.nodes


@pytest.fixture(scope="module")
def attention():
    """Return a step with attention, traced, and the simulation of it."""
    import keras
    import tensorflow as tf

    from oomdoctor.estimate.keras_model import read_traced
    from oomdoctor.estimate.simulation import Simulation

    inputs = x = keras.Input((64, 32))
    for _ in range(2):
        x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(4, 8)(x, x))
        x = x + keras.layers.Dense(32)(keras.layers.Dense(256, "gelu")(x))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    rows = tf.TensorSpec([None, 64, 32]), tf.TensorSpec([None, 64, 1])
    step = tf.function(model.train_step, input_signature=[rows], autograph=False)
    step = step.get_concrete_function()
    traced = read_traced(model, step)
    return step, traced, Simulation(traced)


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_tensorflow_moves_the_same_constants(attention):
    import tensorflow as tf
    from tensorflow.python.eager import context

    step, traced, _ = attention
    moved = {n: i for n, i in moved_inputs(traced.graph).items() if "/multi_head_attention" in n}
    assert len(moved) == 4  # two of each attention
    context.context().enable_graph_collection()
    try:
        step((tf.zeros([2, 64, 32]), tf.zeros([2, 64, 1])))
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_graph_collection()
    ran = {node.name: node for graph in graphs for node in graph.post_optimization_graph.node}
    constants = {name for name, node in ran.items() if node.op == "Const"}
    for name, inputs in moved.items():
        # Equal constants have become one, under the name of any of them.
        expected = {source for source in inputs if not source.endswith("Cast/x")}
        assert set(ran[name].input) - constants == expected


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_a_step_with_attention_takes_one_of_a_few_amounts(attention):
    _, _, simulation = attention
    asked = simulation.asked_in_orders(64, most=12, most_ops=10**6)
    assert len(asked) == 12
    # Each attention holds its scaled scores from early on, or does not.
    scores = 64 * 4 * 64 * 64 * 4
    apart = {round((bytes_ - min(asked)) / scores, 1) for bytes_ in asked}
    assert len(apart) > 1
    assert apart <= {0.0, 1.0, 2.0}
    assert len(simulation.asked_in_orders(64, most=12, most_ops=1)) == 1
