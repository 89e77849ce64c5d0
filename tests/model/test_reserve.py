"""Variables without memory: what can be done with a model that is built of them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

GIANT = Path(__file__).parent / "giant_model.py"


@pytest.fixture
def reserving():
    from oomdoctor.model.reserve import reserving

    return reserving


def built(units=256):
    import keras

    model = keras.Sequential(
        [keras.Input((units,)), keras.layers.Dense(units), keras.layers.Dense(2)]
    )
    model.compile("adam", "mse")
    return model


def test_large_variables_are_reserved_and_small_ones_are_as_ever(reserving):
    from oomdoctor.model.reserve import is_reserved

    with reserving() as reserved:
        model = built()
    kernel, bias = model.layers[0].weights

    assert reserved.bytes == 256 * 256 * 4
    assert is_reserved(kernel)
    assert not is_reserved(bias)
    assert np.any(model.layers[1].kernel.numpy() != 0)
    assert (tuple(kernel.shape), kernel.dtype) == ((256, 256), "float32")


def test_weights_can_be_read_written_and_loaded_and_the_model_called(reserving, tmp_path):
    real = built()
    real.save_weights(tmp_path / "some.weights.h5")
    with reserving():
        model = built()
        model.load_weights(tmp_path / "some.weights.h5")
        model.set_weights(real.get_weights())
        read = model.get_weights()
        called = model(np.ones((3, 256), "float32"))
        predicted = model.predict(np.ones((3, 256), "float32"), verbose=0)

    assert not read[0].any()
    np.testing.assert_array_equal(read[2], real.layers[1].kernel.numpy())
    assert called.shape == predicted.shape == (3, 2)


def test_a_model_that_trains_while_it_is_built_gets_memory_for_what_it_writes(reserving):
    with reserving():
        model = built()
        x, y = np.ones((4, 256), "float32"), np.ones((4, 2), "float32")
        model.fit(x, y, verbose=0)
        other = built()
        value = other.layers[0].kernel.value.numpy()

    assert not value.any()  # what another model wrote is not seen


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32"])
def test_every_dtype_can_be_reserved(reserving, dtype):
    import keras

    with reserving() as reserved:
        variable = keras.Variable(initializer="zeros", shape=(512, 512), dtype=dtype)
    assert reserved.bytes >= 512 * 512
    assert variable.value.dtype.name == dtype
    assert variable.value.shape == (512, 512)
    assert not np.asarray(variable.value.numpy(), "float32").any()


def test_afterwards_keras_makes_variables_as_before(reserving):
    import keras

    before = dict(vars(keras.Variable))
    with pytest.raises(RuntimeError, match="on purpose"), reserving():
        raise RuntimeError("on purpose")

    assert dict(vars(keras.Variable)) == before
    assert np.any(built().layers[0].kernel.numpy())


def test_a_live_model_keeps_its_values_and_its_copy_takes_none():
    import oomdoctor

    model = built()
    before = [value.copy() for value in model.get_weights()]
    one = oomdoctor.estimate_memory(model)
    other = oomdoctor.estimate_memory(model, optimizer="sgd")

    assert other.peak_bytes < one.peak_bytes
    for value, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)


UNDER_A_CAP = """
import sys
from pathlib import Path
from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.estimator import Estimator
from oomdoctor.units import GIB
with Estimator(ram_bytes=2 * GIB) as estimator:
    spec = ModelSpec("giant_model:build", sys_path=(sys.argv[1],))
    found, workload = estimator.estimate(spec, 1)
    status = Path(f"/proc/{estimator._worker.process.pid}/status").read_text()
held_kib = int(status.partition("VmHWM:")[2].split()[0])
print(workload.weights_bytes, found.peak_bytes, held_kib * 1024)
print(*[layer.name for layer in found.layers[:40]])
"""


def test_a_model_of_100_gb_is_estimated_by_layer_in_a_process_of_two_gib():
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_CAP, str(GIANT.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures, layers = done.stdout.strip().splitlines()
    weights, peak, resident = (int(figure) for figure in figures.split())

    assert weights > 100e9
    assert peak > 3 * weights  # Adam's two moments beside them
    assert resident < 1.5 * 2**30
    assert "block_0_up" in layers
