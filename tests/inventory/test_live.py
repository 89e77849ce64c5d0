from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oomdoctor.errors import UsageError
from oomdoctor.inventory.live import describe_live, is_live


def groups_of(target, **more):
    inventory, _ = describe_live(target, **more)
    return inventory.groups


def test_paths_are_not_live_objects():
    assert not is_live("data")
    assert not is_live(Path("data"))
    assert is_live(np.zeros(3))


def test_an_array_is_one_group_with_its_first_axis_as_samples():
    inventory, stages = describe_live(np.zeros((10, 4, 4, 3), "float32"), name="images")
    (group,) = inventory.groups
    assert (group.name, group.format, group.samples, group.elements) == ("images", "array", 10, 480)
    assert (group.dtype, group.files, group.stored_bytes) == ("float32", 0, 0)
    assert group.shapes.largest == (4, 4, 3)
    assert group.shapes.distinct == 1
    assert inventory.samples == 10
    assert stages == ()


def test_a_memory_map_tells_its_file_and_says_that_fit_copies_it(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((5, 8), "float32"))
    (group,) = groups_of(np.load(path, mmap_mode="r"))
    assert group.format == "memmap"
    assert group.stored_bytes == path.stat().st_size
    assert "takes no RAM until it is read" in group.notes[0]


def test_a_view_of_a_memory_map_is_still_mapped(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((5, 8), "float32"))
    (group,) = groups_of(np.asarray(np.load(path, mmap_mode="r"))[1:])
    assert (group.format, group.samples) == ("memmap", 4)


def test_in_a_pair_the_second_is_targets_and_adds_no_samples():
    inventory, _ = describe_live((np.zeros((10, 3)), np.zeros(10, "int64")))
    assert [(group.name, group.role) for group in inventory.groups] == [
        ("x", "inputs"),
        ("y", "targets"),
    ]
    assert inventory.samples == 10


def test_a_dict_knows_its_targets_by_name_in_any_order():
    inventory, _ = describe_live({"labels": np.zeros(10), "pixels": np.zeros((10, 9))})
    roles = {group.name: group.role for group in inventory.groups}
    assert roles == {"pixels": "inputs", "labels": "targets"}


def test_a_second_input_takes_memory_and_adds_no_samples():
    inventory, _ = describe_live({"left": np.zeros((10, 9)), "right": np.zeros((10, 9))})
    assert inventory.samples == 10
    assert [group.elements for group in inventory.groups] == [90, 90]
    assert inventory.groups[1].notes == ("one more input beside the first: adds no samples",)


def test_arrays_of_different_lengths_are_all_inputs():
    inventory, _ = describe_live({"train": np.zeros((10, 9)), "val": np.zeros((4, 9))})
    assert inventory.samples == 14


def test_what_load_data_returns_is_split_into_train_and_test():
    train = (np.zeros((10, 9)), np.zeros(10))
    test = (np.zeros((4, 9)), np.zeros(4))
    inventory, _ = describe_live((train, test))
    assert [(group.name, group.split, group.role) for group in inventory.groups] == [
        ("x_train", "train", "inputs"),
        ("y_train", "train", "targets"),
        ("x_test", "test", "inputs"),
        ("y_test", "test", "targets"),
    ]


def test_a_list_of_pictures_is_one_group_whose_largest_is_told():
    (group,) = groups_of([np.zeros((size, 2), "uint8") for size in (5, 9, 3, 3)])
    assert (group.samples, group.elements, group.dtype) == (4, 40, "uint8")
    assert group.shapes.largest == (9, 2)
    assert group.shapes.most_common == (3, 2)
    assert group.shapes.distinct == 3


def test_a_list_of_an_array_and_labels_is_a_pair():
    roles = [group.role for group in groups_of([np.zeros((10, 4, 4)), np.zeros(10)])]
    assert roles == ["inputs", "targets"]


def test_an_object_array_is_not_sized():
    array = np.empty(3, object)
    (group,) = groups_of(array)
    assert (group.dtype, group.memory_bytes) == (None, None)
    assert group.notes == ("object array: cannot be sized safely",)


