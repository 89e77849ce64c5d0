"""The largest samples of what `fit` will be given."""

import numpy as np
import pytest

from oomdoctor.errors import InputError, UsageError
from oomdoctor.model.samples import read_samples


def leaf(shape, dtype="float32", below=None):
    return ["leaf", list(shape), dtype, below]


def test_arrays_tell_everything_and_lie_in_memory_whole():
    x, y = np.zeros((10, 4, 3)), np.array([0, 6, 1, 2, 0, 0, 0, 0, 0, 0])
    samples = read_samples((x, y))
    assert samples.tree == ["tuple", leaf((4, 3)), leaf((), "int64", 7)]
    assert samples.count == 10
    assert samples.held_bytes == 10 * 4 * 3 * 4 + 10 * 8


def test_dicts_and_lists_keep_their_structure():
    x = {"ids": np.zeros((5, 6), "int32"), "name": np.array(["a"] * 5, dtype=object)}
    samples = read_samples((x, [np.zeros((5, 1), "float32")]))
    ids, names = leaf((6,), "int32", 1), leaf((), "string")
    assert samples.tree == ["tuple", ["dict", {"ids": ids, "name": names}], ["list", leaf((1,))]]


def test_arrays_of_different_length_are_refused():
    with pytest.raises(UsageError, match="differ in length"):
        read_samples((np.zeros((3, 1)), np.zeros((4, 1))))


def batches():
    for length in (3, 9, 5):
        yield np.zeros((2, length, 4), "float32"), np.zeros((2,), "int32")


def test_the_worst_batch_counts_and_not_the_first():
    samples = read_samples(batches)
    assert samples.tree == ["tuple", leaf((9, 4)), leaf((), "int32", 1)]
    assert samples.held_bytes == 0


def test_a_generator_is_not_consumed():
    generator = batches()
    with pytest.raises(UsageError, match=r"data=batches, not data=batches\(\)"):
        read_samples(generator)
    assert next(generator)[0].shape == (2, 3, 4)


def test_empty_data_and_other_things_are_refused():
    with pytest.raises(InputError, match="holds no batch"):
        read_samples(lambda: iter(()))
    with pytest.raises(UsageError, match="data= holds a int"):
        read_samples((3, 4))
    with pytest.raises(UsageError, match="differ in structure"):
        read_samples(lambda: iter([(np.zeros((1, 2)),), np.zeros((1, 2))]))


def test_reading_ends_in_time_and_says_so():
    def endless():
        while True:
            yield np.zeros((2, 3))

    samples = read_samples(endless, seconds=0)
    assert samples.notes == ("The largest samples of 1 batches were taken.",)


class Pictures:
    """Like a PyDataset: the largest batch lies in the middle."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return 9

    def __getitem__(self, index):
        self.read.append(index)
        side = 64 if index == 4 else 16
        return np.zeros((2, side, side, 3)), np.zeros((2, 1))


def test_a_sequence_is_read_from_both_ends_and_the_middle():
    pictures = Pictures()
    samples = read_samples(pictures)
    assert samples.tree[1] == leaf((64, 64, 3))
    assert pictures.read[:3] == [0, 8, 4]
    assert sorted(pictures.read) == list(range(9))


@pytest.mark.tensorflow
def test_a_pipeline_with_known_shapes_is_not_run():
    import tensorflow as tf

    def fails(x):
        raise AssertionError("was run")

    source = tf.data.Dataset.range(10).map(
        lambda x: tf.ensure_shape(tf.py_function(fails, [x], tf.float32), (7,))
    )
    samples = read_samples(source.batch(5))
    assert samples.tree == leaf((7,))
    assert samples.count is None
    assert read_samples(source.batch(5, drop_remainder=True)).count == 10


@pytest.mark.tensorflow
def test_padded_and_ragged_batches_count_at_their_longest():
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3, 4, 5], [6, 7]]))
    assert read_samples(rows.ragged_batch(2)).tree == ["ragged", [4], "int32", 8, 1]
    dense = rows.map(lambda row: tf.ensure_shape(row, [None]))
    assert read_samples(dense.padded_batch(1)).tree == leaf((4,), "int32", 8)


@pytest.mark.tensorflow
def test_a_dataset_that_is_not_batched_is_refused():
    import tensorflow as tf

    with pytest.raises(UsageError, match=r"not batched.*batch\(1\)"):
        read_samples(tf.data.Dataset.range(3))
