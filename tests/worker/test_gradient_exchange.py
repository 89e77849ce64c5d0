"""One replica is measured as if it exchanged gradients with others."""

import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.runner.runner import Runner
from oomdoctor.units import MIB
from oomdoctor.worker.messages import Fit

pytestmark = pytest.mark.tensorflow

MIRRORED = """
import os
from oomdoctor.allocator import settings_for_the_cpu
os.environ.update(settings_for_the_cpu(), TF_CPP_MIN_LOG_LEVEL="3", TF_NUM_INTEROP_THREADS="1")
import numpy as np
import tensorflow as tf
from measured_models import heavy_weights
import keras

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
# NCCL needs GPUs; this packs and unpacks gradients as it does.
exchange = tf.distribute.HierarchicalCopyAllReduce(num_packs=1)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=exchange)
with strategy.scope():
    model = heavy_weights()

class AfterTheFirst(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            tf.config.experimental.reset_memory_stats("CPU:0")

x, y = np.zeros((192, 1024), "float32"), np.zeros((192, 1), "float32")
model.fit(x, y, batch_size=64, verbose=0, callbacks=[AfterTheFirst()])
print("both", tf.config.experimental.get_memory_info("CPU:0")["peak"])
"""


def run(spec, batch_size):
    with Runner(spec, threads=1) as runner:
        return runner.fit(Fit(batch_size))


@pytest.mark.heavy
def test_a_replica_takes_what_it_takes_under_a_real_strategy(spec_of):
    alone = run(spec_of("heavy_weights"), 32)
    shared = run(spec_of("heavy_weights", replicas=2), 64)
    result = subprocess.run(
        [sys.executable, "-c", MIRRORED],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert result.returncode == 0, result.stderr[-3000:]
    real = int(result.stdout.rpartition("both ")[2]) / 2
    # All gradients exist at once, packed and unpacked; alone, most are forgotten before the last
    # one exists, but which ones is chance.
    assert shared.peak_bytes >= shared.held_bytes + 2 * 16 * MIB
    assert alone.peak_bytes < shared.peak_bytes
    assert any("with the packing of gradients" in note for note in shared.notes)
    # Two replicas are not at their peak at the same moment, so half of both is a little less.
    assert shared.peak_bytes == pytest.approx(real, rel=0.25)


def test_gradients_come_out_as_they_went_in():
    import numpy as np
    import tensorflow as tf

    from oomdoctor.worker.gradient_exchange import _packed_and_unpacked

    sparse = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3]), tf.constant([9, 2]))
    dense = [tf.reshape(tf.range(6.0), [2, 3]), tf.constant(7.0), tf.constant([1, 2], tf.float16)]
    pairs = [(dense[0], "a"), (None, "b"), (sparse, "c"), (dense[1], "d"), (dense[2], "e")]

    found = _packed_and_unpacked(iter(pairs))

    assert [variable for _, variable in found] == ["a", "b", "c", "d", "e"]
    assert found[1][0] is None
    assert found[2][0] is sparse
    for index, gradient in zip((0, 3, 4), dense, strict=True):
        np.testing.assert_array_equal(found[index][0], gradient)
        assert found[index][0].dtype == gradient.dtype


def test_a_model_without_an_optimizer_says_that_nothing_is_packed():
    from oomdoctor.worker.gradient_exchange import exchange_gradients

    assert exchange_gradients(object()) is False


def test_an_estimate_of_a_replica_holds_a_packed_copy_of_the_gradients(monkeypatch):
    import oomdoctor

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import measured_models

    model = measured_models.heavy_weights()
    alone = oomdoctor.estimate_memory(model, batch_size=32)
    shared = oomdoctor.estimate_memory(model, batch_size=64, replicas=2)

    gradients = 16 * MIB
    assert shared.batch_size == 32
    assert shared.peak_bytes >= alone.peak_bytes + gradients / 2
    assert "One of 2 replicas, with 32 of the 64 samples" in shared.notes[0]
