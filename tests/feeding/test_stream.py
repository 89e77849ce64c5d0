"""`stream_dataset`: the samples of arrays in memory, from any format, in any part of an epoch."""

import io

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.images import BadFileWarning

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    x = np.arange(500 * 12, dtype="float32").reshape(500, 2, 2, 3)
    np.save(folder / "x_train.npy", x)
    np.save(folder / "y_train.npy", np.arange(500))
    return folder


def encoded(value, side=8, kind="PNG"):
    buffer = io.BytesIO()
    pixels = np.full((side, side, 3), value, "uint8")
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def images(tmp_path):
    """120 images in 3 classes, each of one shade of grey."""
    for number in range(120):
        place = tmp_path / "data" / "abc"[number % 3] / f"{number:03}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encoded(number))
    return tmp_path / "data"


def collect(dataset):
    parts = [tuple(map(np.asarray, batch)) for batch in dataset]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def test_a_stream_of_an_array_is_the_array(arrays):
    dataset = oomdoctor.stream_dataset(arrays / "x_train.npy", batch_size=32, shuffle=False)
    x, y = collect(dataset)
    assert len(dataset) == 16
    np.testing.assert_array_equal(x, np.load(arrays / "x_train.npy"))
    assert y.tolist() == list(range(500))
    assert dataset.element_spec[0].shape.as_list() == [None, 2, 2, 3]


def test_each_epoch_has_an_order_of_its_own_that_the_seed_fixes(arrays):
    def order(**options):
        return oomdoctor.stream_dataset(arrays / "x_train.npy", batch_size=32, **options)

    dataset = order(seed=4)
    first, second = collect(dataset)[1], collect(dataset)[1]
    assert sorted(first) == sorted(second) == list(range(500))
    assert (first != second).any()
    assert (collect(order(seed=4))[1] == first).all()
    assert (collect(order(seed=5))[1] != first).any()
    assert (collect(order(seed=4, epoch=1))[1] == second).all()


@pytest.mark.parametrize("kind", ["array", "images"])
def test_an_epoch_is_resumed_in_its_middle(arrays, images, kind):
    path = arrays / "x_train.npy" if kind == "array" else images
    resumed = oomdoctor.stream_dataset(path, batch_size=8, epoch=1, skip_batches=5)
    whole = oomdoctor.stream_dataset(path, batch_size=8, epoch=1)
    assert len(resumed) == len(whole) - 5
    for _ in range(2):
        for expected, found in zip(collect(whole), collect(resumed), strict=True):
            np.testing.assert_array_equal(found, expected[40:])


def test_the_last_batch_may_be_left_out(arrays):
    dataset = oomdoctor.stream_dataset(arrays / "x_train.npy", batch_size=32, drop_remainder=True)
    assert len(dataset) == 15
    assert len(collect(dataset)[1]) == 480
    assert dataset.element_spec[0].shape[0] == 32


def test_images_come_with_their_classes(images):
    dataset = oomdoctor.stream_dataset(images, batch_size=16)
    x, y = collect(dataset)
    assert dataset.class_names == ["a", "b", "c"]
    assert len(dataset) == 8
    assert x.shape == (120, 8, 8, 3)
    assert x.dtype == np.float32
    shades = x[:, 0, 0, 0].astype(int)
    assert sorted(shades) == list(range(120))
    assert (y == shades % 3).all()
    assert (np.diff(shades) != 1).any()


