"""Chunked training is training: the same weights, with chunks, without, and after kill -9."""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import oomdoctor
from oomdoctor.errors import InputError, UsageError

pytestmark = pytest.mark.tensorflow
SCRIPT = Path(__file__).parent / "chunked.py"
EPOCHS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chunks")
    rng = np.random.default_rng(0)
    x = rng.random((1000, 6), np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", x.sum(axis=1))
    return folder


def build():
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import chunked
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return chunked.build()


def weights(model):
    return [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]


def chunked(model, data, checkpoint, **options):
    options = {"chunk": 50 * 28, "batch_size": 5, "seed": 1, "verbose": 0, **options}
    return oomdoctor.fit_in_chunks(model, data / "x.npy", checkpoint=checkpoint, **options)


def test_weights_and_losses_are_those_of_fit_over_the_same_order(data, tmp_path):
    model, plain = build(), build()
    ran = chunked(model, data, tmp_path / "c.npz", epochs=2)
    stream = oomdoctor.stream_dataset(data / "x.npy", batch_size=5, seed=1, shuffle_buffer=50 * 28)
    expected = plain.fit(stream, epochs=2, verbose=0, shuffle=False)
    for found, wanted in zip(weights(model), weights(plain), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    for name, values in expected.history.items():
        assert ran.history[name] == pytest.approx(values, rel=1e-5)
    assert ran.epoch == [0, 1]


@pytest.mark.parametrize("batches", [3, 57, 200, 215])
def test_training_goes_on_from_the_last_checkpoint(data, tmp_path, batches):
    import keras

    class Dies(keras.callbacks.Callback):
        seen = 0

        def on_train_batch_end(self, batch, logs=None):
            Dies.seen += 1
            if Dies.seen == batches:
                raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        chunked(build(), data, tmp_path / "c.npz", epochs=2, callbacks=[Dies()])
    model, whole = build(), build()
    ran = chunked(model, data, tmp_path / "c.npz", epochs=2)
    expected = chunked(whole, data, tmp_path / "other.npz", epochs=2)
    for found, wanted in zip(weights(model), weights(whole), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    for name, values in expected.history.items():
        assert ran.history[name] == pytest.approx(values, rel=1e-5)
    # Once done, it stays done; more epochs go on.
    assert chunked(build(), data, tmp_path / "c.npz", epochs=2).history == ran.history
    assert len(chunked(build(), data, tmp_path / "c.npz", epochs=3).history["loss"]) == 3


def test_a_checkpoint_of_something_else_is_refused(data, tmp_path):
    import keras

    checkpoint = tmp_path / "c.npz"
    chunked(build(), data, checkpoint)
    with pytest.raises(UsageError, match="batch_size 5, and now it is 7"):
        chunked(build(), data, checkpoint, batch_size=7, epochs=2)
    other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    other.compile("sgd", "mse")
    with pytest.raises(UsageError, match="another model"):
        chunked(other, data, checkpoint, epochs=2)
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 255
    checkpoint.write_bytes(bytes(content))
    with pytest.raises(InputError, match="damaged"):
        chunked(build(), data, checkpoint, epochs=2)


def run(data, kill_after=None):
    """Return what a run of the script prints; None where it was killed."""
    process = subprocess.Popen(
        [sys.executable, SCRIPT, data, str(EPOCHS)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        if kill_after is not None:
            time.sleep(kill_after)
            process.kill()
        out, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    if process.returncode == -9:
        return None
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


def killed_at_random(data, tmp_path, kills):
    shutil.copytree(data, tmp_path / "whole")
    begun = time.monotonic()
    expected = run(tmp_path / "whole")
    took = time.monotonic() - begun
    shutil.copytree(data, tmp_path / "killed")
    rng = random.Random(0)
    died = 0
    for _ in range(kills):
        # Mostly while it trains and writes; what was finished by then is begun again.
        if run(tmp_path / "killed", kill_after=rng.uniform(0.1, 0.5) * took) is None:
            died += 1
        elif died < kills:
            (tmp_path / "killed" / "c.npz").unlink()
    found = run(tmp_path / "killed")
    assert died >= kills // 2
    assert found["digest"] == expected["digest"]
    assert found["history"] == expected["history"]
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == ["c.npz", "x.npy", "y.npy"]
    return died


@pytest.mark.slow
def test_three_kills_change_nothing(data, tmp_path):
    killed_at_random(data, tmp_path, 3)


@pytest.mark.heavy
def test_twenty_kills_change_nothing(data, tmp_path):
    print("kills:", killed_at_random(data, tmp_path, 20))
