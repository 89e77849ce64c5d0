"""Models of many kinds train in the worker without being told what they take."""

import pytest

from oomdoctor.runner.process import WorkerProcess, environment
from oomdoctor.units import MIB
from oomdoctor.worker.messages import Fit, Load, Loaded, Ran

pytestmark = pytest.mark.tensorflow
SECONDS = 300


@pytest.fixture(scope="module")
def worker():
    process = WorkerProcess(environment(None))
    yield process
    process.close()


@pytest.fixture
def load(worker, spec_of):
    """A function that loads one model after the other into the same worker."""

    def load_model(name, **fields):
        answer = worker.ask(Load(spec_of(name, **fields)), SECONDS)
        assert isinstance(answer, Loaded), answer

    return load_model


@pytest.fixture
def fit(worker):
    """A function that trains the model that was loaded last."""

    def train(batch_size, **how):
        answer = worker.ask(Fit(batch_size, **how), SECONDS)
        assert isinstance(answer, Ran), answer
        return answer.trial

    return train


def test_a_trial_says_what_each_step_held(load, fit):
    load("conv")
    trial = fit(64, epochs=2, steps=3)

    assert (trial.outcome, trial.notes, trial.device) == ("fits", (), "CPU:0")
    assert len(trial.step_peaks) == 2 * (3 + 1)  # a smaller last batch ends each epoch
    assert trial.peak_bytes == max(trial.step_peaks)
    assert trial.batch_bytes == 64 * (16 * 16 * 3 + 1) * 4
    assert 0 < trial.held_bytes < trial.peak_bytes - trial.batch_bytes
    assert 0 < trial.step_seconds <= trial.seconds
    assert fit(16, steps=2).peak_bytes < trial.peak_bytes < fit(128, steps=2).peak_bytes
    # A batch of one has no smaller one.
    assert len(fit(1, steps=2).step_peaks) == 2


def test_the_last_batch_is_as_large_as_it_will_be(load, fit):
    load("conv")
    small, large = fit(16, steps=2, last=1), fit(16, steps=2, last=15)

    assert min(small.step_peaks) < min(large.step_peaks)


def test_no_step_begins_when_time_is_up_but_two_are_run(load, fit):
    load("dense")

    assert len(fit(4, epochs=50, steps=50, seconds=0).step_peaks) == 2
    assert 2 <= len(fit(4, epochs=1000, steps=100, training_seconds=0.5).step_peaks) < 100_000


def test_named_inputs_embeddings_and_several_losses(load, fit):
    load("several_inputs")
    trial = fit(16)

    assert (trial.outcome, trial.notes) == ("fits", ())
    assert trial.batch_bytes == 16 * (6 + 3 + 1 + 1 + 1) * 4


def test_a_custom_train_step_that_takes_x_alone(load, fit):
    load("autoencoder")
    trial = fit(16)

    assert (trial.outcome, trial.notes) == ("fits", ())
    assert trial.batch_bytes == 16 * 32 * 4
    assert trial.held_bytes >= 2 * 4 * (32 * 8 + 8 + 8 * 32 + 32)


def test_an_uncompiled_model_is_trained_with_stated_assumptions(load, fit):
    load("uncompiled")
    trial = fit(16)

    assert trial.outcome == "fits"
    assert any("taken to be adam" in note for note in trial.notes)
    assert any("sparse_categorical_crossentropy" in note for note in trial.notes)


def test_replicas_share_a_batch(load, fit):
    load("conv", replicas=2)
    trial = fit(127)

    assert trial.outcome == "fits"
    assert trial.batch_bytes == 64 * (16 * 16 * 3 + 1) * 4
    assert any("One of 2 replicas" in note for note in trial.notes)


def test_a_step_that_xla_compiles(load, fit):
    load("dense", jit_compile=True)

    assert fit(8).outcome == "fits"


def test_code_that_reads_the_batch_size_is_traced_for_each_size(load, fit):
    load("reads_batch_size", input_shape=(5,))
    trials = [fit(size) for size in (2, 3)]

    assert [trial.outcome for trial in trials] == ["fits", "fits"]
    assert [len(trial.step_peaks) for trial in trials] == [4, 4]  # no batch of another size
    assert any("it is traced for each size" in note for note in trials[0].notes)


def test_batches_of_the_user_are_what_is_trained_on(load, fit):
    load("dense", data="measured_models:perilous_data")
    trial = fit(7, epochs=2)

    assert trial.outcome == "fits"
    assert trial.batch_bytes == 7 * (4 + 1) * 4


def test_a_model_that_cannot_be_trained_is_one_sentence(worker, load):
    load("fixed_batch")
    answer = worker.ask(Fit(5), SECONDS)

    assert "takes batches of 4 only, not 5" in answer.message
    assert answer.is_usage


def test_a_saved_file_is_trained_like_the_model_it_holds(worker, fit, tmp_path):
    import keras

    from oomdoctor.model.spec import ModelSpec

    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    path = tmp_path / "saved.keras"
    model.save(path)

    worker.ask(Load(ModelSpec(str(path))), SECONDS)
    trial = fit(32)

    assert (trial.outcome, trial.notes) == ("fits", ())
    assert trial.held_bytes >= 4 * 3 * model.count_params()  # weights and two slots of Adam
    assert trial.peak_bytes < 64 * MIB
