"""What holds the memory at the peak, by part and by layer."""

from __future__ import annotations

import pytest

from oomdoctor.errors import InputError
from oomdoctor.xla.buffers import is_complete, read_assignment
from oomdoctor.xla.cards import find_card
from oomdoctor.xla.compiler import compile_step
from oomdoctor.xla.held import PARTS, held_at_peak
from oomdoctor.xla.lowering import lowering
from oomdoctor.xla.module import Module, Origin

pytestmark = pytest.mark.tensorflow

T4 = find_card("t4")


@pytest.fixture(scope="module")
def cnn_held(cnn_at_32):
    memory = compile_step(cnn_at_32.hlo, T4).memory
    return memory, held_at_peak(memory, cnn_at_32)


def test_parts_and_layers_add_up_to_the_peak(cnn_held):
    memory, held = cnn_held

    assert [part for part, _ in held.parts] == list(PARTS)
    assert sum(size for _, size in held.parts) == memory.peak_bytes
    assert sum(layer.bytes_at_peak for layer in held.layers) == memory.peak_bytes


def test_nearly_all_is_given_to_a_layer_the_optimizer_the_inputs_or_the_loss(cnn_held):
    _, held = cnn_held

    assert held.named_share > 0.99
    names = {layer.name for layer in held.layers}
    assert {"first", "second", "wide", "optimizer", "inputs"} <= names


def test_what_a_model_computes_between_its_layers_is_its_own():
    import keras
    from keras import layers

    inputs = x = keras.Input((64,))
    for _ in range(6):
        x = x + layers.Dense(64, "tanh")(x)
    model = keras.Model(inputs, layers.Dense(1)(x), name="residual")
    model.compile(optimizer="sgd", loss="mse")
    with lowering(model) as traced:
        step = traced.at(4096)

    held = held_at_peak(compile_step(step.hlo, T4).memory, step)

    sizes = {layer.name: layer.bytes_at_peak for layer in held.layers}
    assert sizes["residual (own operations)"] >= 4096 * 64 * 4
    assert held.named_share > 0.99


def test_weights_and_slots_are_what_they_are(cnn_held, cnn):
    _, held = cnn_held
    parts = dict(held.parts)
    weights = sum(4 * w.numpy().size for w in cnn.trainable_variables)

    assert weights <= parts["weights"] <= weights + 1024
    # A batch of 32, at least as it was given.
    assert parts["inputs"] >= 32 * 32 * 32 * 3 * 4
    assert 2 * weights <= parts["optimizer"] <= 2 * weights + 4096
    assert parts["activations"] >= 32 * 32 * 32 * 32 * 4


def test_the_largest_tensors_have_names_and_shapes(cnn_held):
    _, held = cnn_held
    largest = held.tensors[0]

    assert largest.bytes == max(tensor.bytes for tensor in held.tensors)
    assert largest.owner == "second"
    assert sorted(largest.shape) == [32, 32, 32, 32]
    assert largest.dtype == "float32"
    assert "second" in largest.name


@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_a_transformer_is_named_too(precision):
    import keras
    from keras import layers

    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        tokens = keras.Input((64,), dtype="int32")
        x = layers.Embedding(500, 64)(tokens)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 16)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(256, "gelu")(x)))
        model = keras.Model(tokens, layers.Dense(500, dtype="float32")(x))
    finally:
        keras.config.set_dtype_policy(policy)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    with lowering(model) as traced:
        step = traced.at(16)

    held = held_at_peak(compile_step(step.hlo, T4).memory, step)

    assert held.named_share > 0.95
    names = {layer.name for layer in held.layers}
    assert not names & {"query", "key", "value", "attention_output"}  # each attention has these
    assert any(name.startswith("multi_head_attention") for name in names)


def _module(*instructions):
    """Return a program of instructions, each a name and the numbers of its operands."""
    from tensorflow.compiler.xla.service import hlo_pb2

    module = hlo_pb2.HloModuleProto(name="step", entry_computation_id=1)
    entry = module.computations.add(name="step", id=1, root_id=len(instructions))
    for number, (op_name, *operands) in enumerate(instructions, start=1):
        opcode = "add" if operands else "parameter"
        added = entry.instructions.add(id=number, opcode=opcode, operand_ids=operands)
        added.metadata.op_name = op_name
        added.parameter_number = number - 1
    return Module(memoryview(module.SerializeToString()))


def test_gradients_that_are_summed_outside_every_scope_find_their_layer():
    relu = "gradient_tape/model/conv/ReluGrad"
    module = _module(("XLA_Args",), (relu, 1), (relu, 1), ("AddN_37", 2, 3))

    assert module.origin(4).op_name == relu


def test_a_copy_of_an_argument_is_the_argument():
    module = _module(("XLA_Args",), ("XLA_Args",), ("XLA_Args", 2), ("", 3))

    assert module.origin(4) == Origin(argument=1)


def test_an_operation_of_arguments_alone_keeps_its_name():
    module = _module(("XLA_Args",), ("div_no_nan", 1))

    assert module.origin(2) == Origin(op_name="div_no_nan")


@pytest.mark.parametrize("cut", [0, 1, 2, 100, -1])
def test_a_torn_program_is_not_taken_for_a_whole_one(cut, cnn):
    whole = _compiled_for_the_cpu(cnn)

    assert is_complete(whole)
    torn = whole[:cut]
    assert not is_complete(torn)
    with pytest.raises(InputError):
        read_assignment(torn)


def _compiled_for_the_cpu(model):
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function import compiler_ir

    from oomdoctor.estimate.keras_model import traced_function

    with traced_function(model, jit=True) as step:
        specs = [
            tf.TensorSpec((2, *spec.shape[1:]), spec.dtype)
            for spec in tf.nest.flatten(step.structured_input_signature)
        ]
        translate = compiler_ir.from_concrete_function(step, specs)
        return translate(stage="optimized_hlo_proto_serialized")
