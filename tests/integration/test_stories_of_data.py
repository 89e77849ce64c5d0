"""The stories of people who ran out of memory, told again with files on disk and the real CLI."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

GIB = 1024**3


def oomdoctor(*args):
    run = subprocess.run(
        [sys.executable, "-m", "oomdoctor", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in run.stderr
    return run


def check_json(*args):
    run = oomdoctor("check", *args, "--format", "json")
    return run.returncode, json.loads(run.stdout)


def sparse_array(path, shape, dtype="<f4"):
    """Write a .npy file of any size that takes no room on disk."""
    with open(path, "wb") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(shape)) * np.dtype(dtype).itemsize)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    for split, samples in (("train", 16_283), ("val", 3_333), ("test", 3_333)):
        sparse_array(folder / f"x_{split}.npy", (samples, 150, 150, 3))
    return folder


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("greyscale")
    buffer = io.BytesIO()
    Image.new("L", (1024, 1024), 120).save(buffer, "PNG")
    for split, count in (("train", 4_000), ("test", 2_000)):
        (folder / split / "scan").mkdir(parents=True)
        for number in range(count):
            (folder / split / "scan" / f"{number:05}.png").write_bytes(buffer.getvalue())
    return folder


def test_array_of_4_gib_does_not_fit_a_card_with_2_7_gib_free(arrays):
    code, report = check_json(arrays / "x_train.npy", "--vram", "2.7GiB", "--ram", "32GiB")

    assert code == 1
    assert report["verdict"] == "does_not_fit"
    assert report["footprint"]["decoded_bytes"] == 4_396_410_000
    assert report["footprint"]["sample_bytes"] == 270_000
    assert report["inventory"]["samples"] == 16_283
    assert report["footprint"]["recommended"] == "stream"


def test_the_same_array_fits_a_larger_card(arrays):
    code, report = check_json(arrays / "x_train.npy", "--vram", "16GiB", "--ram", "32GiB")

    assert (code, report["verdict"]) == (0, "fits")


def test_validation_and_test_are_counted_with_their_splits(arrays):
    code, report = check_json(arrays, "--vram", "2.7GiB", "--ram", "32GiB")

    groups = {group["split"]: group for group in report["inventory"]["groups"]}
    assert code == 1
    assert groups["train"]["decoded_bytes"] == 4_396_410_000
    assert groups["validation"]["decoded_bytes"] == pytest.approx(0.9e9, rel=0.01)
    assert groups["test"]["decoded_bytes"] == pytest.approx(0.9e9, rel=0.01)
    assert report["footprint"]["decoded_bytes"] == sum(
        group["decoded_bytes"] for group in groups.values()
    )


def test_text_says_4_09_gib_as_the_allocator_did(arrays):
    run = oomdoctor("check", arrays / "x_train.npy", "--vram", "2.7GiB", "--ram", "32GiB")

    assert run.returncode == 1
    assert run.stdout.startswith("✗ It does not fit")
    assert "4.09 GiB of GPU memory; 2.70 GiB is free" in " ".join(run.stdout.split())


LIBRARIES = 2.3
"""GiB that the notebook's libraries took in that story."""


@pytest.mark.parametrize(
    ("side", "told"), [(256, 2.6), (512, 3.3), (1024, 6.3), (1536, 11.1), (2048, None)]
)
def test_ram_by_image_size_is_what_the_notebook_showed(small_files, side, told):
    code, report = check_json(
        small_files,
        *("--image-size", f"{side}x{side}x1", "--dtype", "uint8", "--load", "memory"),
        *("--ram", "12GiB"),
    )

    train = next(g for g in report["inventory"]["groups"] if g["split"] == "train")
    held = train["decoded_bytes"] / GIB + LIBRARIES
    assert train["samples"] == 4_000
    assert held > 12 if told is None else held == pytest.approx(told, abs=0.1)
    if told is None:
        assert (code, report["verdict"]) == (1, "does_not_fit")


def test_size_on_disk_is_said_to_mislead_by_orders_of_magnitude(small_files):
    run = oomdoctor("check", small_files, "--load", "memory", "--ram", "12GiB")

    assert run.returncode == 1
    assert "× larger once decoded" in run.stdout
    _, report = check_json(small_files, "--load", "memory", "--ram", "12GiB")
    assert report["footprint"]["decoded_bytes"] > 1000 * report["inventory"]["stored_bytes"]


def test_ten_thousand_pictures_fit_neither_colabs_ram_nor_its_card(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (512, 512)).save(buffer, "PNG")
    for number in range(10_000):
        (tmp_path / f"{number:05}.png").write_bytes(buffer.getvalue())

    code, report = check_json(tmp_path, "--load", "memory", "--ram", "12GB", "--vram", "15GB")

    assert (code, report["verdict"]) == (1, "does_not_fit")
    assert report["footprint"]["decoded_bytes"] == 31_457_280_000
    ways = {feeding["way"]: feeding for feeding in report["footprint"]["feedings"]}
    assert ways["device"]["ram_verdict"] == ways["device"]["vram_verdict"] == "does_not_fit"
    assert ways["stream"]["ram_verdict"] == ways["stream"]["vram_verdict"] == "fits"
    assert report["footprint"]["recommended"] == "stream"
    code, _ = check_json(tmp_path, "--load", "memory", "--ram", "64GB", "--vram", "40GB")
    assert code == 0
