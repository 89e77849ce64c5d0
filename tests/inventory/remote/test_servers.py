"""Folders on real servers on loopback: the answer from disk, for a fraction of the bytes."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.cli import main
from oomdoctor.errors import InputError
from oomdoctor.inventory.address import shown
from oomdoctor.inventory.remote import server as server_module
from oomdoctor.inventory.remote.server import server_of
from oomdoctor.inventory.scan import scan

sys.path.insert(0, str(Path(__file__).parent))
from servers import HttpServer, s3_server

pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One file of most kinds, images in class folders, some of them damaged."""
    root = tmp_path_factory.mktemp("data") / "data"
    for number in range(40):
        place = root / "train" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        noise = Image.effect_noise((320 + number, 240), 60).convert("RGB")
        noise.save(place / f"{number}.jpg", quality=95)
    Image.new("RGB", (30, 20)).save(root / "train" / "cat" / "z.webp")
    np.save(root / "x.npy", np.zeros((10, 4, 4, 3), "float32"))
    np.savez(root / "more.npz", a=np.zeros((5, 2)), b=np.zeros(5))
    (root / "table.csv").write_text("a,b\n" + "1,2\n" * 50)
    (root / "lines.jsonl").write_text('{"a": 1}\n' * 20)
    (root / "bad.png").write_bytes(b"no image")
    (root / "empty.jpg").write_bytes(b"")
    zarr = root / "z.zarr"
    (zarr / "c").mkdir(parents=True)
    (zarr / ".zarray").write_text('{"zarr_format": 2, "shape": [6, 4], "dtype": "<f4"}')
    (zarr / "c" / "0").write_bytes(b"\0" * 96)
    return root


@pytest.fixture(scope="module")
def bucket(folder):
    """The same folder in a bucket of a real S3 server."""
    import boto3

    with s3_server():
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        for file in folder.rglob("*"):
            if file.is_file():
                client.upload_file(str(file), "bucket", f"data/{file.relative_to(folder)}")
        yield "s3://bucket/data/"
        server_module._server.cache_clear()


@pytest.fixture
def traffic():
    """What one test makes a server send."""

    def of(address):
        server_of(address).traffic = server_module.Traffic()
        return server_of(address)

    return of


def alike(inventory, other):
    pairs = zip(inventory.groups, other.groups, strict=True)
    assert not [pair for pair in pairs if pair[0] != pair[1]]
    assert inventory.skipped == other.skipped
    return replace(inventory, root="") == replace(other, root="")


def test_a_bucket_is_read_as_the_folder_it_was_filled_from(folder, bucket):
    assert alike(scan([bucket]), scan([folder]))


def test_one_object_and_one_folder_of_a_bucket_can_be_named(folder, bucket):
    (group,) = scan([bucket + "x.npy"]).groups
    assert (group.name, group.samples, group.shapes.most_common) == ("x.npy", 10, (4, 4, 3))
    assert scan([bucket + "train"]).samples == 41
    assert scan([bucket + "train", folder / "train"]).samples == 82


def test_photographs_cost_one_request_and_a_small_part_of_their_bytes(folder, bucket, traffic):
    server = traffic(bucket)

    inventory = scan([bucket + "train/"])

    listings = 2 * 3 + 1  # a page and the end of it for each folder, and what the address is
    assert server.traffic.requests <= inventory.files + listings
    assert server.traffic.received_bytes < 0.05 * inventory.stored_bytes


def test_an_http_folder_is_read_by_its_index(folder):
    with HttpServer(folder) as server:
        inventory = scan([server.address + "/"])
    assert alike(inventory, scan([folder]))


def test_a_server_without_ranges_is_not_made_to_send_a_large_file_whole(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((64, 1024, 1024), "uint8"))
    np.savez(tmp_path / "m.npz", a=np.zeros((64, 1024, 1024), "uint8"))
    with HttpServer(tmp_path, ranges=False) as server:
        inventory = scan([server.address + "/"])
        sent_bytes = server.sent_bytes
    assert [(g.name, g.samples) for g in inventory.groups] == [("x.npy", 64)]
    assert [s.reason for s in inventory.skipped] == ["the server does not send parts of files"]
    assert sent_bytes < 32 * 1024 * 1024


