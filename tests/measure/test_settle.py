"""Memory put in order: the variables side by side again, with their values."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.measure.runner import Runner
from oomdoctor.measure.settle import settle, start_of
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(os.name != "posix", reason="POSIX only")]

WANDERING = """
import json
from oomdoctor.measure.devices import take_one_region
regions = take_one_region(256 * 2**20)
_, (base, size) = regions
import keras, tensorflow as tf
from oomdoctor.measure.names import address_of, variable_places
from oomdoctor.measure.settle import brought_into, lies_in, settle, start_of
from oomdoctor.measure.spec import ModelSpec
from oomdoctor.measure.step import Step

layers = [keras.layers.Dense(1024, "relu") for _ in range(3)]
model = keras.Sequential([keras.Input((1024,)), *layers, keras.layers.Dense(4)])
model.compile("adam", "mse")
step = Step(model, ModelSpec(""), "train")

def extent():
    places = variable_places(model)
    return max(at + long - base for at, long in places if base <= at < base + size)

def layout():
    return [
        (start.address - base, len(start.variables))
        for start in start_of(step.function(8))
        if base <= start.address < base + size and start.value.nbytes >= 2**20
    ]

def outside_of(starts):
    arrays = [start for start in starts if start.value.ndim]
    return sum(not lies_in(regions, start.address) for start in arrays)

starts = start_of(step.function(8))
found = {"first": extent(), "created": layout()}
in_the_way = tf.raw_ops.Empty(shape=[100 * 2**20], dtype=tf.uint8)
for variable in step.function(8).graph.variables:  # as an update does, most of the time
    variable.assign(tf.raw_ops.DeepCopy(x=variable.read_value()))
del in_the_way
found["wandered"] = extent()
found["moved"] = layout()
outside = 0
for _ in range(10):  # where an array comes to lie outside of the pool is chance
    settle(starts, regions)
    outside += outside_of(start_of(step.function(8)))
found["outside"] = outside
found["settled"] = extent()
found["restored"] = layout()
bias = model.trainable_variables[1].value  # as one that is read from a file
kept = []
for _ in range(200):  # all are held, so that each lies elsewhere, until one is aligned
    kept.append(tf.constant(bias.numpy()))
    if not lies_in(regions, address_of(kept[-1])):
        bias.assign(kept[-1])
        break
found["loaded"] = outside_of(start_of(step.function(8)))
found["brought"] = outside_of(brought_into(regions, start_of(step.function(8))))
print(json.dumps(found))
"""


def test_values_are_put_back_to_the_byte_and_training_goes_on():
    import keras
    import numpy as np
    import tensorflow as tf

    inputs = keras.Input((6,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(8, dtype="mixed_float16")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.5)(x)))
    model.compile("adam", "mse")
    counter = tf.Variable([[1, 2], [3, 4]], dtype=tf.int64)
    text = tf.Variable("words")
    data = (tf.random.normal([4, 6]), tf.random.normal([4, 1]))

    @tf.function
    def step(batch):
        counter.assign_add(counter)
        text.assign(text)
        return model.train_step(batch)

    step(data)
    variables = [*model.variables, *model.optimizer.variables]
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in variables]

    starts = start_of(step.get_concrete_function(data))
    step(data)
    settle(starts, [(0, 1 << 62)])

    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), value)
    assert counter.numpy().tolist() == [[2, 4], [6, 8]]
    assert text.numpy() == b"words"
    step(data)
    assert counter.numpy().tolist() == [[4, 8], [12, 16]]


def test_variables_that_wandered_lie_side_by_side_again():
    environ = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        **settings_for_the_cpu(256 * MIB),
    }
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", WANDERING],
        env=environ,
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    found = json.loads(out.splitlines()[-1])

    assert found["wandered"] > 3 * found["first"]
    assert found["settled"] < 1.3 * found["first"]
    # Slots of one shape share their zeros until the first update, where Keras creates them.
    assert max(shared for _, shared in found["created"]) == 6
    assert max(shared for _, shared in found["moved"]) == 1
    assert found["restored"] == found["created"]
    assert found["outside"] == 0
    assert (found["loaded"], found["brought"]) == (1, 0)


def test_a_settled_worker_judges_like_a_fresh_one(spec_of):
    sizes, limit = (400, 700), 64 * MIB
    fresh = []
    for size in sizes:
        with Runner(spec_of("conv"), limit_bytes=limit, spare_bytes=limit) as runner:
            fresh.append(runner.run(size, settled=True))
    with Runner(spec_of("conv"), limit_bytes=limit, spare_bytes=limit) as runner:
        runner.run(900, limit_bytes=2 * limit, record=True)
        settled = [runner.run(size, settled=True) for size in sizes]

    assert [t.outcome for t in settled] == [t.outcome for t in fresh]
    for one, other in zip(settled, fresh, strict=True):
        if one.outcome == "fits":
            assert one.peak_bytes == pytest.approx(other.peak_bytes, rel=0.1)
