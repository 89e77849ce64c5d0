import os
import random
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from oomdoctor.errors import InputError
from oomdoctor.inventory import scan as scan_module
from oomdoctor.inventory import sources
from oomdoctor.inventory.scan import scan


def picture(path, size=(8, 6), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)


def only_group(inventory):
    (group,) = inventory.groups
    return group


def reasons(inventory):
    return {skipped.reason: skipped.files for skipped in inventory.skipped}


def test_splits_and_classes_are_recognised_and_counted(tmp_path):
    for split, count in (("train", 4), ("val", 2), ("test", 1)):
        for kind in ("cat", "dog"):
            for number in range(count):
                picture(tmp_path / split / kind / f"{number}.png")

    inventory = scan([tmp_path])

    assert [(g.split, g.samples, g.classes) for g in inventory.groups] == [
        ("train", 8, (("cat", 4), ("dog", 4))),
        ("validation", 4, (("cat", 2), ("dog", 2))),
        ("test", 2, (("cat", 1), ("dog", 1))),
    ]
    assert inventory.samples == inventory.files == 14
    assert inventory.is_exact


def test_ragged_pictures_report_their_spread_and_the_largest(tmp_path):
    for number, width in enumerate((10, 10, 10, 20, 400)):
        picture(tmp_path / f"{number}.png", (width, 10))

    group = only_group(scan([tmp_path]))

    assert group.shapes.smallest == (10, 10, 3)
    assert group.shapes.median == group.shapes.most_common == (10, 10, 3)
    assert group.shapes.largest == (10, 400, 3)
    assert group.shapes.distinct == 3
    assert group.largest_sample == "4.png"
    assert group.elements == (30 + 20 + 400) * 10 * 3


def test_labels_beside_their_inputs_are_not_counted_as_samples(tmp_path):
    np.save(tmp_path / "x_train.npy", np.zeros((6, 4, 4, 3), "float32"))
    np.save(tmp_path / "y_train.npy", np.zeros((6,), "int64"))
    np.savez(tmp_path / "more.npz", x_test=np.zeros((2, 4, 4, 3)), y_test=np.zeros((2, 10)))

    inventory = scan([tmp_path])

    roles = {group.name: (group.split, group.role, group.samples) for group in inventory.groups}
    assert roles == {
        "x_train.npy": ("train", "inputs", 6),
        "y_train.npy": ("train", "targets", 6),
        "more.npz:x_test": ("test", "inputs", 2),
        "more.npz:y_test": ("test", "targets", 2),
    }
    assert inventory.samples == 8


def test_shards_that_differ_in_digits_are_one_group(tmp_path):
    for number in range(3):
        np.save(tmp_path / f"part-{number:05}.npy", np.zeros((10, 5), "float32"))

    group = only_group(scan([tmp_path]))

    assert (group.name, group.files, group.samples) == ("part-*.npy", 3, 30)


def test_many_like_arrays_are_one_sample_each(tmp_path):
    for number in range(70):
        np.save(tmp_path / f"{number}.npy", np.zeros((10, 5), "float32"))

    group = only_group(scan([tmp_path]))

    assert (group.samples, group.shapes.most_common) == (70, (10, 5))
    assert "taken to be one sample" in group.notes[0]


def test_pictures_that_keras_would_ignore_are_noted(tmp_path):
    picture(tmp_path / "a.png")
    picture(tmp_path / "b.webp")
    picture(tmp_path / "c.tif")

    inventory = scan([tmp_path])

    assert inventory.samples == 3
    assert any("silently ignores 2 of the images" in note for note in inventory.notes)


def test_mixed_folder_gives_several_groups(tmp_path):
    picture(tmp_path / "a.png")
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "notes.md").write_text("hello")

    inventory = scan([tmp_path])

    assert {group.format for group in inventory.groups} == {"image", "npy", "csv"}
    assert reasons(inventory) == {"not a kind of data that is read": 1}


def test_several_paths_are_one_inventory(tmp_path):
    picture(tmp_path / "a" / "train" / "1.png")
    picture(tmp_path / "b" / "train" / "1.png")

    inventory = scan([tmp_path / "a", tmp_path / "b"])

    assert [(g.name, g.samples) for g in inventory.groups] == [("a/train", 1), ("b/train", 1)]
    assert inventory.root == str(tmp_path)


def test_link_cycles_end_and_linked_folders_count_once(tmp_path):
    picture(tmp_path / "real" / "a.png")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path / "real")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")

    inventory = scan([tmp_path])

    assert inventory.samples == 1
    assert "link to nothing" in reasons(inventory)
    assert reasons(inventory)["link to a folder already seen"] >= 1


