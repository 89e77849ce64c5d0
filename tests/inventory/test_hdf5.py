from __future__ import annotations

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from oomdoctor.inventory import hdf5, hdf5_worker
from oomdoctor.inventory.hdf5 import read
from oomdoctor.inventory.hdf5_worker import ELSEWHERE_NOTE, TEXT_NOTE, UNWRITTEN_NOTE


def parts_of(path):
    return list(read(str(path), os.path.getsize(path)))


def test_each_dataset_is_a_part_by_its_name(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x_train"] = np.zeros((10, 8, 8, 3), "uint8")
        file["inner/y"] = np.zeros(10, "int64")
        file["scalar"] = np.float32(1)
    parts = {part.name: part for part in parts_of(tmp_path / "a.h5")}
    x, y, scalar = parts["x_train"], parts["inner/y"], parts["scalar"]
    assert (x.samples, x.shape, x.dtype, x.elements) == (10, (8, 8, 3), "uint8", 1920)
    assert (x.format, x.kind, x.is_exact, x.note) == ("hdf5", "array", True, None)
    assert not x.is_compressed
    assert (y.samples, y.shape, y.dtype) == (10, (), "int64")
    assert (scalar.samples, scalar.elements) == (1, 1)


@pytest.mark.parametrize("options", [{"chunks": (2, 5)}, {"compression": "gzip"}])
def test_chunked_and_compressed_data_cannot_be_memory_mapped(tmp_path, options):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((10, 5)), **options)
    (part,) = parts_of(tmp_path / "a.h5")
    assert (part.elements, part.is_compressed, part.note) == (50, True, None)


@pytest.mark.parametrize("dtype", [">f4", "f2", "?", "u2", "c16"])
def test_other_numbers_keep_their_plain_names(tmp_path, dtype):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(4, dtype)
    assert parts_of(tmp_path / "a.h5")[0].dtype == np.dtype(dtype).newbyteorder("=").name


def test_records_and_fixed_text_are_sized_in_bytes(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["s"] = np.zeros(5, "S12")
        file["r"] = np.zeros(5, [("a", "<f4"), ("b", "<i8")])
    assert [part.memory_bytes for part in parts_of(tmp_path / "a.h5")] == [60, 60]


def test_text_of_varying_length_is_noted(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["names"] = ["one", "two", "a longer one"]
    (part,) = parts_of(tmp_path / "a.h5")
    assert (part.samples, part.elements, part.dtype, part.note) == (3, None, None, TEXT_NOTE)


def test_links_out_of_the_file_are_not_followed(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = np.zeros(1000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
        file["outside"] = h5py.ExternalLink("other.h5", "/secret")
        file["nowhere"] = h5py.SoftLink("/nothing")
        file["loop"] = h5py.SoftLink("/")
    assert [part.name for part in parts_of(tmp_path / "a.h5")] == ["x"]


def test_a_cycle_of_groups_ends(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/x"] = np.zeros(3)
        file["group/again"] = file["/"]
    assert [part.elements for part in parts_of(tmp_path / "a.h5")] == [3]


def test_data_in_other_files_is_noted_and_never_opened(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", (8,), "f4", external=[("/etc/passwd", 0, 32)])
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("missing.h5", "x", (4,))
        file.create_virtual_dataset("virtual", layout)
    parts = parts_of(tmp_path / "a.h5")
    assert [(part.name, part.note) for part in parts] == [
        ("raw", ELSEWHERE_NOTE),
        ("virtual", ELSEWHERE_NOTE),
    ]


@pytest.mark.parametrize("attribute", ["model_config", "layer_names", "keras_version"])
def test_a_keras_model_is_not_data(tmp_path, hostile, attribute):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["dense/kernel"] = np.zeros((3, 3))
        file.attrs[attribute] = "{}"
    assert hostile.reason(read, tmp_path / "a.h5") == "Keras weights, not data"


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["m.weights.h5", "m.h5"])
@pytest.mark.filterwarnings("ignore")
def test_what_keras_saves_is_not_data(tmp_path, hostile, name):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    (model.save_weights if "weights" in name else model.save)(tmp_path / name)
    renamed = (tmp_path / name).rename(tmp_path / "data.h5")
    assert hostile.reason(read, renamed) == "Keras weights, not data"


def test_a_petabyte_that_was_never_written_is_refused_or_noted(tmp_path, hostile):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (10**9, 10**9), "f4", chunks=(1000, 1000))
    assert "more data than any machine" in hostile.reason(read, tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("x", (10**6, 10**3), "f4", chunks=(1000, 1000))
    assert parts_of(tmp_path / "b.h5")[0].note == UNWRITTEN_NOTE


def test_no_more_objects_than_the_limit_are_visited(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_worker, "OBJECT_LIMIT", 5)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i in range(20):
            file[f"x{i}"] = np.zeros(2)
    parts = hdf5_worker.parts_of(str(tmp_path / "a.h5"), 10**6)
    assert len(parts) == 5
    assert "stopped" in parts[0].note


@pytest.mark.parametrize("data", [b"", b"\x89HDF\r\n\x1a\n", b"not hdf5" * 100])
def test_what_is_no_hdf5_file_is_refused(tmp_path, hostile, data):
    (tmp_path / "a.h5").write_bytes(data)
    assert hostile.reason(read, tmp_path / "a.h5") == "not an HDF5 file, or damaged"


def test_a_file_without_datasets_says_so(tmp_path, hostile):
    h5py.File(tmp_path / "a.h5", "w").close()
    assert hostile.reason(read, tmp_path / "a.h5") == "an HDF5 file without datasets"


def test_without_h5py_the_reason_names_the_extra(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"x")
    code = (
        "import sys; sys.modules['h5py'] = None\n"
        "from oomdoctor.inventory.hdf5 import read\n"
        "try: list(read(sys.argv[1], 1))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "a.h5")]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "Unreadable h5py is needed to read HDF5 files: pip install 'oomdoctor[hdf5]'" in output


def test_a_file_that_kills_its_reader_is_refused_and_the_next_one_read(
    tmp_path, hostile, monkeypatch
):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(3)
    die = "import os, signal, sys; sys.stdin.readline(); os.kill(os.getpid(), signal.SIGSEGV)"
    hdf5._worker.close()
    with monkeypatch.context() as patch:
        patch.setattr(hdf5, "python_command", lambda *_: [sys.executable, "-c", die])
        assert hostile.reason(read, tmp_path / "a.h5") == hdf5.CRASHED
    assert parts_of(tmp_path / "a.h5")[0].samples == 3


def test_a_file_that_hangs_its_reader_is_given_up(tmp_path, hostile, monkeypatch):
    (tmp_path / "a.h5").write_bytes(b"x")
    hdf5._worker.close()
    hang = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(hdf5, "python_command", lambda *_: hang)
    monkeypatch.setattr(hdf5, "_TIMEOUT_SECONDS", 0.2)
    assert hostile.reason(read, tmp_path / "a.h5") == hdf5.CRASHED


def test_a_damaged_file_is_refused_or_read_and_never_more(tmp_path, hostile):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros((10, 5)), compression="gzip")
        file["y"] = np.zeros(10, [("a", "<f4"), ("b", "S3")])
    hostile.survives_cuts(read, path, steps=100)
    hostile.survives_changes(read, path, examples=200)
