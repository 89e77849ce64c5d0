from __future__ import annotations

import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from oomdoctor.inventory.arrays import read
from oomdoctor.inventory.npy_header import OBJECT_NOTE, parse_header
from oomdoctor.inventory.parts import Unreadable


def parts_of(path):
    return list(read(str(path), os.path.getsize(path)))


def npy_bytes(header: str, *, version=1, length=None, body=b""):
    raw = header.encode("latin-1")
    size = struct.pack("<H" if version == 1 else "<I", len(raw) if length is None else length)
    return b"\x93NUMPY" + bytes((version, 0)) + size + raw + body


def header_text(shape="(3,)", descr="'<f4'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "float16",
        "int32",
        "uint32",
        "float32",
        "int64",
        "uint64",
        "float64",
        "complex64",
        "complex128",
        ">f4",
        ">i2",
    ],
)
def test_an_npy_file_gives_the_shape_and_dtype_that_numpy_wrote(tmp_path, dtype):
    array = np.zeros((7, 5, 3), dtype)
    np.save(tmp_path / "x.npy", array)
    (part,) = parts_of(tmp_path / "x.npy")
    assert (part.samples, part.shape, part.elements) == (7, (5, 3), 105)
    assert part.dtype == array.dtype.newbyteorder("=").name
    assert (part.format, part.kind, part.is_exact) == ("npy", "array", True)
    assert not part.is_compressed
    assert part.memory_bytes is None


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(4, "<U10"),
        np.zeros(4, "S7"),
        np.zeros(4, "M8[ns]"),
        np.zeros(4, [("a", "<f4"), ("b", "<i8", (2, 3)), ("c", [("d", "u1"), ("e", "<U3")])]),
        np.zeros(4, np.dtype([("a", "u1"), ("b", "<f8")], align=True)),
        np.zeros(4, "V5"),
    ],
)
def test_elements_without_a_plain_name_are_sized_in_bytes(tmp_path, array):
    np.save(tmp_path / "x.npy", array)
    (part,) = parts_of(tmp_path / "x.npy")
    assert (part.samples, part.dtype, part.memory_bytes) == (4, None, array.nbytes)


def test_a_single_number_is_one_sample(tmp_path):
    np.save(tmp_path / "x.npy", np.float32(1))
    (part,) = parts_of(tmp_path / "x.npy")
    assert (part.samples, part.shape, part.elements) == (1, (), 1)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path, version):
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, np.zeros((2, 3), order="F"), version=version)
    (part,) = parts_of(tmp_path / "x.npy")
    assert (part.samples, part.shape, part.dtype) == (2, (3,), "float64")


def test_a_header_longer_than_the_first_read_is_read_whole(tmp_path):
    array = np.zeros(2, [(f"field_{i}", "<f4") for i in range(200)])
    np.save(tmp_path / "x.npy", array)
    assert parts_of(tmp_path / "x.npy")[0].memory_bytes == array.nbytes


def test_a_sparse_file_of_four_gigabytes_counts_in_full(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(header_text("(16283, 150, 150, 3)")))
    os.truncate(path, path.stat().st_size + 4_396_410_000)
    (part,) = parts_of(path)
    assert part.elements * 4 == 4_396_410_000


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file_gives_each_array_by_name(tmp_path, save):
    save(tmp_path / "x.npz", x=np.zeros((9, 4, 4), "f4"), y=np.zeros(9, "i8"))
    x, y = parts_of(tmp_path / "x.npz")
    assert (x.name, x.samples, x.shape, x.dtype) == ("x", 9, (4, 4), "float32")
    assert (y.name, y.samples, y.shape, y.dtype) == ("y", 9, (), "int64")
    assert x.format == "npz"
    assert x.is_compressed  # zip members cannot be memory-mapped


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_an_object_array_is_noted_and_its_pickle_never_runs(tmp_path, name):
    trap = tmp_path / "trap"
    array = np.array([Bomb(str(trap)), None], dtype=object)
    assert pickle.dumps(array)  # the trap can be set
    (np.save if name == "x.npy" else np.savez)(tmp_path / name, array)
    (part,) = parts_of(tmp_path / name)
    assert (part.samples, part.dtype, part.elements, part.note) == (2, None, None, OBJECT_NOTE)
    assert not trap.exists()


@pytest.mark.parametrize("shape", ["(1000000000000000000,)", "(99999, 99999, 99999)", "(4,)"])
def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path, hostile, shape):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(header_text(shape), body=bytes(15)))
    assert hostile.reason(read, path) == "header claims more data than the file holds"


def test_a_huge_axis_of_nothing_counts_no_samples(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(header_text("(1000000000000000000, 0)")))
    (part,) = parts_of(path)
    assert (part.samples, part.elements) == (0, 0)


