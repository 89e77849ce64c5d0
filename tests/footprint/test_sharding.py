"""How many cards a model needs that exceeds the largest."""

import pytest

from oomdoctor.facts import Estimate
from oomdoctor.footprint.sharding import HEADROOM, split_over_cards
from oomdoctor.units import GIB

CARDS = [("small", 8 * GIB), ("large", 80 * GIB), ("unknown", None)]


def step(weights, activations):
    parts = (("weights", weights), ("gradients", weights), ("optimizer", 2 * weights))
    peak = 4 * weights + activations
    return Estimate(
        batch_size=1,
        peak_bytes=peak,
        low_bytes=peak,
        high_bytes=peak,
        parts=(*parts, ("activations", activations)),
    )


@pytest.mark.parametrize("weights", [25 * GIB, 100 * GIB, 1000 * GIB])
def test_so_many_cards_hold_the_step_and_one_fewer_does_not(weights):
    split = split_over_cards(step(weights, 4 * GIB), CARDS)

    room = HEADROOM * split.card_bytes
    assert split.card == "large"
    assert split.each_bytes <= room
    assert split.split_bytes / (split.cards - 1) + split.whole_bytes > room


def test_a_model_that_one_card_holds_needs_one():
    assert split_over_cards(step(10 * GIB, GIB), CARDS).cards == 1


def test_activations_larger_than_a_card_cannot_be_helped_by_more():
    split = split_over_cards(step(30 * GIB, 90 * GIB), CARDS)
    assert (split.cards, split.each_bytes) == (None, None)


def test_nothing_is_said_where_nothing_is_known():
    unknown = Estimate(batch_size=1, peak_bytes=1, low_bytes=1, high_bytes=1)
    assert split_over_cards(unknown, CARDS) is None
    assert split_over_cards(None, CARDS) is None
    assert split_over_cards(step(1, 1), [("unknown", None)]) is None
