"""Shapes, ops and traces as the user's own code."""

import pytest

from oomdoctor.diagnose.meaning import layer_of
from oomdoctor.diagnose.run import diagnose_text

OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[{shape}] and type float"


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("dual_encoder_all/model_1/conv2d_17/Relu_1", "conv2d_17"),
        ("gradient_tape/sequential_1/dense_2/MatMul/MatMul", "dense_2"),
        ("functional_1/batch_normalization_5/FusedBatchNormV3", "batch_normalization_5"),
        ("model/block2_conv1/convolution", "block2_conv1"),
        ("replica_1/model/stem/Conv2D", "stem"),
        ("_EagerConst", None),
        ("Mul", None),
        (None, None),
    ],
)
def test_the_layer_is_found_in_the_name_of_the_op(op, layer):
    assert layer_of(op) == layer


def test_the_batch_is_inferred_from_several_shapes_that_share_it():
    text = "\n".join(OOM.format(shape=shape) for shape in ("24,9", "24,8,8,64"))
    diagnosis = diagnose_text(text)
    assert (diagnosis.batch_dimension, diagnosis.batch_size) == (0, 24)


def test_a_kernel_is_not_taken_for_a_batch():
    assert diagnose_text(OOM.format(shape="3,3,512,1024")).batch_dimension is None


def test_a_gradient_of_weights_does_not_depend_on_the_batch():
    text = OOM.format(shape="64,3,3,9") + "\n [[{{node gradient_tape/conv/Conv2DBackpropFilter}}]]"
    diagnosis = diagnose_text(text)
    assert diagnosis.batch_dimension is None
    assert any("batch size does not change" in note for note in diagnosis.notes)


def test_a_given_batch_is_found_folded_into_a_dimension():
    diagnosis = diagnose_text(OOM.format(shape="4096,768"), batch_size=32)
    assert (diagnosis.batch_dimension, diagnosis.batch_size) == (0, 32)


def test_a_fitting_batch_is_arithmetic_on_limit_and_use():
    text = "Limit: 3000\nInUse: 2000\n" + OOM.format(shape="100,5,1")  # 2,000 bytes more
    assert diagnose_text(text, batch_size=100).fitting_batch == 75


def test_the_users_own_line_is_told_not_that_of_keras():
    text = (
        "Detected at node model/conv2d/Relu defined at (most recent call last):\n"
        '  File "/home/ada/train.py", line 57, in <module>\n'
        '  File "/usr/lib/python3.11/site-packages/keras/src/trainer.py", line 9, in fit\n'
    ) + OOM.format(shape="2,2")
    diagnosis = diagnose_text(text)
    assert diagnosis.source_line == "train.py:57"
    assert diagnosis.layer == "conv2d"


def test_the_buffers_that_xla_lists_are_the_holders():
    text = (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.\n"
        "BufferAssignment OOM Debugging.\nPeak buffers:\n"
        "\tBuffer 1:\n\t\tSize: 6.00MiB\n\t\tOperator: op_name=x\n\t\tXLA Label: fusion\n"
        "\t\tShape: f32[4096,128,3]\n\t\t=====\n"
        "\tBuffer 2:\n\t\tSize: 384.0KiB\n\t\tEntry Parameter Subshape: bf16[256,256,3]\n"
    )
    assert diagnose_text(text).holders == (
        ("a buffer of shape 4096×128×3 of float32", 6 * 2**20),
        ("a buffer of shape 256×256×3 of bfloat16", 384 * 1024),
    )


def test_the_ops_that_tensorflow_lists_are_the_holders():
    text = OOM.format(shape="9,9") + (
        "\nCurrent usage from device: /job:localhost/replica:0/task:0/device:GPU:0, allocator: a\n"
        "  144.96MiB from first_0\n  1.20GiB from model/conv/Conv2D\n  Remaining 8 nodes\n"
    )
    assert diagnose_text(text).holders[0] == ("op model/conv/Conv2D", int(1.2 * 2**30))


def test_the_place_in_a_node_of_tensorflow_2_3_is_the_users_line():
    text = (
        OOM.format(shape="2,2") + " [[node retinanet/conv1/Conv2D (defined at bin/train.py:551) ]]"
    )
    text = text.replace(") ]]", ")]]")
    diagnosis = diagnose_text(text)
    assert (diagnosis.source_line, diagnosis.layer) == ("train.py:551", "conv1")


def test_a_windows_path_gives_the_file_too():
    text = 'File "C:\\Users\\ada\\work\\train.py", line 3, in <module>\n' + OOM.format(shape="2,2")
    assert diagnose_text(text).source_line == "train.py:3"


@pytest.mark.parametrize(
    "file",
    [
        "<ipython-input-21-f109a85f869a>",
        "/tmp/ipykernel_7212/2888220523.py",
        "C:\\Temp\\ipykernel_7212\\2888220523.py",
    ],
)
def test_a_cell_of_a_notebook_is_named_as_one(file):
    library = "/usr/lib/python3.11/site-packages/ipykernel/kernelapp.py"
    text = (
        f'  File "{file}", line 3, in <module>\n  File "{library}", line 9, in run\nMemoryError\n'
    )
    assert diagnose_text(text).source_line == "the cell, line 3"
