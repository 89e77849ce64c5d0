"""The machine catalogue: its names, its figures, and what it says about where they come from."""

from __future__ import annotations

import pytest

from oomdoctor.errors import UsageError
from oomdoctor.probe.catalogue import find_machine, list_machines
from oomdoctor.probe.reserve import tensorflow_reserve_bytes
from oomdoctor.units import GIB, MIB

ENTRIES = list_machines()


def test_the_machines_people_ask_for_are_there():
    names = {entry.name for entry in ENTRIES}

    assert names >= {
        "colab-cpu",
        "colab-t4",
        "colab-a100",
        "kaggle-p100",
        "kaggle-t4x2",
        "rtx2080ti",
        "rtx3060",
        "rtx3060-laptop",
        "rtx3070",
        "rtx3080",
        "rtx3090",
        "rtx4070",
        "rtx4080",
        "rtx4090",
        "a10g",
        "a4000",
        "a6000",
        "p100",
        "v100-32gb",
        "a100-40gb",
        "a100-80gb",
        "h100-80gb",
        "l4",
        "t4",
        "v100-16gb",
        "github-actions-runner",
    }
    assert len(names) == len(ENTRIES)


def test_machines_are_listed_by_name():
    assert [entry.name for entry in ENTRIES] == sorted(entry.name for entry in ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_figure_has_a_source(entry):
    figures = 1 + 2 * len({gpu.name for gpu in entry.gpus})

    assert len(entry.sources) == figures
    assert all(source.partition(": ")[2] for source in entry.sources)
    assert entry.description


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_usable_memory_is_what_the_system_and_tensorflow_leave(entry):
    if entry.ram_total_bytes is None:
        assert entry.ram_usable_bytes is None
    else:
        assert entry.ram_total_bytes // 2 < entry.ram_usable_bytes < entry.ram_total_bytes
    for gpu in entry.gpus:
        most = gpu.total_bytes - tensorflow_reserve_bytes(gpu.compute_capability)
        # What remains above the log is kept by the driver; a desktop in use keeps far more.
        slack = 2 * GIB if "Laptop" in gpu.name else 1350 * MIB
        assert most - slack < gpu.usable_bytes <= most


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_becomes_a_machine(entry):
    machine = find_machine(entry.name)

    assert machine.name == entry.name
    assert machine.ram.origin == "catalogue"
    assert machine.ram.available_bytes == entry.ram_usable_bytes
    assert [gpu.free_bytes for gpu in machine.gpus] == [gpu.usable_bytes for gpu in entry.gpus]
    assert {gpu.origin for gpu in machine.gpus} <= {"catalogue"}


def test_two_cards_are_two_gpus():
    machine = find_machine("kaggle-t4x2")

    assert [gpu.index for gpu in machine.gpus] == [0, 1]


def test_the_story_of_the_laptop_holds():
    (gpu,) = find_machine("rtx3060-laptop").gpus

    assert gpu.total_bytes == 6 * GIB
    assert gpu.free_bytes is not None
    assert gpu.free_bytes < 16_283 * 150 * 150 * 3 * 4


def test_a_card_says_that_ram_depends_on_its_host():
    machine = find_machine("a100-40gb")

    assert machine.ram.total_bytes is None
    assert machine.notes == (
        "a100-40gb is a card alone, so RAM is not checked; pass --ram to check it too.",
    )


def test_a_machine_without_a_gpu_says_so():
    assert find_machine("colab-cpu").notes == ("colab-cpu has no GPU.",)


def test_case_and_spaces_do_not_matter():
    assert find_machine(" Colab-T4 ").name == "colab-t4"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("colab-t5", "colab-t4"), ("kagle-p100", "kaggle-p100"), ("h100", "h100-80gb")],
)
def test_an_unknown_name_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(UsageError, match=f"did you mean '{meant}'.*oomdoctor probe --list-machin"):
        find_machine(typed)


@pytest.mark.parametrize("typed", ["", "nothing-like-it-at-all"])
def test_a_name_like_no_other_still_says_where_to_look(typed):
    with pytest.raises(UsageError, match="catalogue: `oomdoctor probe --list-machines`"):
        find_machine(typed)


@pytest.mark.parametrize(
    ("capability", "mebibytes"),
    [((3, 5), 500), ((6, 1), 500), ((7, 0), 1050), ((8, 9), 1536), ((9, 0), 1800), ((12, 0), 1800)],
)
def test_tensorflow_keeps_a_reserve_by_compute_capability(capability, mebibytes):
    assert tensorflow_reserve_bytes(capability) == mebibytes * MIB