def test_link_out_of_the_folder_is_followed_once(tmp_path):
    picture(tmp_path / "elsewhere" / "a.png")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "two").symlink_to(tmp_path / "elsewhere")

    assert scan([tmp_path / "data"]).samples == 1


def test_fifos_and_sockets_are_passed_over_without_opening(tmp_path):
    picture(tmp_path / "a.png")
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.png"))
        inventory = scan([tmp_path])

    assert inventory.samples == 1
    assert reasons(inventory) == {"a FIFO, not a file": 1, "a socket, not a file": 1}


def test_folder_that_cannot_be_read_is_noted(tmp_path, monkeypatch):
    picture(tmp_path / "a.png")
    (tmp_path / "locked").mkdir()
    real = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    # Root may read every folder, so the refusal has to be played.
    monkeypatch.setattr(os, "scandir", refuse)
    inventory = scan([tmp_path])

    assert inventory.samples == 1
    assert reasons(inventory) == {"folder cannot be read (Permission denied)": 1}


def test_odd_names_are_kept_apart_from_the_terminal(tmp_path):
    picture(tmp_path / "a\x1b[2J\n.png")
    os.rename(tmp_path / "a\x1b[2J\n.png", os.fsencode(tmp_path) + b"/\xff\x1b[2J.png")
    (tmp_path / "bad\x07.png").write_bytes(b"")

    inventory = scan([tmp_path])

    assert inventory.samples == 1
    assert inventory.groups[0].largest_sample == "\udcff\x1b[2J.png"


def test_object_array_is_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    np.save(tmp_path / "trap.npy", np.array([Trap()], dtype=object), allow_pickle=True)

    group = only_group(scan([tmp_path]))

    assert not (tmp_path / "sprung").exists()
    assert group.elements is None
    assert "cannot be sized safely" in group.notes[0]


def test_array_claiming_more_than_its_file_holds_is_passed_over(tmp_path):
    with open(tmp_path / "x.npy", "wb") as file:
        claim = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9)}
        np.lib.format.write_array_header_1_0(file, claim)
    np.save(tmp_path / "good.npy", np.zeros((3, 3)))

    inventory = scan([tmp_path])

    assert inventory.samples == 3
    assert sum(reasons(inventory).values()) == 1


def test_path_that_is_missing_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="does not exist: give a folder or a file"):
        scan([tmp_path / "gone"])


def test_sample_scales_up_with_an_interval_that_holds_the_truth(tmp_path):
    chance = random.Random(3)
    truth = 0
    for number in range(300):
        width = chance.choice((8, 16, 32))
        picture(tmp_path / f"{number}.png", (width, 8))
        truth += width * 8 * 3

    group = only_group(scan([tmp_path], sample=100))

    assert group.samples == group.files == 300
    assert not group.is_exact
    assert group.low_elements <= truth <= group.high_elements
    assert group.high_elements < 1.3 * truth


def test_sample_larger_than_the_folder_is_exact(tmp_path):
    picture(tmp_path / "a.png")

    assert only_group(scan([tmp_path], sample=10)).is_exact


def test_interrupted_scan_reports_what_was_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(scan_module.walk, "CHUNK_FILES", 5)
    for number in range(20):
        picture(tmp_path / f"{number}.png")

    def interrupt(files):
        if files >= 10:
            raise KeyboardInterrupt

    inventory = scan([tmp_path], progress=interrupt, keep_partial=True)
    assert 0 < inventory.samples < 20
    assert not inventory.is_complete
    with pytest.raises(KeyboardInterrupt):
        scan([tmp_path], progress=interrupt)


def test_workers_and_this_process_find_the_same(tmp_path, monkeypatch):
    for number in range(60):
        picture(tmp_path / "train" / str(number % 3) / f"{number}.png", (number + 1, 4))
    (tmp_path / "train" / "0" / "bad.png").write_bytes(b"")
    alone = scan([tmp_path])
    monkeypatch.setattr(scan_module.walk, "CHUNK_FILES", 7)
    monkeypatch.setattr(sources, "WORKERS_AFTER_FILES", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)

    assert scan([tmp_path]) == alone


def test_workers_do_not_outlive_a_killed_scan(tmp_path):
    for number in range(40):
        picture(tmp_path / f"{number}.png")
    script = (
        "import os, time\n"
        "from oomdoctor.inventory.images import HeaderPool\n"
        "from oomdoctor.inventory.walk import Chunk\n"
        "pool = HeaderPool(start_after=0, workers=2)\n"
        f"pool.read(Chunk({str(tmp_path)!r}, ()), ['0.png']).result()\n"
        "print(*[p.pid for p in pool._processes], flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        workers = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while any(_is_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_is_alive(pid) for pid in workers)


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
