"""Memory put in order: the variables side by side again, with their values."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.measure.runner import Runner
from oomdoctor.measure.settle import copied, layouts_matter, settle
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(os.name != "posix", reason="POSIX only")]

WANDERING = """
import json
from oomdoctor.measure.devices import take_one_region
_, (base, size) = take_one_region(256 * 2**20)
import keras, tensorflow as tf
from oomdoctor.measure.names import variable_places
from oomdoctor.measure.settle import copied, layouts_matter, settle
from oomdoctor.measure.spec import ModelSpec
from oomdoctor.measure.step import Step

layers = [keras.layers.Dense(512, "relu") for _ in range(4)]
model = keras.Sequential([keras.Input((512,)), *layers, keras.layers.Dense(4)])
model.compile("adam", "mse")
step = Step(model, ModelSpec(""), "train")

def extent():
    places = variable_places(model)
    return max(at + long - base for at, long in places if base <= at < base + size)

found = {"first": extent()}
in_the_way = tf.raw_ops.Empty(shape=[100 * 2**20], dtype=tf.uint8)
for variable in step.function(8).graph.variables:  # as an update does, most of the time
    variable.assign(tf.raw_ops.DeepCopy(x=variable.read_value()))
del in_the_way
found["wandered"] = extent()
settle(step.function(8))
found["settled"] = extent()
print(json.dumps(found))
"""


def test_layouts_matter_where_variables_are_large_and_are_the_same_each_time():
    assert layouts_matter(50 * MIB, 300 * MIB)
    assert not layouts_matter(20 * MIB, 300 * MIB)
    assert not layouts_matter(20 * MIB, None)
    items = list(range(20))
    assert copied(items, 0) == []
    assert copied(items, 1) == copied(items, 1) != copied(items, 2)
    assert len(set(copied(items, 1))) == 10


def test_values_are_kept_to_the_byte_and_training_goes_on():
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

    settle(step.get_concrete_function(data))
    settle(step.get_concrete_function(data), layout=1)

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

    assert found["wandered"] > 5 * found["first"]
    assert found["settled"] < 1.3 * found["first"]


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
