import io
import json
import os
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from oomdoctor.inventory import headers
from oomdoctor.inventory.images import HeaderPool, shape_from_bytes, shape_of_file
from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.walk import Chunk


def encode(mode, size=(7, 5), fmt="PNG", **options):
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, fmt, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "fmt", "shape", "dtype"),
    [
        ("RGB", "PNG", (5, 7, 3), "uint8"),
        ("L", "PNG", (5, 7, 1), "uint8"),
        ("LA", "PNG", (5, 7, 2), "uint8"),
        ("RGBA", "PNG", (5, 7, 4), "uint8"),
        ("P", "PNG", (5, 7, 3), "uint8"),
        ("1", "PNG", (5, 7, 1), "uint8"),
        ("I;16", "PNG", (5, 7, 1), "uint16"),
        ("RGB", "JPEG", (5, 7, 3), "uint8"),
        ("L", "JPEG", (5, 7, 1), "uint8"),
        ("CMYK", "JPEG", (5, 7, 4), "uint8"),
        ("RGB", "GIF", (5, 7, 3), "uint8"),
        ("RGB", "BMP", (5, 7, 3), "uint8"),
        ("RGB", "WEBP", (5, 7, 3), "uint8"),
        ("RGBA", "WEBP", (5, 7, 4), "uint8"),
        ("RGB", "TIFF", (5, 7, 3), "uint8"),
        ("F", "TIFF", (5, 7, 1), "float32"),
        ("L", "PPM", (5, 7, 1), "uint8"),
    ],
)
def test_shape_and_dtype_agree_with_what_was_saved(mode, fmt, shape, dtype):
    assert shape_from_bytes(encode(mode, fmt=fmt)) == (shape, dtype)


def test_exif_rotation_does_not_swap_height_and_width():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode("RGB", (30, 20), "JPEG", exif=exif.tobytes())
    assert shape_from_bytes(data) == ((20, 30, 3), "uint8")


def test_progressive_jpeg_is_read():
    assert shape_from_bytes(encode("RGB", (30, 20), "JPEG", progressive=True)) == (
        (20, 30, 3),
        "uint8",
    )


def test_frame_behind_a_long_profile_is_found(tmp_path):
    # Each ICC segment may take 64 KiB, so the frame lies far beyond the first bytes.
    data = encode("RGB", (30, 20), "JPEG", icc_profile=bytes(200_000))
    assert data.find(b"\xff\xc0") > headers.FIRST_BYTES
    (tmp_path / "a.jpg").write_bytes(data)
    answer = headers.read_headers(str(tmp_path), ["a.jpg"])
    assert answer["shapes"] == [[20, 30, 3, 8, 1, "a.jpg"]]


def test_thumbnail_inside_exif_is_not_taken_for_the_picture(tmp_path):
    thumbnail = encode("RGB", (160, 120), "JPEG")
    segment = b"Exif\0\0" + thumbnail
    picture = encode("RGB", (64, 48), "JPEG")
    data = picture[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + picture[2:]
    assert shape_from_bytes(data) == ((48, 64, 3), "uint8")


def png_header(width, height):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(
        ">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", headers.EMPTY),
        (png_header(2**31 - 1, 2**31 - 1), headers.LIES),
        (png_header(0, 10), headers.BROKEN),
        (png_header(10, 10)[:20], headers.BROKEN),
        (b"\xff\xd8\xff\xe0\x00\x04ab", headers.BROKEN),
        (b"\xff\xd8\xff" + b"\xff" * 5000, headers.BROKEN),
        (b"GIF8", headers.BROKEN),
    ],
    ids=["empty", "lying", "zero-width", "cut", "cut-jpeg", "endless-fill", "cut-gif"],
)
def test_unusable_header_is_named(tmp_path, data, reason):
    (tmp_path / "x.png").write_bytes(data)
    answer = headers.read_headers(str(tmp_path), ["x.png"])
    assert answer["failed"] == {reason: ["x.png"]}
    assert answer["shapes"] == []


def test_html_named_jpg_is_not_an_image(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"<html>404</html>")
    assert headers.read_headers(str(tmp_path), ["x.jpg"])["other"] == ["x.jpg"]
    with pytest.raises(Unreadable, match=headers.NOT_AN_IMAGE):
        shape_of_file(str(tmp_path / "x.jpg"))


def test_eps_is_never_given_to_a_renderer(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(Unreadable, match=headers.NOT_AN_IMAGE):
        shape_of_file(str(tmp_path / "x.jpg"))


REAL = [encode("RGB", fmt=fmt) for fmt in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")]


@given(st.sampled_from(REAL), st.data())
def test_broken_bytes_give_a_shape_or_none_and_never_raise(data, draw):
    broken = bytearray(data[: draw.draw(st.integers(0, len(data)))])
    for place in draw.draw(st.lists(st.integers(0, len(data)), max_size=8)):
        if place < len(broken):
            broken[place] = draw.draw(st.integers(0, 255))
    found = shape_from_bytes(bytes(broken))
    assert found is None or len(found[0]) == 3


def test_worker_answers_as_this_process_does_and_ends_with_its_input(tmp_path):
    (tmp_path / "a.png").write_bytes(encode("RGB"))
    (tmp_path / "b.png").write_bytes(b"")
    names = ["a.png", "b.png", "gone.png"]
    request = json.dumps([str(tmp_path), names]) + "\n"
    run = subprocess.run(
        [sys.executable, "-I", "-S", headers.__file__],
        input=request * 2,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    expected = headers.answer(str(tmp_path), names)
    assert [json.loads(line) for line in run.stdout.splitlines()] == [expected, expected]


def test_dead_workers_cost_nothing_but_time(tmp_path):
    (tmp_path / "a.png").write_bytes(encode("RGB"))
    pool = HeaderPool(start_after=0, workers=2)
    try:
        pool.read(Chunk(str(tmp_path), ()), ["a.png"]).result()
        for process in pool._processes:
            process.kill()
            process.wait()
        answers = [pool.read(Chunk(str(tmp_path), ()), ["a.png"]) for _ in range(6)]
        assert all(answer.result(timeout=30)["shapes"] for answer in answers)
    finally:
        pool.close()
    assert all(process.poll() is not None for process in pool._processes)


def test_folder_that_has_gone_fails_by_name(tmp_path):
    answer = headers.answer(str(tmp_path / "gone"), ["a.png"])
    assert list(answer["failed"].values()) == [["a.png"]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_picture_is_a_permission_matter(tmp_path):
    (tmp_path / "a.png").write_bytes(encode("RGB"))
    (tmp_path / "a.png").chmod(0)
    assert headers.read_headers(str(tmp_path), ["a.png"])["failed"] == {
        "permission denied": ["a.png"]
    }
