from __future__ import annotations

import gzip
import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from oomdoctor.inventory import records
from oomdoctor.inventory.records import CUT_NOTE, NOT_EXAMPLES_NOTE, read


def the_part(path):
    (part,) = read(str(path), os.path.getsize(path))
    return part


def frame(data):
    length = struct.pack("<Q", len(data))
    crc = struct.pack("<L", records._masked_crc(length))
    return length + crc + data + b"\0\0\0\0"


def varint(value):
    out = b""
    while value > 127:
        out += bytes((value & 127 | 128,))
        value >>= 7
    return out + bytes((value,))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(**features):
    """An Example of bytes, float arrays and integer lists, as protobuf writes it."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            inner = field(1, field(1, value))
        elif isinstance(value, np.ndarray):
            inner = field(2, field(1, value.astype("<f4").tobytes()))
        else:
            inner = field(3, field(1, b"".join(map(varint, value))))
        entries += field(1, field(1, name.encode()) + field(2, inner))
    return field(1, entries)


def picture(height, width, format="PNG"):
    out = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(out, format)
    return out.getvalue()


def write(path, examples, *, pack=bytes):
    path.write_bytes(pack(b"".join(map(frame, examples))))
    return path


def test_records_of_one_picture_and_a_label_have_the_shape_of_the_picture(tmp_path):
    one = example(image=picture(20, 30), label=[7])
    part = the_part(write(tmp_path / "a.tfrecord", [one] * 100))
    assert (part.format, part.kind, part.samples) == ("tfrecord", "record", 100)
    assert (part.shape, part.dtype, part.elements) == ((20, 30, 3), "uint8", 180_000)
    assert part.memory_bytes == 100 * (20 * 30 * 3 + 8)
    assert (part.is_exact, part.is_compressed, part.note) == (True, False, None)


def test_records_of_numbers_have_their_count(tmp_path):
    path = write(tmp_path / "a.tfrecord", [example(x=np.zeros(300))] * 10)
    part = the_part(path)
    assert (part.samples, part.shape, part.dtype) == (10, (300,), "float32")
    assert (part.elements, part.memory_bytes) == (3000, None)


def test_integers_are_counted_by_value_and_not_by_byte(tmp_path):
    part = the_part(write(tmp_path / "a.tfrecord", [example(x=[1, 300, 2**40, 2**63])] * 3))
    assert (part.shape, part.dtype, part.elements) == ((4,), "int64", 12)


def test_raw_bytes_count_as_uint8(tmp_path):
    part = the_part(write(tmp_path / "a.tfrecord", [example(raw=b"BMW " * 25)] * 3))
    assert (part.shape, part.dtype) == ((100,), "uint8")


def test_ragged_records_give_an_interval_around_the_truth(tmp_path):
    sizes = [(10 + i % 30, 20) for i in range(600)]
    path = write(tmp_path / "a.tfrecord", [example(image=picture(*size)) for size in sizes])
    part = the_part(path)
    truth = sum(height * width * 3 for height, width in sizes)
    assert part.shape is None
    assert not part.is_exact
    assert part.low_elements <= truth <= part.high_elements
    assert part.elements == pytest.approx(truth, rel=0.2)


def test_the_records_looked_at_are_spread_over_the_file(tmp_path):
    first, last = example(x=np.zeros(10)), example(x=np.zeros(1000))
    part = the_part(write(tmp_path / "a.tfrecord", [first] * 500 + [last] * 500))
    assert part.elements == pytest.approx(505_000, rel=0.1)


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_packed_records_are_unpacked_as_they_are_walked(tmp_path, pack):
    one = example(x=np.zeros(300), label=[1])
    part = the_part(write(tmp_path / "a.tfrecord", [one] * 200, pack=pack))
    assert (part.samples, part.shape, part.is_exact) == (200, (300,), True)
    assert part.is_compressed


def test_a_packed_bomb_is_walked_only_up_to_its_bound(tmp_path, hostile, monkeypatch):
    monkeypatch.setattr(records, "_UNPACK_LIMIT_BYTES", 2**20)
    path = tmp_path / "a.tfrecord.gz"
    write(path, [example(x=np.zeros(1_000_000))] * 10, pack=gzip.compress)
    with hostile.memory_below(16 * 2**20):
        assert hostile.reason(read, path) == "no whole record in what can be read of it"


def test_the_count_of_a_packed_file_beyond_the_bound_is_an_estimate(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_UNPACK_LIMIT_BYTES", 4 * 2**20)
    noise = np.random.default_rng(1)
    path = tmp_path / "a.tfrecord.gz"
    write(path, [example(x=noise.random(1000)) for _ in range(5000)], pack=gzip.compress)
    part = the_part(path)
    assert not part.is_exact
    assert part.samples == pytest.approx(5000, rel=0.1)


def test_other_records_are_sized_by_their_bytes(tmp_path):
    part = the_part(write(tmp_path / "a.tfrecord", [b"\xff" * 50] * 4))
    assert (part.samples, part.elements, part.dtype) == (4, None, None)
    assert (part.memory_bytes, part.note) == (200, NOT_EXAMPLES_NOTE)


def test_a_record_larger_than_what_is_looked_at_is_sized_by_its_lengths(tmp_path):
    path = write(tmp_path / "a.tfrecord", [example(x=np.zeros(1_000_000))] * 2)
    assert the_part(path).elements == 2_000_000


def test_a_file_cut_inside_a_record_counts_the_whole_ones(tmp_path):
    path = write(tmp_path / "a.tfrecord", [example(x=np.zeros(50))] * 10)
    os.truncate(path, path.stat().st_size - 5)
    part = the_part(path)
    assert (part.samples, part.note) == (9, CUT_NOTE)


def test_a_length_of_the_whole_address_space_is_not_followed(tmp_path):
    huge = struct.pack("<Q", 2**63)
    data = frame(example(x=np.zeros(5))) + huge + struct.pack("<L", records._masked_crc(huge))
    (tmp_path / "a.tfrecord").write_bytes(data + bytes(100))
    part = the_part(tmp_path / "a.tfrecord")
    assert (part.samples, part.note) == (1, CUT_NOTE)


def test_a_picture_that_claims_a_million_by_a_million_is_only_bytes(tmp_path):
    lie = bytearray(picture(4, 4))
    struct.pack_into(">2L", lie, 16, 1_000_000, 1_000_000)
    part = the_part(write(tmp_path / "a.tfrecord", [example(image=bytes(lie))]))
    assert part.shape == (len(lie),)


@pytest.mark.parametrize("data", [b"", b"x", bytes(16), bytes(4096), b"\x1f\x8b" + bytes(50)])
def test_what_is_no_tfrecord_is_refused(tmp_path, hostile, data):
    (tmp_path / "a.tfrecord").write_bytes(data)
    assert hostile.reason(read, tmp_path / "a.tfrecord") == "not a TFRecord file, or damaged"


def test_a_sparse_terabyte_of_zeros_is_refused_at_once(tmp_path, hostile):
    (tmp_path / "a.tfrecord").touch()
    os.truncate(tmp_path / "a.tfrecord", 2**40)
    assert hostile.reason(read, tmp_path / "a.tfrecord") == "not a TFRecord file, or damaged"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_damaged_records_are_refused_or_sized_and_never_more(tmp_path, hostile, pack):
    one = example(image=picture(5, 5, "JPEG"), x=np.zeros(5), label=[1, 2])
    path = write(tmp_path / "a.tfrecord", [one] * 3, pack=pack)
    hostile.survives_cuts(read, path)
    hostile.survives_changes(read, path, examples=300)


@pytest.mark.tensorflow
@pytest.mark.parametrize("packing", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_wrote_is_read_as_tensorflow_reads_it(tmp_path, packing):
    import tensorflow as tf

    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path, packing) as writer:
        for i in range(50):
            image = tf.io.encode_jpeg(tf.zeros((24, 32, 3), tf.uint8)).numpy()
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                "box": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5] * 4)),
            }
            one = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(one.SerializeToString())
    part = the_part(path)
    assert (part.samples, part.shape, part.dtype) == (50, (24, 32, 3), "uint8")
    assert part.memory_bytes == 50 * (24 * 32 * 3 + 8 + 16)
    assert part.is_exact


@pytest.mark.tensorflow
def test_a_sequence_example_has_its_steps_as_an_axis(tmp_path):
    import tensorflow as tf

    path = str(tmp_path / "a.tfrecord")
    step = tf.train.Feature(float_list=tf.train.FloatList(value=[0.5] * 6))
    steps = tf.train.FeatureList(feature=[step] * 11)
    one = tf.train.SequenceExample(
        feature_lists=tf.train.FeatureLists(feature_list={"frames": steps})
    )
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(one.SerializeToString())
    part = the_part(path)
    assert (part.shape, part.dtype, part.elements) == ((11, 6), "float32", 66)
