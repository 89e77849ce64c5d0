"""A real Dask cluster of two workers: the answer of a local scan, also if one of them is killed."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.errors import InputError, UsageError
from oomdoctor.inventory import cluster, walk
from oomdoctor.inventory.scan import scan

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    chance = random.Random(0)
    for number in range(600):
        place = root / "train" / f"class{number % 5}"
        place.mkdir(parents=True, exist_ok=True)
        size = (chance.choice((10, 20, 30 + number)), 8)
        Image.new("RGB", size).save(place / f"{number}.png")
    for number in range(3):
        np.save(root / f"part-{number}.npy", np.zeros((10 + number, 4)))
    (root / "bad.png").write_bytes(b"no image")
    zarr = root / "z.zarr"
    zarr.mkdir()
    (zarr / ".zarray").write_text('{"zarr_format": 2, "shape": [6, 4], "dtype": "<f4"}')
    return root


@pytest.fixture(scope="module")
def workers():
    """A client of two workers that are processes of their own."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


def test_two_workers_find_what_one_machine_finds(folder, workers, monkeypatch):
    monkeypatch.setattr(cluster, "UNIT_FILES", 50)
    monkeypatch.setattr(walk, "CHUNK_FILES", 20)

    assert scan([folder], sources=cluster.Cluster(workers)) == scan([folder])


def test_a_worker_that_is_killed_loses_nothing(folder, workers, monkeypatch):
    monkeypatch.setattr(cluster, "UNIT_FILES", 20)
    monkeypatch.setattr(walk, "CHUNK_FILES", 10)
    victims = list(workers.run(os.getpid).values())
    killed = []

    def kill(files):
        if files > 200 and not killed:
            os.kill(victims[0], signal.SIGKILL)
            killed.append(victims[0])

    found = scan([folder], sources=cluster.Cluster(workers), progress=kill)

    assert killed
    assert found == scan([folder])


def test_more_groups_than_are_kept_apart_are_merged_as_here(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(cluster, "UNIT_FILES", 100)
    monkeypatch.setattr(walk, "CHUNK_FILES", 50)
    for number in range(620):
        letters = "".join(chr(97 + int(digit)) for digit in f"{number:03}")
        (tmp_path / f"{letters}.csv").write_text("a\n1\n")

    assert scan([tmp_path], sources=cluster.Cluster(workers)) == scan([tmp_path])


def test_check_takes_a_client_and_closes_nothing_of_it(folder, workers):
    here = oomdoctor.check(folder, ram="8GiB")
    assert oomdoctor.check(folder, ram="8GiB", client=workers).facts == here.facts
    assert workers.status == "running"


def test_other_versions_are_said(folder, workers, monkeypatch):
    monkeypatch.setattr(cluster, "__version__", "9.9.9")
    (note,) = scan([folder], sources=cluster.Cluster(workers)).notes
    assert "this machine has 9.9.9: install one version" in note


def test_no_scheduler_is_one_sentence():
    with pytest.raises(InputError, match=r"No Dask scheduler answers at tcp:"):
        oomdoctor.check(".", scheduler="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="Give one of workers=, scheduler= and client="):
        oomdoctor.check(".", scheduler="tcp://127.0.0.1:9", workers=2)


@pytest.mark.slow
def test_workers_that_were_started_for_a_scan_do_not_outlive_it(folder):
    script = """
import os
from oomdoctor.inventory.cluster import Cluster
if __name__ == "__main__":
    cluster = Cluster.local(2)
    with cluster:
        print(*cluster._client.run(os.getpid).values(), flush=True)
        os.kill(os.getpid(), 9)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2, ended.stderr[-2000:]
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
