import pytest

from oomdoctor.estimate.infer import infer
from oomdoctor.estimate.nodes import Node, TensorType
from oomdoctor.estimate.tensors import Tensor


def outputs(op, inputs, shape, *, batch=8, **attrs):
    node = Node(op, op, (), (), (TensorType("float32", shape),), attrs)
    return infer(node, inputs, batch)


def numbers(*values):
    return Tensor((len(values),), "int32", list(values))


@pytest.mark.parametrize(
    ("op", "inputs", "shape", "attrs", "expected"),
    [
        ("Reshape", [Tensor((8, 6), "float32"), numbers(-1, 3)], (None, 3), {}, (16, 3)),
        ("MatMul", [Tensor((8, 5), "float32"), Tensor((7, 5), "float32")], (None, 7),
         {"transpose_b": True}, (8, 7)),
        ("Einsum", [Tensor((8, 4, 5), "float32"), Tensor((5, 2, 3), "float32")],
         (None, 4, 2, 3), {"equation": "abc,cde->abde"}, (8, 4, 2, 3)),
        ("Mul", [Tensor((8, 1, 3), "float32"), Tensor((4, 3), "float32")], (None, 4, 3), {},
         (8, 4, 3)),
        ("Sum", [Tensor((8, 4, 3), "float32"), numbers(1)], (None, 3), {}, (8, 3)),
        ("Transpose", [Tensor((8, 4, 3), "float32"), numbers(2, 0, 1)], (3, None, 4), {},
         (3, 8, 4)),
        ("Conv2D", [Tensor((8, 9, 9, 3), "float32"), Tensor((3, 3, 3, 5), "float32")],
         (None, 7, 7, 5), {}, (8, 7, 7, 5)),
        ("GatherV2", [Tensor((8, 64, 5), "float32"), Tensor((8, 64, 16), "int32"), numbers(1)],
         (None, 64, 16, 5), {"batch_dims": 1}, (8, 64, 16, 5)),
        ("GatherV2", [Tensor((8, 64, 5), "float32"), Tensor((3,), "int32"), numbers(1)],
         (None, 3, 5), {"batch_dims": 0}, (8, 3, 5)),
    ],
)  # fmt: skip
def test_an_open_dimension_is_worked_out(op, inputs, shape, attrs, expected):
    found, sure = outputs(op, inputs, shape, **attrs)
    assert sure
    assert found[0].dims == expected


def test_what_cannot_be_told_is_said_to_be_unsure():
    found, sure = outputs("NobodyKnows", [Tensor((3,), "float32")], None)
    assert not sure
    assert found[0].dims == (3,)


def test_the_numbers_of_a_shape_are_followed():
    node = Node("Shape", "Shape", (), (), (TensorType("int32", (3,)),))
    found, _ = infer(node, [Tensor((8, 4, 3), "float32")], 8)
    assert found[0].value == [8, 4, 3]


@pytest.mark.parametrize(
    ("op", "inputs", "shape", "attrs", "expected"),
    [
        ("Conv2D", [Tensor((1, 9, 9, 3), "float32"), Tensor((3, 3, 3, 5), "float32")],
         (None, 7, 7, 5), {}, (1, 7, 7, 5)),
        ("LRN", [Tensor((1, 9, 9, 3), "float32"), Tensor((4, 4), "float32")],
         (None, 9, 9, 3), {}, (1, 9, 9, 3)),
        ("NobodyKnows", [Tensor((1, 9), "float32")], (None, 4, 3), {}, (1, 4, 3)),
    ],
)  # fmt: skip
def test_a_batch_of_one_is_no_dimension_of_something_else(op, inputs, shape, attrs, expected):
    found, sure = outputs(op, inputs, shape, batch=1, **attrs)
    assert sure
    assert found[0].dims == expected


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "expected"),
    [
        ("Conv2D", [Tensor((8, 9, 9, 3), "float32"), Tensor((3, 3, 3, 5), "float32")],
         {"strides": [1, 2, 2, 1], "padding": "SAME"}, (8, 5, 5, 5)),
        ("Conv2D", [Tensor((8, 9, 9, 3), "float32"), Tensor((3, 3, 3, 5), "float32")],
         {"dilations": [1, 2, 2, 1], "padding": "VALID"}, (8, 5, 5, 5)),
        ("DepthwiseConv2dNative",
         [Tensor((8, 9, 9, 3), "float32"), Tensor((3, 3, 3, 2), "float32")],
         {"padding": "VALID"}, (8, 7, 7, 6)),
        ("MaxPool", [Tensor((8, 9, 9, 3), "float32")],
         {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}, (8, 4, 4, 3)),
        ("SpaceToBatchND",
         [Tensor((2, 12, 3), "float32"), numbers(4), Tensor((1, 2), "int32", [8, 0])],
         {}, (8, 5, 3)),
        ("BatchToSpaceND",
         [Tensor((8, 5, 3), "float32"), numbers(4), Tensor((1, 2), "int32", [0, 8])],
         {}, (2, 12, 3)),
        ("ResizeBilinear", [Tensor((2, 9, 9, 3), "float32"), numbers(18, 18)], {}, (2, 18, 18, 3)),
    ],
)  # fmt: skip
def test_windows_and_blocks_are_followed_where_the_size_is_open(op, inputs, attrs, expected):
    found, sure = outputs(op, inputs, (None,) * len(expected), **attrs)
    assert sure
    assert found[0].dims == expected
