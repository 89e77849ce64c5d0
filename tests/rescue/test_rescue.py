"""`fit` goes on after a real out-of-memory error, under a real limit, to the same result."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

import oomdoctor
from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.errors import UsageError
from oomdoctor.units import MIB

pytestmark = pytest.mark.tensorflow

SCRIPT = """
import json, sys, warnings
import keras, numpy as np, tensorflow as tf
import oomdoctor

tf.config.threading.set_inter_op_parallelism_threads(1)
kind, batch_size = sys.argv[1], int(sys.argv[2])
keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
x = rng.random((1024, 16, 16, 3), np.float32)
y = x.mean((1, 2, 3)).reshape(-1, 1)
model = keras.Sequential([
    keras.Input((16, 16, 3)),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
    keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(1),
])
schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.9)
model.compile(keras.optimizers.Adam(schedule), "mse")
feed = {"x": x, "y": y, "batch_size": batch_size, "shuffle": False}
if kind == "dataset":
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)
    feed = {"x": dataset}
if kind == "py_dataset":
    class Parts(keras.utils.PyDataset):
        epochs = 0
        def __len__(self):
            return len(x) // batch_size
        def __getitem__(self, index):
            part = slice(index * batch_size, (index + 1) * batch_size)
            return x[part], y[part]
        def on_epoch_end(self):
            self.epochs += 1
    feed = {"x": Parts(), "shuffle": False}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    history = oomdoctor.fit_with_rescue(model, epochs=4, verbose=0, **feed)
print(json.dumps({
    "losses": history.history["loss"],
    "epochs": history.epoch,
    "rescues": history.rescues,
    "warned": [str(w.message) for w in caught if type(w.message).__name__ == "RescueWarning"],
    "updates": int(model.optimizer.iterations),
    "steps": model.optimizer.gradient_accumulation_steps,
}))
"""


def train(kind, batch_size, limit_mib=None):
    environ = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if limit_mib is not None:
        environ |= settings_for_the_cpu(limit_mib * MIB)
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, kind, str(batch_size)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrays", "dataset", "py_dataset"])
def test_training_goes_on_with_the_same_effect(kind):
    expected = train(kind, 512)
    rescued = train(kind, 512, limit_mib=80)

    assert expected["rescues"] == []
    assert len(rescued["rescues"]) >= 1
    assert rescued["warned"] == rescued["rescues"]
    assert "Epoch 1 ran out of memory with a batch size of 512" in rescued["rescues"][0]
    assert rescued["epochs"] == expected["epochs"] == [0, 1, 2, 3]
    assert rescued["updates"] == expected["updates"] == 8
    assert rescued["steps"] == 2 ** len(rescued["rescues"])
    assert rescued["losses"] == pytest.approx(expected["losses"], rel=0.02)


def model_of(optimizer):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop", "lion"])
def test_the_optimizers_state_goes_along(name):
    import keras
    import numpy as np

    from oomdoctor.treat.accumulation import accumulate_gradients

    x, y = np.ones((8, 3), "float32"), np.ones((8, 2), "float32")
    model = model_of(name)
    model.fit(x, y, batch_size=4, verbose=0)
    before = {v.path.partition("/")[2]: v.numpy() for v in model.optimizer.variables}

    accumulate_gradients(model, 2)

    after = {v.path.partition("/")[2]: v.numpy() for v in model.optimizer.variables}
    for place, value in before.items():
        expected = value * 2 if place == "iteration" else value
        np.testing.assert_array_equal(after[place], expected)
    assert model.optimizer.iterations == 2
    model.fit(x, y, batch_size=2, verbose=0)
    assert model.optimizer.iterations == 4
    assert isinstance(model.optimizer, keras.optimizers.Optimizer)


def test_mixed_precision_keeps_its_loss_scale():
    import keras

    from oomdoctor.treat.accumulation import accumulate_gradients

    model = model_of(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.5)))
    model.optimizer.build(model.trainable_variables)
    accumulate_gradients(model, 4)
    assert model.optimizer.inner_optimizer.gradient_accumulation_steps == 4
    assert float(model.optimizer.inner_optimizer.learning_rate) == 0.5


def test_what_an_epoch_has_learnt_is_kept_when_memory_runs_out_after_it():
    import keras
    import numpy as np
    import tensorflow as tf

    from oomdoctor.rescue.fit import RescueWarning

    class NoRoomForTheNext(keras.callbacks.Callback):
        """Raises what TensorFlow raises, once, where the second epoch is about to begin."""

        raised = False

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and not self.raised:
                NoRoomForTheNext.raised = True
                raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    def losses(callbacks):
        keras.utils.set_random_seed(1)
        model = model_of(keras.optimizers.SGD(0.1))
        x = np.random.default_rng(1).random((32, 3), np.float32)
        fit = oomdoctor.fit_with_rescue
        with pytest.warns(RescueWarning) if callbacks else nullcontext():
            return fit(model, x, x[:, :2], epochs=4, verbose=0, shuffle=False, callbacks=callbacks)

    plain, rescued = losses([]), losses([NoRoomForTheNext()])

    assert rescued.history["loss"] == pytest.approx(plain.history["loss"], rel=1e-5)
    assert rescued.rescues[0].startswith("Epoch 2 ran out of memory")


def test_other_errors_are_left_alone():
    import numpy as np

    model = model_of("sgd")
    with pytest.raises(ValueError, match="incompatible"):
        oomdoctor.fit_with_rescue(model, np.ones((4, 9)), np.ones((4, 2)), verbose=0)


def test_what_cannot_be_halved_is_refused():
    with pytest.raises(UsageError, match="cannot be split"):
        oomdoctor.fit_with_rescue(model_of("sgd"), (x for x in ()))
    with pytest.raises(UsageError, match="batch_size is a whole number"):
        oomdoctor.fit_with_rescue(model_of("sgd"), [1], batch_size=0)