def test_what_fails_for_a_moment_is_asked_for_again(folder, monkeypatch):
    monkeypatch.setattr(server_module, "_PAUSE_SECONDS", 0.01)
    with HttpServer(folder / "train" / "cat") as server:
        server.failures = {"/0.jpg": [503, 429], "/2.jpg": [500, 500, 500], "/4.jpg": [403]}
        inventory = scan([server.address + "/"])
    assert inventory.samples == 19
    assert {s.reason: s.examples for s in inventory.skipped} == {
        "the server could not be reached": ("2.jpg",),
        "permission denied": ("4.jpg",),
    }


def test_a_frame_far_behind_the_start_of_a_jpeg_is_found(tmp_path):
    picture = Image.effect_noise((400, 300), 60).convert("RGB")
    picture.save(tmp_path / "plain.jpg")
    plain = (tmp_path / "plain.jpg").read_bytes()
    # What a camera writes before the frame: segments of up to 64 KiB.
    segment = b"\xff\xe1" + (65533).to_bytes(2, "big") + b"\0" * 65531
    Image.new("RGB", (8, 8)).save(tmp_path / "plain.jpg")
    (tmp_path / "camera.jpg").write_bytes(plain[:2] + 3 * segment + plain[2:])
    (tmp_path / "cut.jpg").write_bytes(plain[:2] + segment[:5000])
    with HttpServer(tmp_path) as server:
        inventory = scan([server.address + "/"])
    assert alike(inventory, scan([tmp_path]))
    assert inventory.samples == 2


def test_links_of_an_index_that_lead_elsewhere_are_not_followed(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    Image.new("RGB", (8, 8)).save(inside / "a.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "outside.png")
    with HttpServer(tmp_path) as server:
        index = (
            '<a href="a.png">a</a> <a href="../outside.png">b</a> <a href="/outside.png">c</a>'
            '<a href="http://127.0.0.1:9/d.png">d</a> <a href="a.png?sort=1">e</a>'
            '<a href="%2e%2e/outside.png">f</a>'
        )
        server._answer = _with_index(server._answer, "/inside/", index)
        inventory = scan([server.address + "/inside"])
        asked = {path for path, _ in server.requests}
    assert inventory.samples == 1
    assert asked == {"/inside/", "/inside/a.png"}


def _with_index(answer, folder, index):
    def answered(path, wanted):
        if path == folder:
            return 200, ["Content-Type: text/html"], index.encode()
        return answer(path, wanted)

    return answered


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3://no-such-bucket/x", "does not exist: give the address of a folder or a file"),
        ("ftp://host/x", "addresses that begin with ftp:// are not read"),
        ("file:///etc", "addresses that begin with file:// are not read"),
        ("github://owner:repo@main/", "addresses that begin with github:// are not read"),
        ("http://127.0.0.1:9/x/", "the server could not be reached"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(address, says, bucket, monkeypatch):
    monkeypatch.setattr(server_module, "_PAUSE_SECONDS", 0.01)
    with pytest.raises(InputError, match=says):
        scan([address])


def test_keys_and_signatures_are_never_shown(folder):
    assert shown("s3://key:secret@bucket/a?versionId=1#x") == "s3://bucket/a"
    with HttpServer(folder) as server:
        address = server.address.replace("//", "//user:pa55@") + "/x.npy"
        report = oomdoctor.check(address + "?X-Amz-Signature=abcdef", ram="8GiB")
        assert all("X-Amz-Signature=abcdef" in path for path, _ in server.requests)
    shown_text = repr(report) + str(report.to_dict())
    assert "x.npy" in shown_text
    assert not any(word in shown_text for word in ("pa55", "abcdef", "X-Amz"))


def test_a_sample_of_a_bucket_reads_no_more_than_asked_for(bucket, traffic):
    server = traffic(bucket)

    (group,) = scan([bucket + "train/"], sample=8).groups

    assert group.samples == 41
    assert not group.is_exact
    assert server.traffic.requests < 25


def test_settings_of_a_project_cannot_make_a_check_reach_a_server(tmp_path, monkeypatch):
    with HttpServer(tmp_path) as server:
        (tmp_path / "oomdoctor.toml").write_text(f'[[datasets]]\npath = "{server.address}/x.npy"\n')
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            main(["check"])
        assert ended.value.code == 2
        assert server.requests == []
