"""CUDA_VISIBLE_DEVICES, as NVIDIA's guides describe it."""

from __future__ import annotations

import pytest

from oomdoctor.probe.visible import Card, Slice, choose_visible


def card(index: int, *, name: str = "Tesla T4", slices: int | None = None) -> Card:
    return Card(
        index=index,
        handle=None,
        name=name,
        uuid=f"GPU-{index}{index}aa-0000",
        is_split=slices is not None,
        slices=tuple(
            Slice(
                handle=None,
                uuid=f"MIG-{index}{number}bb-0000",
                gpu_instance=number + 1,
                compute_instance=0,
            )
            for number in range(slices or 0)
        ),
    )


FOUR = [card(index) for index in range(4)]


def seen(cards: list[Card], text: str | None = None, **environ: str) -> list[str]:
    if text is not None:
        environ["CUDA_VISIBLE_DEVICES"] = text
    visible, _ = choose_visible(cards, environ)
    return [str(one.index) if part is None else str(part.uuid) for one, part in visible]


def notes(cards: list[Card], text: str | None = None, **environ: str) -> tuple[str, ...]:
    if text is not None:
        environ["CUDA_VISIBLE_DEVICES"] = text
    return choose_visible(cards, environ)[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ["0", "1", "2", "3"]),
        ("2", ["2"]),
        ("2,0", ["2", "0"]),
        (" 3 , 1 ", ["3", "1"]),
        ("GPU-22aa", ["2"]),
        ("gpu-22AA-0000,GPU-0", ["2", "0"]),
    ],
)
def test_cards_are_seen_in_the_order_of_the_list(text, expected):
    assert seen(FOUR, text) == expected
    assert notes(FOUR, text) == ()


@pytest.mark.parametrize("text", ["", "  ", "-1", "NoDevFiles", "4", "99999999999999999999", "all"])
def test_nothing_is_seen_where_the_first_entry_is_not_valid(text):
    assert seen(FOUR, text) == []
    assert "hides 4 GPUs" in notes(FOUR, text)[0]


@pytest.mark.parametrize("text", ["0,2,-1,1", "0,2,7,1", "0,2,,1", "0,2,GPU-11aa,1", "0,2,1.0"])
def test_the_list_ends_before_the_first_entry_that_is_not_valid(text):
    assert seen(FOUR, text) == ["0", "2"]
    assert "hides 2 GPUs" in notes(FOUR, text)[0]


@pytest.mark.parametrize("text", ["0,0", "1,0,1", "GPU-11aa,GPU-1"])
def test_a_card_named_twice_leaves_none(text):
    assert seen(FOUR, text) == []
    assert "twice" in notes(FOUR, text)[0]


def test_a_card_named_twice_after_the_end_of_the_list_does_no_harm():
    assert seen(FOUR, "0,-1,0") == ["0"]


def test_the_beginning_of_a_uuid_must_name_one_card():
    assert seen(FOUR, "GPU-") == []


def test_different_models_make_the_order_a_guess():
    mixed = [card(0, name="Quadro P400"), card(1, name="RTX 4090")]

    assert "order here is a guess" in notes(mixed)[0]
    assert "order here is a guess" in notes(mixed, "1")[0]


def test_the_order_is_no_guess_by_bus_or_by_uuid_or_with_equal_cards():
    mixed = [card(0, name="Quadro P400"), card(1, name="RTX 4090")]

    assert notes(mixed, "1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == ()
    assert notes(mixed, "GPU-11aa") == ()
    assert notes(FOUR) == ()


def test_no_order_is_guessed_where_nothing_is_seen():
    mixed = [card(0, name="Quadro P400"), card(1, name="RTX 4090")]

    assert len(notes(mixed, "")) == 1


def test_one_slice_is_seen_and_no_whole_card_beside_it():
    cards = [card(0), card(1, slices=2), card(2, slices=1)]

    assert seen(cards) == ["MIG-10bb-0000"]
    assert "of 4 devices" in notes(cards)[0]


def test_the_index_of_a_split_card_means_its_first_slice():
    assert seen([card(0), card(1, slices=2)], "1") == ["MIG-10bb-0000"]


@pytest.mark.parametrize("text", ["MIG-11bb", "mig-11bb-0000", "MIG-GPU-11aa-0000/2/0"])
def test_a_slice_is_named_by_its_id_or_by_its_instances(text):
    cards = [card(0), card(1, slices=2)]

    assert seen(cards, text) == ["MIG-11bb-0000"]
    assert notes(cards, text) == ()


@pytest.mark.parametrize("text", ["MIG-", "MIG-77", "MIG-GPU-11aa/3/0", "MIG-GPU-00aa/1/0"])
def test_a_slice_that_does_not_exist_ends_the_list(text):
    assert seen([card(0), card(1, slices=2)], text) == []


def test_of_several_slices_in_the_list_the_first_is_seen():
    assert seen([card(0, slices=2)], "MIG-01bb,MIG-00bb") == ["MIG-01bb-0000"]


def test_a_split_card_without_slices_cannot_be_used():
    cards = [card(0, slices=0), card(1)]

    assert seen(cards) == ["1"]
    assert "has no slices" in notes(cards)[0]
