"""What code is told about the data's place, from real files: folders, patterns, names inside."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.advise.vocabulary import values


def facts_of(target, **how):
    flat = values(oomdoctor.check(target, ram="8GiB", vram="4GiB", **how).facts)
    return {name.partition(".")[2]: value for name, value in flat.items() if "data." in name}


def put_pictures(folder, *, size=(6, 4), mode="RGB", count=2):
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new(mode, size).save(folder / f"{number}.png")


def test_a_picture_folder_with_splits_is_read_from_the_folder_of_its_training_split(tmp_path):
    for split in ("train", "val", "test"):
        put_pictures(tmp_path / "pets" / split / "cat")

    flat = facts_of(tmp_path / "pets")

    assert flat["train_path"] == str(tmp_path / "pets" / "train")
    assert flat["validation_path"] == str(tmp_path / "pets" / "val")
    assert not flat["is_flat"]


def test_a_picture_folder_without_splits_is_read_from_its_root(tmp_path):
    put_pictures(tmp_path / "cat")

    flat = facts_of(tmp_path)

    assert (flat["train_path"], flat["validation_path"]) == (str(tmp_path), None)
    assert (flat["loaded_height"], flat["loaded_width"]) == (4, 6)


def test_pictures_side_by_side_have_no_classes_and_gray_ones_a_color_mode(tmp_path):
    put_pictures(tmp_path / "scans", mode="L")

    flat = facts_of(tmp_path / "scans")

    assert flat["is_flat"]
    assert flat["color_mode"] == "grayscale"


def test_pictures_are_loaded_at_the_size_asked_for(tmp_path):
    put_pictures(tmp_path / "cat", size=(90, 80))

    flat = facts_of(tmp_path, image_size=(32, 40))

    assert (flat["loaded_height"], flat["loaded_width"]) == (32, 40)


def test_arrays_inside_a_file_are_called_what_they_are_called_there(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["x_train"], file["y_train"] = np.zeros((9, 4, 4)), np.zeros(9)
    np.savez(tmp_path / "set.npz", images=np.zeros((9, 4, 4)))

    inside, alone = facts_of(tmp_path / "set.h5"), facts_of(tmp_path / "set.npz")

    assert inside["file_path"] == str(tmp_path / "set.h5")
    assert (inside["input_key"], inside["label_key"]) == ("x_train", "y_train")
    assert (alone["input_key"], alone["label_key"]) == ("images", None)


def test_labels_have_a_path_only_where_they_have_a_file(tmp_path):
    np.save(tmp_path / "x_train.npy", np.zeros((9, 4)))
    without = facts_of(tmp_path)
    np.save(tmp_path / "y_train.npy", np.zeros(9))
    beside = facts_of(tmp_path)

    assert without["labels_path"] is None
    assert beside["labels_path"] == str(tmp_path / "y_train.npy")
    assert beside["array_path"] == str(tmp_path / "x_train.npy")


def test_tables_side_by_side_are_one_pattern(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("p,label\n1,0\n2,1\n")

    flat = facts_of(tmp_path)

    assert flat["file_path"] == str(tmp_path / "*.csv")
    assert flat["is_pattern"]
    assert facts_of(tmp_path / "a.csv")["file_path"] == str(tmp_path / "a.csv")


def test_an_archive_is_unpacked_to_the_folder_above_its_classes(tmp_path):
    put_pictures(tmp_path / "pack" / "pets" / "cat")
    path = shutil.make_archive(tmp_path / "pets", "zip", tmp_path / "pack")

    flat = facts_of(path)

    assert flat["archive_path"] == path
    assert flat["train_path"] == "extracted/pets"


def test_what_is_in_memory_has_no_path():
    flat = facts_of(np.zeros((9, 4), "float32"))

    assert {flat[name] for name in ("file_path", "array_path", "labels_path", "train_path")} == {
        None
    }
    assert flat["expansion"] == 1


def test_pictures_alone_have_arrays_of_no_bytes(tmp_path):
    put_pictures(tmp_path / "cat")

    flat = facts_of(tmp_path)

    assert flat["largest_array_bytes"] == 0
    assert flat["can_memory_map"] is False
    assert Path(flat["train_path"]).is_dir()
