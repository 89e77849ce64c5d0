"""What the name and the shape of a failed operation say about it."""

import pytest

from oomdoctor.advise.vocabulary import values
from oomdoctor.facts import Diagnosis, Facts


def crash(op, shape):
    diagnosis = Diagnosis(cause="gpu_exhausted", confidence=1.0, op=op, shape=shape)
    flat = values(Facts(diagnosis=diagnosis))
    return {name: flat[f"crash.{name}"] for name in ("op_kind", "rank", "is_weight_gradient")}


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("gradient_tape/sequential_1/dense_2/MatMul/MatMul_1", "MatMul"),
        ("model_1/conv2d_17/Relu_1", "Relu"),
        ("Forward_Phase/Cast/ (Cast)", "Cast"),
        ("_EagerConst", "_EagerConst"),
        ("", None),
        (None, None),
    ],
)
def test_the_kind_of_an_operation_is_the_last_part_of_its_name(op, kind):
    assert crash(op, (32, 8))["op_kind"] == kind


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("gradient_tape/dense/MatMul/MatMul_1", (4096, 512)),
        ("gradient_tape/dense/MatMul/MatMul", (22436962, 512)),
        ("gradient_tape/model/conv/Conv2D/Conv2DBackpropFilter", (3, 3, 64, 64)),
        ("training/Adam/Variable_4/Assign", (300_000, 4_000)),
        ("dense/kernel/Momentum/Initializer/zeros", (300_000, 4_000)),
        ("dense/kernel/Initializer/random_uniform/RandomUniform", (300_000, 4_000)),
    ],
)
def test_the_gradient_of_a_weight_is_told_from_name_and_shape(op, shape):
    assert crash(op, shape)["is_weight_gradient"] is True


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("gradient_tape/dense/MatMul/MatMul", (32, 512)),
        ("gradient_tape/dense/MatMul/MatMul_1", (256, 256, 256)),
        ("gradient_tape/model/conv/Conv2D/Conv2DBackpropInput", (32, 64, 64, 3)),
        ("model/dense/MatMul_1", (32, 512)),
        ("training/Adam/gradients/dense/MatMul_grad/MatMul", (32, 512)),
        ("gradient_tape/dense/MatMul/MatMul_1", None),
        (None, (32, 512)),
    ],
)
def test_without_proof_a_tensor_is_not_taken_for_a_weight(op, shape):
    assert crash(op, shape)["is_weight_gradient"] is False


def test_without_a_crash_nothing_is_said():
    flat = values(Facts())

    assert flat["crash.rank"] is flat["crash.op_kind"] is flat["crash.is_weight_gradient"] is None
