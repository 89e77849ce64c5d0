"""The same samples in smaller batches, whatever `fit` is fed with."""

import numpy as np
import pytest

from oomdoctor.errors import UsageError
from oomdoctor.rescue.feeds import feed_of

pytestmark = pytest.mark.tensorflow


def numbered(count, *shape):
    return np.broadcast_to(np.arange(count, dtype="float32").reshape(-1, *(1 for _ in shape)),
                           (count, *shape)).copy()  # fmt: skip


def py_dataset(samples, batch_size, *, lengths=None, as_dict=False, count=None):
    """Return a `PyDataset` of numbered samples, which counts its epochs."""
    import keras

    class Numbered(keras.utils.PyDataset):
        epochs = 0

        @property
        def num_batches(self):
            return None if count == "endless" else -(-samples // batch_size)

        def __getitem__(self, index):
            first = index * batch_size % samples
            numbers = np.arange(first, min(first + batch_size, samples), dtype="float32")
            length = lengths[index] if lengths else 3
            x = np.repeat(numbers[:, None], length, axis=1)
            return {"x": x} if as_dict else (x, numbers)

        def on_epoch_end(self):
            self.epochs += 1

    return Numbered()


def targets_of(dataset):
    return [batch[1].numpy().tolist() for batch in dataset]


def test_arrays_are_cut_by_fit_itself():
    x, y = numbered(10, 2), numbered(10)
    feed = feed_of(x, y, 8, shuffle=True)

    assert feed.batch_size == 8
    assert feed.in_parts(4)["batch_size"] == 2
    assert feed_of([x, x], y, None, shuffle=True).batch_size == 32
    assert feed_of({"a": x}, y, None, shuffle=True).batch_size == 32


def test_a_pipeline_is_batched_anew():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((numbered(10, 2), numbered(10))).batch(4)
    feed = feed_of(dataset, None, None, shuffle=True)

    assert feed.batch_size == 4
    assert feed.in_parts(1)["x"] is dataset
    assert targets_of(feed.in_parts(2)["x"]) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_a_py_dataset_is_batched_anew_and_told_of_each_epoch():
    dataset = py_dataset(10, 4)
    feed = feed_of(dataset, None, None, shuffle=False)

    assert feed.batch_size == 4
    assert feed.in_parts(1)["x"] is dataset
    smaller = feed.in_parts(2)["x"]
    for epoch in (1, 2):
        assert targets_of(smaller) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
        assert dataset.epochs == epoch


def test_a_py_dataset_is_shuffled_by_whole_batches_as_fit_does():
    feed = feed_of(py_dataset(400, 4), None, None, shuffle=True)

    found = [value for batch in targets_of(feed.in_parts(2)["x"]) for value in batch]

    assert sorted(found) == list(range(400))
    assert found != sorted(found)
    assert all(found[i + 1] == found[i] + 1 for i in range(0, 400, 2))


def test_a_py_dataset_may_have_dicts_lengths_that_change_and_no_end():
    named = feed_of(py_dataset(8, 4, as_dict=True), None, None, shuffle=False)
    assert named.in_parts(2)["x"].element_spec["x"].shape.as_list() == [None, 3]

    changing = feed_of(py_dataset(8, 4, lengths=[3, 5]), None, None, shuffle=False)
    x, y = changing.in_parts(2)["x"].element_spec
    assert (x.shape.as_list(), y.shape.as_list()) == ([None, None], [None])
    assert [b[0].shape[1] for b in changing.in_parts(2)["x"]] == [3, 3, 5, 5]

    endless = feed_of(py_dataset(8, 4, count="endless"), None, None, shuffle=True)
    assert len(targets_of(endless.in_parts(2)["x"].take(50))) == 50


def test_what_is_wrong_is_said():
    import tensorflow as tf

    with pytest.raises(UsageError, match="cannot be split"):
        feed_of((x for x in ()), None, None, shuffle=True)
    with pytest.raises(UsageError, match="leave out batch_size="):
        feed_of(py_dataset(8, 4), None, 4, shuffle=True)
    with pytest.raises(UsageError, match="leave out y="):
        feed_of(py_dataset(8, 4), [1], None, shuffle=True)
    with pytest.raises(UsageError, match="empty"):
        feed_of(
            tf.data.Dataset.from_tensor_slices([1.0]).batch(1).take(0), None, None, shuffle=True
        )
    with pytest.raises(UsageError, match="empty"):
        feed_of(py_dataset(0, 4), None, None, shuffle=True)
