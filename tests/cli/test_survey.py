"""`--machine all`: one table, the machines of the catalogue by memory."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oomdoctor.api.survey import machines_alike
from oomdoctor.facts import Facts, verdict_of
from oomdoctor.findings import Report
from oomdoctor.probe.catalogue import list_machines
from oomdoctor.report import page, text
from oomdoctor.report.views import view_of

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from figures import estimate_of


@pytest.fixture
def data(tmp_path):
    np.save(tmp_path / "x_train.npy", np.zeros((100, 8, 8), "float32"))
    return tmp_path


def run(*args):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_data_is_compared_with_every_machine_whose_ram_is_known(data):
    done = run("check", data, "--machine", "all", "--image-size", "8x8")
    assert done.returncode == 0, done.stderr
    known = [entry.name for entry in list_machines() if entry.ram_usable_bytes is not None]
    assert done.stdout.startswith(f"✓ It fits {len(known)} of {len(known)} machines")
    for name in known:
        assert name[:4] in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_fits_nowhere_fails_and_json_has_every_machine(data):
    big = data / "big"
    big.mkdir()
    with (big / "x.npy").open("wb") as file:
        shape = (2**30, 1000)
        np.lib.format.write_array_header_2_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        file.truncate(2**12 + 4 * 2**30 * 1000)
    done = run("check", big, "--machine", "all", "--load", "memory", "--format", "json")
    assert done.returncode == 1, done.stderr
    plain = json.loads(done.stdout)
    assert plain["verdict"] == "does_not_fit"
    assert len(plain["reports"]) == len(machines_alike(with_ram=True))


def test_the_function_says_the_same(data):
    import oomdoctor

    report = oomdoctor.suggest_machine(str(data))
    assert report.verdict == "fits"
    assert len(report.parts) == len(machines_alike(with_ram=True))
    assert len(report.to_dict()["reports"]) == len(report.parts)
    frame = report.to_frame()
    assert list(frame["machine"]) == [part.target for part in report.parts]
    assert (frame["ram_used_bytes"] > 0).all()


@pytest.mark.tensorflow
def test_a_model_is_compared_with_every_card(tmp_path):
    keras = pytest.importorskip("keras")
    import oomdoctor

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    report = oomdoctor.suggest_machine(model, batch_size=8, jit="off")
    assert len(report.parts) == len(machines_alike(with_ram=False))
    assert {part.facts.estimate.program for part in report.parts} == {"executor"}
    assert report.verdict == "fits"


@pytest.mark.parametrize("more", [["--machine", "t4"], ["--vram", "2GiB"], ["--baseline", "b"]])
def test_all_stands_alone(data, more):
    done = run("check", data, "--machine", "all", *more)
    assert done.returncode == 2
    assert "--machine all" in done.stderr


def test_cards_that_a_step_cannot_tell_apart_are_one_row_the_smallest_first():
    alike = machines_alike(with_ram=False)
    sizes = [one.machine.usable_vram_bytes for one in alike]
    assert sizes == sorted(sizes)
    titles = [one.title for one in alike]
    assert any(title.startswith("t4 (") and "colab-t4" in title for title in titles)
    names = [name for one in alike for name in one.names]
    assert sorted(names) == sorted(entry.name for entry in list_machines() if entry.gpus)


def test_the_table_of_cards_and_its_page():
    parts = []
    for one in machines_alike(with_ram=False):
        estimate = replace(estimate_of(batch=100), program="xla")
        budget = one.machine.usable_vram_bytes
        parts.append(
            Report(
                command="estimate",
                verdict=verdict_of(estimate.low_bytes, estimate.high_bytes, budget),
                facts=Facts(machine=one.machine, estimate=estimate),
                subject="app:build, batch 100",
                target=one.title,
            )
        )
    report = Report(
        command="estimate", verdict="fits", facts=Facts(), parts=tuple(parts), is_survey=True
    )
    told = text.render(view_of(report))
    fitting = [part for part in parts if part.verdict == "fits"]
    assert told.startswith(f"✓ It fits {len(fitting)} of {len(parts)} machines")
    assert f"the smallest is {fitting[0].target}" in " ".join(told.split())
    assert max(map(len, told.splitlines())) <= 80
    assert page.render(report).count('class="card ') == len(parts)
