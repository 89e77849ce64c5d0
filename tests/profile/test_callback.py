"""`MemoryCallback` in real trainings, each in a process of its own."""

import json
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import json, sys, time, warnings
import keras, numpy as np
import oomdoctor

kept = []

class Keeper(keras.callbacks.Callback):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def on_train_batch_end(self, batch, logs=None):
        if self.size:
            time.sleep(0.01)  # of steps faster than this only some are recorded
            kept.append(np.ones(self.size, "uint8"))

def fit(*callbacks, steps, epochs=1):
    model = keras.Sequential([keras.layers.Dense(512, "relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((steps * 32, 512), "float32"), np.zeros((steps * 32, 1), "float32")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        history = model.fit(x, y, batch_size=32, epochs=epochs, verbose=0, callbacks=callbacks)
    return [str(w.message) for w in caught if "oomdoctor" in str(w.message)], history
"""


@pytest.fixture
def training(environ, tmp_path):
    """A function that runs code after the head and returns what it printed last, as JSON."""

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", HEAD + textwrap.dedent(code)],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_class_can_be_had_without_keras():
    code = (
        "import sys, oomdoctor\noomdoctor.MemoryCallback\n"
        "print([name for name in ('keras', 'tensorflow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_megabyte_a_step_on_two_gigabytes_is_told_within_200_steps(training):
    found = training(
        """
        ballast = np.ones(1_450_000_000, "uint8")
        memory = oomdoctor.MemoryCallback(ram="8GiB")
        assert isinstance(memory, keras.callbacks.Callback)
        assert isinstance(memory, oomdoctor.MemoryCallback)
        said, _ = fit(Keeper(1_000_000), memory, steps=200)
        leak = memory.profile.leak
        print(json.dumps({
            "said": said, "rss": memory.profile.recording.steps[0].rss_bytes,
            "per_step": leak and leak.bytes_per_step, "text": repr(memory.profile),
            "rows": len(memory.profile.to_frame()),
        }))
        """
    )
    assert found["rss"] > 2_000_000_000
    assert found["per_step"] == pytest.approx(1_000_000, rel=0.15)
    assert "memory leaks" in found["said"][0]
    assert "the limit of 8.00 GiB is reached near step" in found["said"][0]
    assert "Memory leaks" in found["text"]
    assert found["rows"] >= 40


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_healthy_training_is_left_in_peace_and_a_full_one_is_stopped_and_saved(training):
    found = training(
        """
        quiet, _ = fit(Keeper(0), oomdoctor.MemoryCallback(ram="8GiB"), steps=100, epochs=4)
        import psutil
        limit = int((psutil.Process().memory_info().rss + 400_000_000) / 0.92)
        memory = oomdoctor.MemoryCallback(
            stop_before_oom=True, ram=limit, save_to="saved.keras", output="recording"
        )
        said, history = fit(Keeper(4_000_000), memory, steps=100, epochs=9)
        keras.models.load_model("saved.keras")
        from oomdoctor.api.run import report_on
        report = report_on("recording")
        print(json.dumps({
            "quiet": quiet, "said": said, "stopped_at": memory.stopped_at,
            "epochs": len(history.epoch), "cause": report.facts.diagnosis.cause,
        }))
        """
    )
    assert found["quiet"] == []
    assert any("training is stopped" in text for text in found["said"])
    assert 60 <= found["stopped_at"] <= 130
    assert found["epochs"] <= 2
    assert found["cause"] == "leak"