def test_an_object_array_of_a_billion_objects_in_a_small_file_has_no_count(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(header_text("(1000000000,)", "'|O'"), body=b"x" * 100))
    assert parts_of(path)[0].samples is None


@pytest.mark.parametrize(
    "header",
    [
        header_text("(-1,)"),
        header_text("3"),
        header_text("[3]"),
        header_text("('a',)"),
        header_text("(True,)"),
        header_text("(1.5,)"),
        header_text("(" * 3000 + ")" * 3000),
        header_text("(" + "-" * 60000 + "1,)"),
        header_text("(" + "9" * 5000 + ",)"),
        header_text(descr="None"),
        header_text(descr="'<q9'"),
        header_text(descr="[('a', '<f4', -1)]"),
        header_text(descr="__import__('os').abort()"),
        "{'descr': '<f4'}",
        "",
        "()",
        "{",
        "{'shape'",
        "{'shape': (1,) 'descr': '<f4'}",
        "\0" * 100,
    ],
)
def test_a_header_that_is_not_a_header_is_refused(tmp_path, hostile, header):
    path = tmp_path / "x.npy"
    path.write_bytes(npy_bytes(header, version=2, body=bytes(600)))
    assert hostile.reason(read, path) == "not a NumPy array, or damaged"


def test_a_header_of_four_gigabytes_is_refused_unread():
    with pytest.raises(Unreadable, match="longer than 64 KiB"):
        parse_header(npy_bytes("", version=2, length=0xFFFFFFFF, body=bytes(20)))


def test_a_damaged_npy_file_is_refused_or_sized_and_never_more(tmp_path, hostile):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((3, 4), [("a", "<f4"), ("b", "<i8", (2,))]))
    hostile.survives_cuts(read, path, steps=400)
    hostile.survives_changes(read, path, examples=300, head=160)


def test_a_damaged_npz_file_is_refused_or_sized_and_never_more(tmp_path, hostile):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.arange(50.0), y=np.arange(3))
    hostile.survives_cuts(read, path, steps=2000)
    hostile.survives_changes(read, path, examples=300)


def test_a_file_that_is_gone_says_so(tmp_path):
    with pytest.raises(Unreadable, match="vanished"):
        list(read(str(tmp_path / "x.npy"), 10))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(tmp_path):
    path = tmp_path / "y.npy"
    path.write_bytes(b"")
    path.chmod(0)
    with pytest.raises(Unreadable, match="permission denied"):
        list(read(str(path), 0))


def test_an_npz_member_that_claims_more_than_it_holds_is_refused(tmp_path, hostile):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(header_text("(1000000,)"), body=bytes(100)))
    assert hostile.reason(read, path) == "header claims more data than the file holds"


def test_a_directory_that_lies_about_a_member_is_refused(tmp_path, hostile):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(header_text("(250000000,)"), body=bytes(1000)))
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, data.rfind(b"PK\x01\x02") + 24, 1_000_000_200)
    path.write_bytes(data)
    assert hostile.reason(read, path) == "zip members claim more data than the file can hold"


def test_members_that_share_their_bytes_are_refused(tmp_path, hostile):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(header_text("(1000000,)"), body=bytes(4_000_000)))
    data = path.read_bytes()
    at = data.rfind(b"PK\x01\x02")
    entry, end = data[at : data.rfind(b"PK\x05\x06")], bytearray(data[data.rfind(b"PK\x05\x06") :])
    struct.pack_into("<L", end, 12, len(entry) * 1000)
    path.write_bytes(data[:at] + entry * 1000 + end)
    assert hostile.reason(read, path) == "zip members claim more data than the file can hold"


def test_a_zip_without_arrays_is_not_an_npz(tmp_path, hostile):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("../../x", "text")
    assert hostile.reason(read, tmp_path / "x.npz") == "a zip file without arrays"


def test_a_zip64_directory_is_read(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w", force_zip64=True) as f:
        f.write(npy_bytes(header_text("(2,)"), body=bytes(8)))
    data = path.read_bytes()
    at, end = data.rfind(b"PK\x01\x02"), data.rfind(b"PK\x05\x06")
    entry = bytearray(data[at:end])
    size, packed = struct.unpack_from("<2L", entry, 20)
    extra = struct.pack("<2H3Q", 1, 24, size, packed, 0)
    struct.pack_into("<2L", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, len(extra))
    struct.pack_into("<L", entry, 42, 0xFFFFFFFF)
    entry += extra
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, len(entry), at)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, at + len(entry), 1)
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(data[:at] + entry + wide + locator + last)
    assert np.load(path)["x"].shape == (2,)
    assert parts_of(path)[0].samples == 2