def test_an_array_of_fixed_strings_is_sized_by_its_bytes():
    array = np.array(["a", "bcd"])
    (group,) = groups_of(array)
    assert (group.dtype, group.memory_bytes) == (None, array.nbytes)


def test_a_frame_counts_the_strings_it_holds():
    frame = pd.DataFrame({"size": np.zeros(100), "name": ["x" * 1000] * 100}, dtype=object)
    (group,) = groups_of(frame)
    assert (group.format, group.kind, group.samples, group.elements) == (
        "frame",
        "table",
        100,
        200,
    )
    assert group.memory_bytes == frame.memory_usage(deep=True).sum()
    assert group.memory_bytes > 100_000
    assert group.dtype is None
    assert group.notes == ("2 columns without a fixed width, sized by what they hold now",)


def test_a_frame_of_one_dtype_has_that_dtype():
    (group,) = groups_of(pd.DataFrame(np.zeros((7, 3), "float32")))
    assert (group.dtype, group.shapes.median) == ("float32", (3,))


def test_a_frame_and_a_series_are_inputs_and_targets():
    groups = groups_of((pd.DataFrame({"a": [1, 2]}), pd.Series([0, 1])))
    assert [group.role for group in groups] == ["inputs", "targets"]


class SparseLike:
    """Stands in for scipy's csr_matrix, which need not be installed."""

    shape = (1000, 500)
    dtype = np.dtype("float32")
    nnz = 2
    data = np.zeros(2, "float32")
    indices = np.zeros(2, "int32")
    indptr = np.zeros(1001, "int32")


SparseLike.__module__ = "scipy.sparse._csr"


def test_a_sparse_matrix_says_what_making_it_dense_costs():
    (group,) = groups_of(SparseLike())
    assert group.memory_bytes == 8 + 8 + 4004
    assert "2000000 bytes" in group.notes[0]


class Batches:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        raise AssertionError("must not be read")


def test_a_sequence_is_asked_for_its_length_and_never_read():
    (group,) = groups_of(Batches())
    assert (group.samples, group.elements) == (None, None)
    assert group.notes == ("12 items, none of them read: their size is not known",)


@pytest.mark.parametrize("target", [3, object(), {1, 2}, (value for value in ()), None])
def test_anything_else_is_refused_with_what_is_accepted(target):
    with pytest.raises(UsageError, match=r"NumPy array.*tf\.data\.Dataset"):
        describe_live(target)


def test_a_list_of_numbers_is_refused():
    with pytest.raises(UsageError, match=r"builtins\.int"):
        describe_live([1, 2, 3, 4, 5])


def test_an_empty_list_is_refused():
    with pytest.raises(UsageError, match="empty"):
        describe_live([])


def test_a_path_is_refused():
    with pytest.raises(UsageError, match="scan it"):
        describe_live("data/")


@pytest.mark.tensorflow
def test_tensors_are_arrays_and_string_tensors_are_sized():
    import tensorflow as tf

    (group,) = groups_of(tf.zeros((6, 2, 2)))
    assert (group.samples, group.elements, group.dtype) == (6, 24, "float32")
    (words,) = groups_of(tf.constant(["ab", "cde"]))
    assert (words.dtype, words.memory_bytes) == (None, 2 * 24 + 5)


@pytest.mark.tensorflow
def test_a_dataset_gives_a_group_per_tensor_and_its_stages():
    import tensorflow as tf

    x, y = np.zeros((100, 4, 4, 3), "float32"), np.zeros(100, "int64")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(32).repeat()
    inventory, stages = describe_live(dataset)
    inputs, targets = inventory.groups
    assert (inputs.name, inputs.samples, inputs.elements) == ("x", 100, 4800)
    assert (targets.name, targets.role, targets.elements) == ("y", "targets", 100)
    assert inputs.notes == ("repeats without end: counted for one pass",)
    assert [stage.kind for stage in stages] == ["tensors", "batch", "repeat"]


@pytest.mark.tensorflow
def test_a_keras_pydataset_is_not_read():
    import keras

    class Data(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            raise AssertionError("must not be read")

    (group,) = groups_of(Data())
    assert group.samples is None
