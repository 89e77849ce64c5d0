"""Stored features and converted shards: whole, verified, continued after a crash."""

import json

import numpy as np
import pytest

import oomdoctor
from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding import convert, features

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def backbone():
    import keras

    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu")])


@pytest.fixture
def dataset():
    import tensorflow as tf

    x = np.random.default_rng(0).random((100, 4), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, np.arange(100))).batch(8)


def collect(dataset):
    parts = [tuple(map(np.asarray, batch)) for batch in dataset]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def test_features_are_those_of_the_backbone(backbone, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SHARD_BYTES", 500)
    folder = oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)
    assert len(list((tmp_path / "f").glob("*.npy"))) > 6
    x, y = collect(oomdoctor.stream_dataset(folder, batch_size=9))
    expected = backbone.predict(dataset, verbose=0)
    np.testing.assert_allclose(x, expected[y], rtol=1e-6)
    assert sorted(y) == list(range(100))


def test_a_run_that_died_is_continued(backbone, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "SHARD_BYTES", 500)
    plain, done = backbone.predict_on_batch, []

    def dies(x):
        done.append(len(x))
        if len(done) == 9:
            raise KeyboardInterrupt
        return plain(x)

    backbone.predict_on_batch = dies
    with pytest.raises(KeyboardInterrupt):
        oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)
    with pytest.raises(InputError, match="not complete"):
        oomdoctor.stream_dataset(tmp_path / "f")
    oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)
    assert len(done) < 9 + 13  # not all of it again
    x, y = collect(oomdoctor.stream_dataset(tmp_path / "f", shuffle=False))
    np.testing.assert_allclose(x, plain(np.concatenate([b for b, _ in dataset])), rtol=1e-6)
    assert y.tolist() == list(range(100))


def test_damage_is_found_when_it_is_read(backbone, dataset, tmp_path):
    folder = oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)
    path = next((tmp_path / "f").glob("*-0.npy"))
    content = bytearray(path.read_bytes())
    content[700] ^= 1
    path.write_bytes(bytes(content))
    import tensorflow as tf

    with pytest.raises(tf.errors.OpError, match="checksum differs"):
        collect(oomdoctor.stream_dataset(folder))


def test_features_of_another_model_are_not_mixed_in(backbone, dataset, tmp_path):
    oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)
    backbone.layers[0].kernel.assign_add(np.ones((4, 3)))
    with pytest.raises(UsageError, match="another model"):
        oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)


def test_a_manifest_may_not_name_files_elsewhere(backbone, dataset, tmp_path):
    oomdoctor.store_features(backbone, dataset, tmp_path / "f", verbose=0)
    path = tmp_path / "f" / "oomdoctor.json"
    manifest = json.loads(path.read_text())
    manifest["shards"][0]["files"][0] = "../../secret.npy"
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="outside of its folder"):
        oomdoctor.stream_dataset(tmp_path / "f")
    path.write_text('{"format": "arrays", "complete": true, "shards": 3}')
    with pytest.raises(InputError, match="damaged"):
        oomdoctor.stream_dataset(tmp_path / "f")


@pytest.mark.parametrize("packed", [True, False])
def test_arrays_become_shards(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(convert, "SHARD_BYTES", 1000)
    x = np.random.default_rng(0).random((90, 3, 2)).astype("float32")
    save = np.savez_compressed if packed else np.savez
    save(tmp_path / "d.npz", x=x, y=np.arange(90))
    folder = oomdoctor.convert(tmp_path / "d.npz", tmp_path / "s", verbose=0)
    assert len(list((tmp_path / "s").glob("*.tfrecord"))) > 3
    found, y = collect(oomdoctor.stream_dataset(folder, batch_size=16))
    np.testing.assert_array_equal(found, x[y])
    assert sorted(y) == list(range(90))


def test_images_become_shards_as_they_are(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setattr(convert, "SHARD_BYTES", 2000)
    for number in range(40):
        place = tmp_path / "data" / "ab"[number % 2] / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6 + number % 2, 6), (number,) * 3).save(place)
    seen = []

    class Stops(Exception):
        pass

    def report(done, total):
        seen.append(done)
        if len(seen) == 3:
            raise Stops

    from oomdoctor.feeding.opening import Options

    with pytest.raises(Stops):
        convert.convert(
            tmp_path / "data", str(tmp_path / "s"), Options(any_size=True), report=report
        )
    oomdoctor.convert(tmp_path / "data", tmp_path / "s", verbose=0)
    dataset = oomdoctor.stream_dataset(tmp_path / "s", image_size=(6, 6), batch_size=7)
    x, y = collect(dataset)
    assert dataset.class_names == ["a", "b"]
    shades = x[:, 0, 0, 0].astype(int)
    assert sorted(shades) == list(range(40))
    assert (y == shades % 2).all()
    with pytest.raises(UsageError, match="holds other data"):
        oomdoctor.convert(tmp_path / "data" / "a", tmp_path / "s", verbose=0)
