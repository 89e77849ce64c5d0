"""Cards as XLA is told of them."""

from __future__ import annotations

import pytest

from oomdoctor.errors import UsageError
from oomdoctor.facts import Gpu
from oomdoctor.probe.catalogue import list_machines
from oomdoctor.units import GIB
from oomdoctor.xla.cards import CARDS, card_of, find_card, nearest_card


def test_every_card_of_the_catalogue_is_known():
    for entry in list_machines():
        for gpu in entry.to_machine().gpus:
            card, note = card_of(gpu)
            assert note is None, gpu.name
            assert card.compute_capability == gpu.compute_capability


def test_every_card_is_a_machine_to_compare_with():
    assert {card.name for card in CARDS} <= {entry.name for entry in list_machines()}


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_figures_are_plausible_and_have_a_source(card):
    assert 0.9 * card.class_gib * GIB < card.memory_bytes <= card.class_gib * GIB
    assert 20 <= card.core_count <= 200
    assert 1 < card.clock_ghz < 3
    assert card.source


@pytest.mark.parametrize(
    ("vram", "name"),
    [
        (2.7, "rtx3060-laptop"),
        (6, "rtx3060-laptop"),
        (7.5, "rtx3070"),
        (12, "rtx3060"),
        (15, "t4"),
        (16, "t4"),
        (22, "rtx3090"),
        (40, "a100-40gb"),
        (500, "h100-80gb"),
    ],
)
def test_memory_alone_takes_the_smallest_class_that_can_have_it(vram, name):
    card, sentence = nearest_card(int(vram * GIB))

    assert card.name == name
    assert card.title in sentence
    assert "--machine" in sentence


def test_a_card_that_is_not_listed_becomes_the_most_similar():
    gpu = Gpu(
        index=0,
        name="NVIDIA GeForce RTX 3080 Ti",
        total_bytes=12 * GIB,
        free_bytes=11 * GIB,
        compute_capability=(8, 6),
    )

    card, sentence = card_of(gpu)

    assert card.name == "rtx3060"
    assert sentence is not None
    assert "RTX 3080 Ti" in sentence


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'rtx4090'"):
        find_card("rtx-4090")
