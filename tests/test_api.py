"""What the functions take, what they refuse, and what they make of live objects."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.errors import InputError, UsageError
from oomdoctor.facts import Machine, Memory

GIB = 2**30


@pytest.fixture
def pictures(tmp_path):
    for number, width in enumerate((8, 8, 16)):
        Image.new("RGB", (width, 8)).save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ram": 1.5}, "is not a size"),
        ({"ram": [1]}, "is not a size"),
        ({"ram": True}, "is not a size"),
        ({"vram": 6}, "6 means 6 bytes: write 6GiB"),
        ({"batch_size": "32"}, "batch_size is a whole number"),
        ({"batch_size": 1.5}, "batch_size is a whole number"),
        ({"batch_size": 0}, "batch_size is a whole number"),
        ({"replicas": 0}, "replicas is a whole number"),
        ({"sample": 0}, "sample is a whole number"),
        ({"image_size": 10}, "is not an image size"),
        ({"image_size": (1.5, 2)}, "is not an image size"),
        ({"image_size": (0, 2)}, "is not an image size"),
        ({"machine": 3}, "is not a machine"),
        ({"load": "disk"}, "is not a way to load data"),
        ({"dtype": "float33"}, "is not a dtype"),
        ({"select": "OD0"}, "'OD0' names no rule"),
    ],
    ids=str,
)
def test_wrong_arguments_say_what_is_right(pictures, options, says):
    with pytest.raises(UsageError, match=says):
        oomdoctor.check(pictures, **options)


def test_arguments_are_taken_as_people_write_them(pictures):
    told = oomdoctor.check(pictures, image_size="10x20x3", dtype=np.float16, select="OD101")
    group = told.facts.footprint.groups[0]
    assert (group.shape, group.dtype) == ((10, 20, 3), "float16")
    assert told.facts.footprint.decoded_bytes == 3 * 10 * 20 * 3 * 2


def test_a_path_given_twice_is_counted_once(pictures):
    assert oomdoctor.check([pictures, str(pictures)]).facts.inventory.samples == 3


def test_a_missing_rules_folder_is_named_whole(pictures):
    with pytest.raises(InputError, match="/no/such/folder"):
        oomdoctor.check(pictures, rules="/no/such/folder")


def test_a_batch_holds_no_more_than_there_is(pictures):
    footprint = oomdoctor.check(pictures, batch_size=10**9).facts.footprint
    assert footprint.batch_bytes == 3 * 16 * 8 * 3 * 4


def test_pictures_of_different_shapes_are_never_recommended_as_one_array(pictures):
    report = oomdoctor.check(pictures, ram="64GiB", vram="64GiB")
    assert report.facts.footprint.recommended == "stream"
    resized = oomdoctor.check(pictures, ram="64GiB", vram="64GiB", image_size=(8, 8))
    assert resized.facts.footprint.recommended == "stream"  # which is how they are fed, and fits
    whole = oomdoctor.check(pictures, ram="64GiB", image_size=(8, 8), load="memory")
    assert whole.facts.footprint.recommended == "memory"


def test_labels_keep_their_dtype(tmp_path):
    np.save(tmp_path / "x_train.npy", np.zeros((4, 8, 8), "float32"))
    np.save(tmp_path / "y_train.npy", np.zeros((4,), "int64"))
    groups = oomdoctor.check(tmp_path, dtype="float16").facts.footprint.groups
    assert {group.name: group.dtype for group in groups} == {
        "x_train.npy": "float16",
        "y_train.npy": "int64",
    }


def this_machine(available):
    return Machine(ram=Memory(total_bytes=64 * GIB, available_bytes=available))


def test_what_a_live_array_holds_already_is_not_needed_again():
    x = np.zeros((1024, 1024, 16), "float32")  # 64 MiB, three times that in `fit`
    need = oomdoctor.check(x, ram="64GiB").facts.footprint.chosen.ram_bytes
    # Measured memory excludes the array; declared memory does not.
    assert oomdoctor.check(x, machine=this_machine(need - x.nbytes)).verdict == "fits"
    assert oomdoctor.check(x, ram=need - x.nbytes).verdict == "does_not_fit"


def test_interrupted_scan_never_says_that_it_fits(pictures, monkeypatch):
    from oomdoctor.inventory import walk

    monkeypatch.setattr(walk, "CHUNK_FILES", 1)

    def interrupt(files):
        if files > 1:
            raise KeyboardInterrupt

    report = oomdoctor.check(pictures, progress=interrupt, keep_partial=True, ram="64GiB")
    assert report.verdict == "unknown"
    assert "interrupted" in repr(report)


@pytest.mark.parametrize(
    ("redirect", "code", "says"),
    [
        (">&-", 2, "Standard output is closed"),
        (">/dev/full", 2, "cannot be written"),
        ("| true", 0, ""),
    ],
)
def test_broken_output_is_one_sentence_at_most(pictures, redirect, code, says):
    command = f"'{sys.executable}' -m oomdoctor check '{pictures}' {redirect}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert says in run.stderr
    assert "Traceback" not in run.stderr
    assert "internal error" not in run.stderr


def test_a_deleted_current_folder_does_not_matter(pictures, tmp_path_factory):
    gone = tmp_path_factory.mktemp("gone")
    # As installed: `python -m` looks for modules in the current folder itself.
    script = Path(sys.executable).parent / "oomdoctor"
    command = f"cd '{gone}' && rmdir '{gone}' && '{script}' check '{pictures}'"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "It fits" in run.stdout
