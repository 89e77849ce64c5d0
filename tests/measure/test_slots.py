"""Slots of an optimizer: those of one shape share their first value, as Keras creates them."""

import numpy as np
import pytest

from oomdoctor.measure.names import address_of
from oomdoctor.measure.slots import build_slots, share_equal

pytestmark = pytest.mark.tensorflow


def model_with(optimizer):
    import keras

    model = keras.Sequential([keras.Input((6,)), *[keras.layers.Dense(6) for _ in range(3)]])
    model.compile(optimizer, "mse")
    return model


def shared(optimizer):
    """Return how many slots lie in each buffer, most first."""
    places = [address_of(v.value.read_value()) for v in optimizer.variables if v.shape]
    return sorted((places.count(place) for place in set(places)), reverse=True)


@pytest.mark.parametrize("name", ["adam", "adagrad", "rmsprop", "adamw", "ftrl"])
def test_slots_lie_as_inside_a_trace_and_hold_the_same(name):
    import keras
    import tensorflow as tf

    ours, theirs = (model_with(keras.optimizers.get(name)) for _ in range(2))

    build_slots(ours.optimizer, ours.trainable_variables)
    tf.function(lambda: theirs.optimizer.build(theirs.trainable_variables))()

    assert shared(ours.optimizer) == shared(theirs.optimizer)
    assert max(shared(ours.optimizer)) >= 3
    for one, other in zip(ours.optimizer.variables, theirs.optimizer.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_an_update_gives_each_slot_its_own_buffer():
    model = model_with("adam")
    build_slots(model.optimizer, model.trainable_variables)

    model.fit(np.ones((4, 6)), np.zeros((4, 6)), verbose=0)

    assert max(shared(model.optimizer)) == 1
    assert int(model.optimizer.iterations) == 1


def test_what_differs_is_left_alone():
    import tensorflow as tf

    values = [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [3.0, 3.0]]
    variables = [tf.Variable(value) for value in values]
    empty, words, counter = tf.Variable(tf.zeros([0])), tf.Variable(["a"]), tf.Variable([1, 1])

    share_equal([*variables, empty, words, counter])

    assert [variable.numpy().tolist() for variable in variables] == values
    places = [address_of(variable.read_value()) for variable in variables]
    assert places[1] == places[2]
    assert len(set(places)) == 3
    assert words.numpy().tolist() == [b"a"]
    assert counter.numpy().tolist() == [1, 1]
