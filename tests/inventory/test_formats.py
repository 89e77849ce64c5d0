from __future__ import annotations

import importlib

import pytest

from oomdoctor.inventory import formats
from oomdoctor.inventory.formats import folder_reader_for, is_not_data, reader_for


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        ("x.npy", "arrays"),
        ("X.NPZ", "arrays"),
        ("a.b.tfrecord", "records"),
        ("a.tfrecords", "records"),
        ("a.tfrec", "records"),
        ("a.records", "records"),
        ("mnist-train.tfrecord-00000-of-00010", "records"),
        ("a.tfrecord.gz", "records"),
        ("a.h5", "hdf5"),
        ("a.hdf5", "hdf5"),
        ("a.csv", "tables"),
        ("a.csv.gz", "tables"),
        ("part.csv-00001-of-00002", "tables"),
        ("a.tsv", "tables"),
        ("a.parquet", "tables"),
        ("a.feather", "tables"),
        ("a.zip", "archives"),
        ("shard-000.tar", "archives"),
        ("a.tar.gz", "archives"),
        ("a.tar.xz", "archives"),
        ("a.tgz", "archives"),
        ("a.wav", "audio"),
        ("a.txt", "text"),
        ("a.jsonl", "text"),
        ("a.jsonl.gz", "text"),
    ],
)
def test_a_name_leads_to_its_reader(name, reader):
    assert reader_for(name) == f"oomdoctor.inventory.{reader}"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "npy", "a.", ".gz", "a.gz", "a.unknown", "a.x-1-of-2", "a.json"],
)
def test_a_name_without_a_reader_leads_nowhere(name):
    assert reader_for(name) is None


@pytest.mark.parametrize(
    "name",
    ["train.py", ".DS_Store", "Thumbs.db", "README.txt", "._cat.wav", "a.csv~", "m.weights.h5"],
)
def test_files_beside_data_are_not_data_and_have_no_reader(name):
    assert is_not_data(name)
    assert reader_for(name) is None


def test_no_suffix_is_data_and_not_data_at_once():
    assert not formats.NOT_DATA & set(formats.READERS)


def test_every_reader_named_here_exists():
    for name in set(formats.READERS.values()):
        assert callable(importlib.import_module(name).read)
    for name in (formats.TFDS, formats.ZARR):
        assert callable(importlib.import_module(name).read_folder)


def test_a_folder_is_known_by_the_files_that_describe_it(tmp_path):
    assert folder_reader_for(str(tmp_path)) is None
    (tmp_path / "zarr.json").write_text("{}")
    assert folder_reader_for(str(tmp_path)) == formats.ZARR
    (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "features.json").write_text("{}")
    assert folder_reader_for(str(tmp_path)) == formats.TFDS
    assert folder_reader_for(str(tmp_path / "nothing")) is None
