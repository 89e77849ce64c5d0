from __future__ import annotations

import io
import json
import os
import struct

import pytest
from PIL import Image

from oomdoctor.inventory import records, tfds, zarr
from oomdoctor.inventory.parts import Unreadable


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def zarr2(shape=(10, 4, 4), dtype="<f4"):
    return {"zarr_format": 2, "shape": list(shape), "chunks": [1, 4, 4], "dtype": dtype}


def zarr3(shape=(10, 4, 4), dtype="float32"):
    return {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": dtype}


@pytest.mark.parametrize(("name", "data"), [(".zarray", zarr2()), ("zarr.json", zarr3())])
def test_a_zarr_array_is_one_part(tmp_path, name, data):
    write_json(tmp_path / name, data)
    (part,) = zarr.read_folder(str(tmp_path))
    assert (part.format, part.kind, part.name) == ("zarr", "array", "")
    assert (part.samples, part.shape, part.dtype, part.elements) == (10, (4, 4), "float32", 160)


def test_the_arrays_of_a_zarr_group_are_named_by_their_folders(tmp_path):
    write_json(tmp_path / ".zgroup", {"zarr_format": 2})
    write_json(tmp_path / "x" / ".zarray", zarr2())
    (tmp_path / "x" / "0").mkdir()
    write_json(tmp_path / "inner" / ".zgroup", {"zarr_format": 2})
    write_json(tmp_path / "inner" / "y" / ".zarray", zarr2((10,), "|u1"))
    parts = list(zarr.read_folder(str(tmp_path)))
    assert [(part.name, part.dtype) for part in parts] == [("inner/y", "uint8"), ("x", "float32")]


def test_zarr_elements_without_a_plain_name_are_sized_in_bytes_or_noted(tmp_path):
    write_json(tmp_path / "zarr.json", {"zarr_format": 3, "node_type": "group"})
    write_json(tmp_path / "a" / ".zarray", zarr2((5,), [["f", "<f4"], ["g", "<i8"]]))
    write_json(tmp_path / "b" / "zarr.json", zarr3((5,), "r24"))
    write_json(tmp_path / "c" / ".zarray", zarr2((5,), "|O"))
    write_json(tmp_path / "d" / "zarr.json", zarr3((5,), "string"))
    parts = list(zarr.read_folder(str(tmp_path)))
    assert [part.memory_bytes for part in parts] == [60, 15, None, None]
    assert [part.elements for part in parts] == [5, 5, None, None]
    assert parts[2].note == parts[3].note == "objects: cannot be sized safely"


@pytest.mark.parametrize(
    "data",
    [
        zarr2((-1,)),
        zarr2(("x",)),
        zarr2((True,)),
        zarr2((10**18, 10**18)),
        zarr2((10**17, 0)),
        zarr2(dtype="__import__"),
        zarr2(dtype=None),
        {"zarr_format": 2},
        {"zarr_format": 2, "shape": 5, "dtype": "<f4"},
        [],
        "text",
    ],
)
def test_a_false_description_of_an_array_is_refused(tmp_path, data):
    write_json(tmp_path / ".zarray", data)
    with pytest.raises(Unreadable):
        list(zarr.read_folder(str(tmp_path)))


@pytest.mark.parametrize("name", [".zarray", "zarr.json"])
@pytest.mark.parametrize("text", ["", "{", "\0", "[" * 100_000, '{"shape": [' + "9" * 5000 + "]}"])
def test_a_broken_description_of_an_array_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(Unreadable):
        list(zarr.read_folder(str(tmp_path)))


def test_a_description_of_a_gigabyte_is_refused_unread(tmp_path, hostile):
    (tmp_path / ".zarray").touch()
    os.truncate(tmp_path / ".zarray", 2**30)
    with hostile.memory_below(40 * 2**20), pytest.raises(Unreadable, match="larger than 16 MiB"):
        list(zarr.read_folder(str(tmp_path)))


def test_links_and_endless_depth_in_a_zarr_folder_are_not_followed(tmp_path):
    write_json(tmp_path / ".zgroup", {"zarr_format": 2})
    (tmp_path / "loop").symlink_to(tmp_path)
    deep = tmp_path
    for _ in range(40):
        deep = deep / "d"
    write_json(deep / ".zarray", zarr2())
    with pytest.raises(Unreadable, match="without arrays"):
        list(zarr.read_folder(str(tmp_path)))


def class_name(kind):
    return f"tensorflow_datasets.core.features.{kind}"


def image(*shape, dtype="uint8"):
    details = {"shape": {"dimensions": [str(size) for size in shape]}, "dtype": dtype}
    return {"pythonClassName": class_name("image_feature.Image"), "image": details}


LABEL = {"pythonClassName": class_name("ClassLabel"), "classLabel": {"numClasses": "10"}}
TEXT = {"pythonClassName": class_name("text_feature.Text"), "text": {}}


def tensor(*shape, dtype="float32"):
    details = {"shape": {"dimensions": [str(n) for n in shape]} if shape else {}, "dtype": dtype}
    return {"pythonClassName": class_name("tensor_feature.Tensor"), "tensor": details}


def sequence(feature, length="-1"):
    details = {"feature": feature, "length": length}
    return {"pythonClassName": class_name("Sequence"), "sequence": details}


def features_of(**features):
    return {"pythonClassName": class_name("FeaturesDict"), "featuresDict": {"features": features}}


def write_tfds(folder, features, lengths=("30", "30")):
    splits = [
        {"name": "train", "numBytes": "100", "shardLengths": list(lengths)},
        {"name": "test", "numBytes": "10", "shardLengths": ["10"]},
    ]
    write_json(folder / "dataset_info.json", {"name": "mine", "splits": splits})
    write_json(folder / "features.json", features)
    return str(folder)


def test_each_split_of_a_tfds_folder_is_a_part(tmp_path):
    folder = write_tfds(tmp_path, features_of(image=image(28, 28, 1), label=LABEL))
    train, test = tfds.read_folder(folder)
    assert (train.name, train.samples, test.name, test.samples) == ("train", 60, "test", 10)
    assert (train.format, train.kind, train.is_exact) == ("tfds", "record", True)
    assert (train.shape, train.dtype, train.elements) == ((28, 28, 1), "uint8", 60 * 784)
    assert train.memory_bytes == 60 * (784 + 8)


def test_nested_features_and_sequences_multiply(tmp_path):
    steps = sequence(features_of(frame=image(4, 4, 3), action=tensor(7)), "5")
    train, _ = tfds.read_folder(write_tfds(tmp_path, features_of(steps=steps)))
    assert train.shape == (5, 4, 4, 3)
    assert train.memory_bytes == 60 * (5 * 48 + 5 * 7 * 4)


def test_the_older_description_inside_a_text_is_read(tmp_path):
    inner = {"features": {"image": image(8, 8, 3), "label": LABEL}}
    older = {"type": class_name("FeaturesDict"), "content": json.dumps(inner)}
    train, _ = tfds.read_folder(write_tfds(tmp_path, older))
    assert (train.shape, train.elements) == ((8, 8, 3), 60 * 192)


def nested(tag, data):
    """A protobuf field of at least 128 bytes, so that its length takes two of them."""
    return tag + bytes((len(data) & 127 | 128, len(data) >> 7)) + data


def record_of_picture(height, width):
    out = io.BytesIO()
    Image.effect_noise((width, height), 90).convert("RGB").save(out, "PNG")
    feature = nested(b"\x0a", nested(b"\x0a", out.getvalue()))
    data = nested(b"\x0a", nested(b"\x0a", b"\x0a\x05image" + nested(b"\x12", feature)))
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<L", records._masked_crc(length)) + data + bytes(4)


def test_open_shapes_are_told_by_the_first_shard(tmp_path):
    folder = write_tfds(tmp_path, features_of(image=image(-1, -1, 3), label=LABEL))
    shard = record_of_picture(10, 10) + record_of_picture(20, 10)
    (tmp_path / "mine-train.tfrecord-00000-of-00002").write_bytes(shard)
    train, test = tfds.read_folder(folder)
    assert (train.elements, train.dtype, train.is_exact) == (60 * 450, "uint8", False)
    assert (train.low_elements, train.high_elements) == (60 * 300, 60 * 600)
    assert (test.samples, test.elements, test.note) == (10, None, tfds.OPEN_NOTE)


def test_text_alone_is_told_by_the_first_shard_or_not_at_all(tmp_path):
    train, _ = tfds.read_folder(write_tfds(tmp_path, features_of(text=TEXT)))
    assert (train.samples, train.elements, train.note) == (60, None, tfds.OPEN_NOTE)


@pytest.mark.parametrize("lengths", [["-5"], ["x"], [1.5], [None], ["9" * 30], [10**17]])
def test_a_shard_of_no_true_length_is_refused(tmp_path, lengths):
    folder = write_tfds(tmp_path, features_of(image=image(28, 28, 1)), lengths)
    with pytest.raises(Unreadable):
        list(tfds.read_folder(folder))


@pytest.mark.parametrize(
    "features",
    [
        [],
        {"featuresDict": {"features": {"image": 5}}},
        features_of(image=image(10**9, 10**9, 3)),
        features_of(image=image(28, "x", 1)),
        features_of(image={"image": {"shape": {"dimensions": 5}}}),
    ],
)
def test_a_false_description_of_features_is_refused(tmp_path, features):
    with pytest.raises(Unreadable):
        list(tfds.read_folder(write_tfds(tmp_path, features)))


def test_features_nested_without_end_are_refused(tmp_path):
    features = LABEL
    for _ in range(50):
        features = sequence(features, "1")
    with pytest.raises(Unreadable):
        list(tfds.read_folder(write_tfds(tmp_path, features)))
    (tmp_path / "features.json").write_text('{"sequence": ' * 100_000)
    with pytest.raises(Unreadable):
        list(tfds.read_folder(str(tmp_path)))
