from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from oomdoctor.inventory import archives
from oomdoctor.inventory.archives import NESTED_NOTE, read


def parts_of(path):
    return list(read(str(path), os.path.getsize(path)))


def picture(height, width, format="PNG", mode="RGB"):
    out = io.BytesIO()
    Image.new(mode, (width, height)).save(out, format)
    return out.getvalue()


def array(*shape, dtype="float32"):
    out = io.BytesIO()
    np.save(out, np.zeros(shape, dtype))
    return out.getvalue()


def write_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_tar(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


PICTURES = {
    "train/cat/1.png": picture(10, 20),
    "train/dog/2.jpg": picture(30, 40, "JPEG"),
    "train/dog/3.png": picture(5, 5, mode="L"),
    "readme.md": b"about",
}
SHAPES = [((10, 20, 3), "train/cat/1.png"), ((30, 40, 3), "train/dog/2.jpg")]
SHAPES += [((5, 5, 1), "train/dog/3.png")]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_each_picture_of_a_zip_is_a_part_named_by_its_member(tmp_path, method):
    parts = parts_of(write_zip(tmp_path / "a.zip", PICTURES, method))
    assert [(part.shape, part.name) for part in parts] == SHAPES
    assert {(p.format, p.kind, p.dtype, p.samples) for p in parts} == {("zip", "image", "uint8", 1)}
    assert parts[0].elements == 600


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_each_picture_of_a_tar_is_a_part_however_it_is_packed(tmp_path, monkeypatch, mode, form):
    monkeypatch.setattr(tarfile.TarFile, "format", form)
    parts = parts_of(write_tar(tmp_path / "a.tar", PICTURES, mode))
    assert [(part.shape, part.name) for part in parts] == SHAPES
    assert parts[0].format == "tar"


@pytest.mark.parametrize("size", [511, 512, 513, 1024])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_members_that_end_on_a_block_do_not_hide_the_next(tmp_path, mode, size):
    members = {f"{i}.png": picture(2, 2).ljust(size, b"\0") for i in range(3)}
    assert len(parts_of(write_tar(tmp_path / "a.tar", members, mode))) == 3


def test_names_too_long_for_a_tar_header_are_read(tmp_path):
    name = "/".join(["folder"] * 60) + "/1.png"
    (part,) = parts_of(write_tar(tmp_path / "a.tar", {name: picture(2, 2)}))
    assert part.name == name


def test_a_picture_whose_header_lies_deep_in_the_file_is_found(tmp_path):
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x010E] = "x" * 20_000
    Image.effect_noise((64, 48), 50).save(out, "JPEG", exif=exif)
    assert out.getvalue().find(b"\xff\xc0") > 4096
    for path in (
        write_zip(tmp_path / "a.zip", {"1.jpg": out.getvalue()}),
        write_tar(tmp_path / "a.tar.gz", {"1.jpg": out.getvalue()}, "w:gz"),
    ):
        assert parts_of(path)[0].shape == (48, 64, 1)


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_arrays_are_counted_together_by_their_field(tmp_path, write):
    members = {}
    for i in range(5):
        members |= {f"{i:06}.x.npy": array(8, 4), f"{i:06}.y.npy": array(dtype="int64")}
    x, y = parts_of(write(tmp_path / "a.zip", members))
    assert (x.kind, x.name, x.samples, x.shape, x.elements) == ("array", "x.npy", 5, (8, 4), 160)
    assert (x.dtype, y.dtype, y.name, y.samples, y.shape) == ("float32", "int64", "y.npy", 5, ())


def test_arrays_of_many_shapes_have_none_in_common(tmp_path):
    (part,) = parts_of(write_zip(tmp_path / "a.zip", {"1.npy": array(3), "2.npy": array(4)}))
    assert (part.samples, part.shape, part.elements) == (2, None, 7)


@pytest.mark.parametrize("name", ["../../x.png", "/etc/x.png", "C:\\x.png", "a/../../x.png"])
@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_a_name_that_points_outside_is_only_a_name(tmp_path, name, write):
    folder = tmp_path / "inside"
    folder.mkdir()
    (part,) = parts_of(write(folder / "a.zip", {name: picture(2, 2)}))
    assert part.shape == (2, 2, 3)
    assert os.listdir(folder) == ["a.zip"]
    assert os.listdir(tmp_path) == ["inside"]


def test_an_archive_inside_is_noted_and_not_opened(tmp_path):
    inner = write_zip(tmp_path / "inner.zip", PICTURES).read_bytes()
    parts = parts_of(write_zip(tmp_path / "a.zip", {"1.png": picture(2, 2), "inner.zip": inner}))
    assert sum(part.samples for part in parts) == 1
    assert parts[-1].note == NESTED_NOTE


def test_an_archive_of_only_archives_says_so(tmp_path, hostile):
    data = b"data"
    for _ in range(30):
        data = write_zip(tmp_path / "a.zip", {"a.zip": data}).read_bytes()
    assert hostile.reason(read, tmp_path / "a.zip") == NESTED_NOTE


