"""Models of many kinds can be fed and measured without being told how."""

import pytest

from oomdoctor.measure.runner import Runner
from oomdoctor.measure.spec import ModelSpec

pytestmark = pytest.mark.tensorflow


def test_named_inputs_embeddings_and_several_losses(run_once):
    trial = run_once("several_inputs", 16, trace=True)

    assert trial.outcome == "fits"
    assert trial.notes == ()
    assert trial.trace.peak_bytes == trial.trace.allocator_peak_bytes


def test_custom_train_step_that_takes_x_alone(run_once):
    trial = run_once("autoencoder", 16, trace=True)

    assert trial.outcome == "fits"
    assert {"squeeze", "widen"} <= {name.rpartition("/")[2] for name in trial.trace.layers} or {
        "dense",
        "dense_1",
    } <= {name.rpartition("/")[2] for name in trial.trace.layers}
    assert trial.trace.parts["optimizer"] >= 4 * (32 * 8 + 8 + 8 * 32 + 32)


def test_uncompiled_model_is_measured_with_stated_assumptions(run_once):
    trial = run_once("uncompiled", 16, trace=True)

    assert trial.outcome == "fits"
    assert any("measured with adam" in note for note in trial.notes)
    assert any("sparse_categorical_crossentropy" in note for note in trial.notes)
    assert trial.trace.peak_bytes == trial.trace.allocator_peak_bytes


@pytest.fixture(scope="module")
def plain(spec_of):
    """The model that others are compared with."""
    with Runner(spec_of("conv")) as runner:
        yield runner.run(64, steps=2, trace=True)


def test_optimizer_of_the_spec_replaces_the_model_s_own(run_once, plain):
    lighter = run_once("conv", 64, trace=True, optimizer="sgd")

    assert lighter.trace.parts["optimizer"] < plain.trace.parts["optimizer"] / 10
    assert lighter.current_bytes < plain.current_bytes


def test_mixed_precision_halves_what_the_layers_give(run_once):
    trace = run_once("conv", 64, trace=True, precision="mixed_float16").trace
    halves = [t for t in trace.tensors if t.shape == (64, 14, 14, 8) and t.dtype == "float16"]

    assert {tensor.requested_bytes for tensor in halves} == {64 * 14 * 14 * 8 * 2}
    assert trace.peak_bytes == trace.allocator_peak_bytes


def test_replicas_share_a_batch(run_once, plain):
    shared = run_once("conv", 128, replicas=2)

    assert shared.batch_size == 128
    # Packing the gradients makes the updates wait, so the order of ops differs a little.
    assert shared.peak_bytes == pytest.approx(plain.peak_bytes, rel=0.15)
    assert any("One of 2 replicas" in note for note in shared.notes)


def test_compiling_with_xla_is_honoured(run_once):
    trial = run_once("dense", 8, jit_compile=True, trace=True)

    assert trial.outcome == "fits"
    assert trial.trace.peak_bytes == trial.trace.allocator_peak_bytes
    assert not any("gradient_tape" in tensor.op for tensor in trial.trace.tensors)


def test_code_that_reads_the_batch_size_is_traced_for_each_size(spec_of):
    with Runner(spec_of("reads_batch_size", input_shape=(5,))) as runner:
        trials = [runner.run(size, steps=2) for size in (2, 3)]

    assert [trial.outcome for trial in trials] == ["fits", "fits"]
    assert any("each size is traced anew" in note for note in trials[0].notes)


def test_a_saved_file_is_measured_like_the_model_it_holds(tmp_path, spec_of):
    import keras

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    path = tmp_path / "saved.keras"
    model.save(path)

    with Runner(ModelSpec(str(path))) as runner:
        trial = runner.run(32)

    assert trial.outcome == "fits"
    assert trial.notes == ()
    # Weights and two slots of Adam, and a batch of 32·64 floats with its 32 targets.
    assert trial.current_bytes >= 4 * (3 * model.count_params() + 32 * 64 + 32)
