"""Tuning through the public function and the real command: odd models, data, and bad ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import oomdoctor
from oomdoctor.errors import UsageError
from oomdoctor.model.spec import ModelSpec
from oomdoctor.tune.trials import Trials
from oomdoctor.tune.tuner import MAX_TRIALS, Failed, Wanted, tune
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
MODELS = Path(__file__).parents[1] / "worker"


def state_of(model):
    """Return everything about a model that tuning could change."""
    import keras
    import numpy as np
    import tensorflow as tf

    variables = [*model.variables, *model.optimizer.variables]
    return (
        [(v.path, v.numpy().tobytes()) for v in variables],
        model.get_config(),
        model.get_compile_config(),
        (model.train_function, model.test_function, model.predict_function),
        np.random.get_state()[1].tobytes(),
        tf.random.get_global_generator().state.numpy().tobytes(),
        keras.config.dtype_policy().name,
    )


def test_strings_a_lookup_a_frozen_layer_a_custom_loss_and_half_precision():
    import keras
    import numpy as np

    words = np.array([["a"], ["b c"], ["c a b"]], dtype=object)
    lookup = keras.layers.TextVectorization(max_tokens=10, output_sequence_length=4)
    lookup.adapt(words[:, 0].tolist())

    def quartic(y_true, y_pred):
        return keras.ops.mean((y_true - y_pred) ** 4)

    inputs = keras.Input((1,), dtype="string")
    x = keras.layers.Embedding(10, 8, trainable=False)(lookup(inputs))
    x = keras.layers.Dense(4, dtype="mixed_float16")(keras.layers.Flatten()(x))
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(x))
    model.compile("adam", quartic)
    before = state_of(model)

    size = oomdoctor.suggest_batch_size(model, memory="64MiB", max_batch_size=8)

    assert size == 8
    assert size.limited_by == "max_batch_size"
    assert state_of(model) == before


@pytest.mark.heavy
def test_the_longest_sequence_decides_for_a_model_that_takes_any_length():
    import keras
    import numpy as np

    model = keras.Sequential(
        [keras.Input((None, 4)), keras.layers.Conv1D(64, 3), keras.layers.GlobalMaxPooling1D()]
    )

    def batches(longest):
        def read():
            for length in (16, longest, 32):
                yield np.zeros((2, length, 4), "float32"), np.zeros((2, 64), "float32")

        return read

    with pytest.raises(UsageError, match=r"input_shape=\(\.\.\., 4\) or data="):
        oomdoctor.suggest_batch_size(model, memory="64MiB")
    short = oomdoctor.suggest_batch_size(model, batches(64), memory="128MiB", max_batch_size=4096)
    long = oomdoctor.suggest_batch_size(model, batches(512), memory="128MiB", max_batch_size=4096)

    assert short > 3 * long
    assert "not compiled" in repr(long)


def test_an_answer_is_found_again_unless_the_question_differs(monkeypatch):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8)], name="kept")
    model.compile("sgd", "mse")
    first = oomdoctor.suggest_batch_size(model, memory="32MiB", max_batch_size=16)
    again = oomdoctor.suggest_batch_size(model, memory="32MiB", max_batch_size=16)
    other = oomdoctor.suggest_batch_size(model, memory="32MiB", max_batch_size=12)
    card = oomdoctor.probe_machine(vram="32MiB")
    on_a_card = oomdoctor.suggest_batch_size(model, machine=card, max_batch_size=16)
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "1")
    in_order = oomdoctor.suggest_batch_size(model, memory="32MiB", max_batch_size=16)

    assert (first, again, other, on_a_card) == (16, 16, 12, 16)
    assert on_a_card.budget_bytes == 32 * MIB
    assert again.tuning.trials == first.tuning.trials
    assert "Found before" in again.tuning.notes[-1]
    for new in (first, other, in_order):
        assert not any("Found before" in note for note in new.tuning.notes)


def test_an_answer_for_code_is_found_again_until_the_code_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts, model = tmp_path / "parts_of_it.py", tmp_path / "model_of_it.py"
    parts.write_text("WIDTH = 8\n")
    model.write_text(
        "import keras\n"
        "from parts_of_it import WIDTH\n"
        "def build():\n"
        "    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8)])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return model\n"
    )

    def notes():
        size = oomdoctor.suggest_batch_size("model_of_it:build", memory="32MiB", max_batch_size=16)
        assert size == 16
        return " ".join(size.tuning.notes)

    assert "Found before" not in notes()
    assert "Found before" in notes()
    parts.write_text("WIDTH = 9\n")
    assert "Found before" not in notes()


def test_a_size_that_kills_its_process_does_not_fit():
    spec = ModelSpec(
        "measured_models:dense", sys_path=(str(MODELS),), data="measured_models:perilous_data"
    )
    wanted = Wanted(budget_bytes=64 * MIB, minimum=12, maximum=13)
    with Trials(spec, budget_bytes=64 * MIB) as trials:
        found = tune(trials, wanted)
    assert (found.batch_size, found.limited_by) == (12, "host RAM")
    assert [trial.outcome for trial in found.trials] == ["died", "fits"]


def test_each_size_is_trained_in_a_process_of_its_own():
    with Trials(
        ModelSpec("measured_models:tower", sys_path=(str(MODELS),)), budget_bytes=64 * MIB
    ) as trials:
        trials.guess(64 * MIB)
        guessing = trials._worker.process.pid
        first = trials.run(64, limit_bytes=64 * MIB, last=5)
        assert trials._worker.process.pid == guessing  # in which nothing was trained
        other = trials.run(32, limit_bytes=64 * MIB)
        worker = trials._worker.process.pid
        assert worker != guessing
        again = trials.run(16, limit_bytes=64 * MIB, alone=False)
        assert trials._worker.process.pid == worker
        refused = trials.run(900, limit_bytes=64 * MIB)
    outcomes = [trial.outcome for trial in (first, other, again, refused)]
    assert outcomes == ["fits", "fits", "fits", "oom"]
    assert len(first.step_peaks) >= 2


@pytest.mark.heavy
def test_without_a_margin_the_answer_is_the_largest_size_that_was_run_and_fits():
    import keras

    model = keras.Sequential(
        [keras.Input((256,)), keras.layers.Dense(1024, "relu"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    size = oomdoctor.suggest_batch_size(model, memory="32MiB", margin=0, max_seconds=None)
    tuning = size.tuning
    failed = [trial.batch_size for trial in tuning.trials if trial.outcome != "fits"]

    assert tuning.target_bytes == tuning.budget_bytes == 32 * MIB
    assert size == max(t.batch_size for t in tuning.trials if t.batch_size < min(failed))
    assert len(tuning.trials) <= MAX_TRIALS


def test_a_model_that_hangs_is_given_up_when_time_is_over():
    spec = ModelSpec(
        "measured_models:dense", sys_path=(str(MODELS),), data="measured_models:perilous_data"
    )
    deadline = time.monotonic() + 8
    with Trials(spec, budget_bytes=64 * MIB, deadline=deadline) as trials:
        wanted = Wanted(budget_bytes=64 * MIB, minimum=14, maximum=14)
        assert tune(trials, wanted, deadline=deadline) == Failed((), out_of_time=True)
        assert not trials.is_started


def test_half_of_the_time_is_kept_for_a_smaller_size_than_one_that_hangs():
    spec = ModelSpec(
        "measured_models:dense", sys_path=(str(MODELS),), data="measured_models:perilous_data"
    )
    deadline = time.monotonic() + 60
    with Trials(spec, budget_bytes=64 * MIB, deadline=deadline) as trials:
        found = tune(trials, Wanted(budget_bytes=64 * MIB, maximum=14), deadline=deadline)
    assert (found.batch_size, found.limited_by) == (7, "time")


def test_a_search_ends_when_its_time_is_over():
    import keras

    model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64) for _ in range(40))])
    model.compile("adam", "mse")
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"No batch size was found within 0\.5 s: starting"):
        oomdoctor.suggest_batch_size(model, memory="64MiB", max_seconds=0.5)
    assert time.monotonic() - began < 60  # only a search without an end takes so long


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "oomdoctor", "tune", "measured_models:conv", "--vram", "64MiB"]
    process = subprocess.Popen(command, cwd=MODELS, env=environ, stderr=subprocess.PIPE, text=True)
    own = psutil.Process(process.pid)
    deadline = time.monotonic() + 120
    while not (workers := own.children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(workers) == 1

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "Traceback" not in errors
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert list(tmp_path.glob("oomdoctor-*")) == []


MIRRORED = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import oomdoctor
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile("adam", "mse")
size = oomdoctor.suggest_batch_size(
    model, memory="64MiB", replicas=strategy.num_replicas_in_sync, max_batch_size=31
)
x, y = np.ones((2 * size, 8), "float32"), np.ones((2 * size, 1), "float32")
model.fit(x, y, batch_size=size, verbose=0)
updates = int(model.optimizer.iterations.value.values[0].numpy())
print("updates", updates, "size", size, repr(size))
"""


def test_replicas_share_a_batch_that_divides(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", MIRRORED], capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "updates 2 size 30" in result.stdout
    assert "(15 per replica)" in result.stdout
    assert "2, with 15 samples each" in result.stdout