def test_a_zip_bomb_is_looked_at_and_not_unpacked(tmp_path, hostile):
    path = write_zip(tmp_path / "a.zip", {"1.png": bytes(50_000_000), "2.npy": bytes(50_000_000)})
    with hostile.memory_below(4 * 2**20):
        assert "damaged" in hostile.reason(read, path)


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_packed_tar_that_expands_too_far_stops_with_a_note(tmp_path, hostile, mode):
    path = tmp_path / "a.tar"
    write_tar(
        path, {"1.png": picture(2, 2), "big": bytes(30_000_000), "2.png": picture(2, 2)}, mode
    )
    with hostile.memory_below(16 * 2**20):  # the dictionary of xz is 8 MiB
        parts = parts_of(path)
    assert sum(part.samples for part in parts) == 1
    assert (parts[-1].note, parts[-1].is_exact) == ("stopped: expands more than 200 times", False)


def test_a_packed_tar_larger_than_the_bound_stops_with_a_note(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "UNPACK_LIMIT_BYTES", 2**20)
    members = {f"{i}.png": picture(2, 2) + os.urandom(100_000) for i in range(20)}
    parts = parts_of(write_tar(tmp_path / "a.tar.gz", members, "w:gz"))
    assert 5 < sum(part.samples for part in parts) < 15
    assert parts[-1].note == "stopped: too large to unpack whole"


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_an_archive_with_too_many_members_stops_with_a_note(tmp_path, monkeypatch, write):
    monkeypatch.setattr(archives, "MEMBER_LIMIT", 3)
    members = {f"{i}.png": picture(2, 2) for i in range(5)}
    parts = parts_of(write(tmp_path / "a.tar", members))
    assert sum(part.samples for part in parts) == 3
    assert "more than" in parts[-1].note


def test_a_picture_that_lies_about_its_size_is_not_counted(tmp_path):
    lie = bytearray(picture(4, 4))
    struct.pack_into(">2L", lie, 16, 1_000_000, 1_000_000)
    parts = parts_of(write_zip(tmp_path / "a.zip", {"1.png": bytes(lie), "2.png": picture(2, 2)}))
    assert [part.shape for part in parts] == [(2, 2, 3)]
    assert "damaged" in parts[-1].note


def test_a_tar_member_that_claims_more_than_the_file_is_cut(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"1.png": picture(2, 2), "2.png": picture(2, 2)})
    os.truncate(path, 512 + 512 + 512 + 20)
    parts = parts_of(path)
    assert sum(part.samples for part in parts) >= 1
    assert parts[-1].note is not None


def tar_header(name=b"x.png", size=b"00000000000\0", kind=b"0"):
    head = bytearray(512)
    head[: len(name)] = name
    head[100:108] = b"0000644\0"
    head[124:136] = size
    head[136:148] = b"00000000000\0"
    head[148:156] = b"        "
    head[156:157] = kind
    head[257:265] = b"ustar\00000"
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


@pytest.mark.parametrize("kind", [b"0", b"5", b"x", b"L", b"S", b"g"])
@pytest.mark.parametrize(
    "size", [b"77777777777\0", b"\xff" * 12, b"\xff" * 10 + b"\xfe\x00", b"\x80" + b"\xff" * 11]
)
def test_a_tar_header_with_a_false_length_neither_hangs_nor_fills_memory(
    tmp_path, hostile, kind, size
):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_header(size=size, kind=kind) + bytes(4096) + tar_header() + bytes(1024))
    with hostile.memory_below(8 * 2**20):
        hostile.parts_or_reason(read, path)


def test_links_in_a_tar_are_passed_over(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("passwd.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        info = tarfile.TarInfo("1.png")
        info.size = len(picture(2, 2))
        archive.addfile(info, io.BytesIO(picture(2, 2)))
    assert [part.name for part in parts_of(path)] == ["1.png"]


def test_an_encrypted_zip_member_is_not_counted(tmp_path, hostile):
    path = write_zip(tmp_path / "a.zip", {"1.png": picture(2, 2)}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "damaged" in hostile.reason(read, path)


@pytest.mark.parametrize("data", [b"", b"x", b"PK", bytes(2048), b"\x1f\x8b" + bytes(90), b"BZh9x"])
def test_what_is_no_archive_is_refused(tmp_path, hostile, data):
    (tmp_path / "a.tar").write_bytes(data)
    assert hostile.reason(read, tmp_path / "a.tar")


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_a_damaged_archive_is_refused_or_read_and_never_more(tmp_path, hostile, name):
    members = {"1.png": picture(3, 3), "2.npy": array(3), "n/3.jpg": picture(3, 3, "JPEG")}
    if name == "a.zip":
        path = write_zip(tmp_path / name, members)
    else:
        path = write_tar(tmp_path / name, members, "w:gz" if name.endswith("gz") else "w")
    hostile.survives_cuts(read, path)
    hostile.survives_changes(read, path)
