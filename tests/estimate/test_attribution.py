"""Whose a buffer is: graphs written by hand, then models whose layers are known."""

import pytest

from oomdoctor.estimate.attribution import owner_of, owners_of
from oomdoctor.estimate.buffers import Origin
from oomdoctor.estimate.nodes import Graph, Node, TensorType, Variable
from oomdoctor.estimate.scopes import INPUTS, LOSS, OPTIMIZER, OTHER, Scopes

SCOPES = Scopes(
    {"model": "model", "model/block_1/dense_2": "block/dense", "model/norm_1": "norm"},
    {"adam"},
    "model",
)
TAPE = "gradient_tape/model/block_1/dense_2/"


def node(name, *inputs, variable=None):
    kind = TensorType("float32", (None, 8))
    return Node(name, "AddV2", tuple((n, 0) for n in inputs), (), (kind,), variable=variable)


def rows(*nodes, arguments=(0,), variables=()):
    graph = Graph(list(nodes), arguments, ((len(nodes) - 1, 0),))
    return {name: owner.row for name, owner in owners_of(graph, SCOPES, list(variables)).items()}


def test_what_a_layers_operations_made_is_the_layers_forward_and_backward():
    nodes = [
        node("x"),
        node("model/block_1/dense_2/MatMul", 0),
        node("compile_loss/mse/Mean", 1),
        node(f"{TAPE}MatMul", 2),
        node("adam/Mul", 3),
    ]
    graph = Graph(nodes, (0,), ((4, 0),))
    owners = owners_of(graph, SCOPES, [])
    assert [tuple(owners[n.name]) for n in nodes] == [
        (INPUTS, False),
        ("block/dense", False),
        (LOSS, False),
        ("block/dense", True),
        (OPTIMIZER, False),
    ]


def test_what_is_between_layers_belongs_to_the_one_whose_gradient_needs_it():
    found = rows(
        node("x"),
        node("model/norm_1/Mul", 0),
        node("model/add", 0, 1),
        node("model/block_1/dense_2/MatMul", 2),
        node(f"{TAPE}MatMul", 2, 3),
    )
    assert found["model/add"] == "block/dense"


def test_else_to_the_nearest_it_was_computed_from_and_then_to_where_it_leads():
    found = rows(
        node("x"),
        node("noise"),
        node("model/norm_1/Mul", 0, 1),
        node("model/transpose", 2),
        node("model/twice", 3),
    )
    assert found["model/twice"] == found["model/transpose"] == "norm"
    assert found["noise"] == "norm"


def test_a_sum_of_gradients_belongs_to_the_layer_it_goes_back_to():
    found = rows(
        node("x"),
        node("gradient_tape/model/norm_1/Mul", 0),
        node("AddN_3", 1, 1),
        node(f"{TAPE}MatMul", 2),
    )
    assert found["AddN_3"] == "block/dense"


def test_variables_have_the_row_they_were_given():
    variables = [
        Variable("w", "weights", 4096, (1024,), "float32", "block/dense"),
        Variable("w_momentum", "optimizer", 4096, (1024,), "float32", OPTIMIZER),
        Variable("nobody", "weights", 4096, (1024,), "float32"),
    ]
    owned = [
        owner_of(Origin(v.name, "", v.shape, v.dtype, "variable", n), {}, SCOPES, variables).row
        for n, v in enumerate(variables)
    ]
    assert owned == ["block/dense", OPTIMIZER, OTHER]


def test_inside_a_loop_the_caller_says_what_its_own_names_do_not():
    owners = owners_of(Graph([node("model/norm_1/while")], (), ()), SCOPES, [])

    def row(name):
        origin = Origin(name, "", (8,), "float32", "output", None, "model/norm_1/while")
        return owner_of(origin, owners, SCOPES, []).row

    assert row("while/add") == "norm"
    assert row("model/block_1/dense_2/MatMul") == "block/dense"


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")  # TensorFlow's own
def test_layers_are_named_by_their_path_and_little_is_left_over():
    import keras
    from keras import layers

    import oomdoctor

    class Block(layers.Layer):
        """Attention and a sum of its own."""

        def __init__(self, **options):
            super().__init__(**options)
            self.attention = layers.MultiHeadAttention(2, 16, name="attention")
            self.norm = layers.LayerNormalization(name="norm")

        def call(self, x):
            return self.norm(x + self.attention(x, x))

    encoder = keras.Sequential([keras.Input((32, 32)), *(Block(name=f"block_{i}") for i in (1, 2))])
    encoder.name = "encoder"
    inputs = keras.Input((32, 32))
    outputs = layers.Dense(4, name="head")(encoder(inputs) * 2.0)
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")

    found = oomdoctor.estimate_memory(model, batch_size=64)

    named = {layer.name: layer for layer in found.layers}
    assert {"encoder/block_1/attention/value", "encoder/block_2/norm", INPUTS} <= set(named)
    assert sum(layer.bytes_at_peak for layer in found.layers) == found.peak_bytes
    outside = named[OTHER].bytes_at_peak if OTHER in named else 0
    assert outside < 0.05 * found.peak_bytes
    assert any(layer.backward_bytes for layer in found.layers)
    assert all(layer.backward_bytes <= layer.bytes_at_peak for layer in found.layers)
