"""What was recorded in one process, against what other orders of ops take."""

import pytest

from oomdoctor.measure.luck import Orders

ORDERS = Orders(100, [504, *[534] * 7, *[565] * 8])


@pytest.mark.parametrize(
    ("peak", "excess"),
    [(506, 550 / 489), (530, 550 / 519), (570, 1.0)],
    ids=["lucky", "usual", "unlucky"],
)
def test_the_recorded_order_is_the_nearest_simulated_one(peak, excess):
    assert ORDERS.excess(100, peak, 15) == pytest.approx(excess)


def test_another_size_takes_as_much_more():
    twice = 15 + 2 * (534 - 15)
    assert ORDERS.excess(200, twice, 15) == pytest.approx(550 / 519)


def test_a_rare_order_is_not_what_a_size_must_survive():
    assert Orders(100, [240] * 13 + [256] * 3).excess(100, 240, 100) == 1.0


@pytest.mark.parametrize("peak", [0, 440, 700])
def test_a_step_that_is_like_none_simulated_says_nothing(peak):
    assert ORDERS.excess(100, peak, 15) == 1.0


def test_nothing_simulated_says_nothing():
    assert Orders(8, []).excess(100, 500, 15) == 1.0