def test_images_are_resized_as_keras_does(images):
    import keras

    (images / "a" / "000.png").write_bytes(encoded(0, side=16))
    with pytest.raises(UsageError, match="2 sizes, from 8x8 to 16x16"):
        oomdoctor.stream_dataset(images)
    ours = oomdoctor.stream_dataset(images, image_size=(5, 7), shuffle=False)
    theirs = keras.utils.image_dataset_from_directory(
        images, image_size=(5, 7), shuffle=False, verbose=False
    )
    for found, expected in zip(collect(ours), collect(theirs), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    grey = oomdoctor.stream_dataset(images, image_size="5x7x1", dtype="uint8", labels=None)
    batch = next(iter(grey))
    assert batch.shape == (32, 5, 7, 1)
    assert batch.dtype == "uint8"


def spoil(images):
    (images / "a" / "003.png").write_bytes(b"no image at all")
    (images / "b" / "004.png").write_bytes(encoded(4)[:-20])
    (images / "c" / "005.jpg").write_bytes(b"")
    (images / "c" / "more.webp").write_bytes(encoded(1, kind="WEBP"))
    return ["003.png", "004.png", "005.jpg", "more.webp"]


def test_bad_files_are_counted_and_named(images):
    names = spoil(images)
    with pytest.raises(InputError, match="4 files cannot be decoded") as caught:
        oomdoctor.stream_dataset(images)
    assert all(name in str(caught.value) for name in names)
    with pytest.warns(BadFileWarning, match="4 files cannot be decoded"):
        dataset = oomdoctor.stream_dataset(images, on_bad="skip", batch_size=10)
    assert len(dataset.bad_files) == 4
    x, _ = collect(dataset)
    assert len(x) == 118
    assert not {3, 4} & set(x[:, 0, 0, 0].astype(int))


def corrupt(path):
    """Damage pixels, so that only decoding shows it."""
    content = bytearray(path.read_bytes())
    at = content.index(b"IDAT") + 6
    content[at : at + 6] = b"\xff" * 6
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("which", [["000.png"], ["119.png"], ["050.png", "051.png"]])
@pytest.mark.parametrize("shuffle", [False, True])
def test_what_only_decoding_shows_is_named_too(images, which, shuffle):
    import tensorflow as tf

    for name in which:
        corrupt(next(images.rglob(name)))
    dataset = oomdoctor.stream_dataset(images, batch_size=7, shuffle=shuffle)
    with pytest.raises(tf.errors.OpError, match="|".join(which)):
        collect(dataset)
    skipping = oomdoctor.stream_dataset(images, batch_size=7, shuffle=shuffle, on_bad="skip")
    for _ in range(2):  # every epoch has as many batches as it says
        x, _ = collect(skipping)
        assert len(x) == 120
        assert not {int(name[:3]) for name in which} & set(x[:, 0, 0, 0].astype(int))


def test_folders_of_splits_are_not_taken_for_classes(images):
    for old, new in (("a", "train"), ("b", "val"), ("c", "test")):
        (images / old).rename(images / new)
    with pytest.raises(UsageError, match="holds the splits test, train, val"):
        oomdoctor.stream_dataset(images)


def test_tables_and_records(tmp_path):
    import tensorflow as tf

    rows = "".join(f"{n},{n * 2},{n % 2}\n" for n in range(100))
    (tmp_path / "t.csv").write_text("a,b,label\n" + rows)
    x, y = collect(oomdoctor.stream_dataset(tmp_path / "t.csv", batch_size=30))
    assert x.shape == (100, 2)
    assert (y == x[:, 0] % 2).all()
    columns = oomdoctor.stream_dataset(tmp_path / "t.csv", as_columns=True)
    assert next(iter(columns))[0]["a"].shape == (32, 1)

    with tf.io.TFRecordWriter(str(tmp_path / "r.tfrecord")) as writer:
        for number in range(50):
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded(number)])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
            }
            features = tf.train.Features(feature=feature)
            writer.write(tf.train.Example(features=features).SerializeToString())
    x, y = collect(oomdoctor.stream_dataset(tmp_path / "r.tfrecord", batch_size=8))
    assert x.shape == (50, 8, 8, 3)
    assert (x[:, 0, 0, 0] == y).all()
    assert sorted(y) == list(range(50))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path):
    """RAM of a process that streams 320 MiB, which never had more than a few of them."""
    import subprocess
    import sys

    with open(tmp_path / "x.npy", "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (5120, 128, 128)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 5120 * 128 * 128 * 4)
    code = """
import resource, sys, oomdoctor
dataset = oomdoctor.stream_dataset(sys.argv[1], batch_size=32, shuffle_buffer="16MiB")
next(iter(dataset))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(len(batch) for batch in dataset)
print(count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
        check=True,
    )
    count, grown_mib = map(int, run.stdout.split())
    assert count == 5120
    assert grown_mib < 100
