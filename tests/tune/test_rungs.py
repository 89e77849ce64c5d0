"""Which size is compiled next, over functions of the batch that stand for a compiler."""

import itertools
import random

import pytest

from oomdoctor.tune.rungs import Ladder, bracket, next_size

TARGET = 14_000
MOST = 6


def search(needs, ladder, *, guess, held):
    found = {}
    while len(found) < MOST:
        size = next_size(
            found, ladder, TARGET, guess=guess, held_bytes=held, left=MOST - len(found)
        )
        if size is None:
            break
        assert size not in found
        found[size] = needs(size)
    return found


@pytest.mark.parametrize("multiple", [1, 7, 8])
@pytest.mark.parametrize("maximum", [8, 100, 1001, 8192])
def test_rungs_are_close_and_reach_from_the_smallest_size_to_the_largest(multiple, maximum):
    ladder = Ladder(minimum=3, maximum=maximum, multiple_of=multiple)
    rungs = [ladder.first]
    while rungs[-1] < ladder.last:
        rungs.append(ladder.after(rungs[-1]))

    assert rungs[0] >= 3
    assert all(size % multiple == 0 for size in rungs)
    assert [ladder.before(size) for size in rungs[1:]] == rungs[:-1]
    for low, high in itertools.pairwise(rungs):
        assert high - low <= max(multiple, low // 16)
        assert ladder.at_most(high - 1) == low


def straight(memory):
    return memory


def recomputed(memory):
    """Nearly flat from three quarters of the card on, then steep."""
    limit = 0.76 * 15_600
    if memory < limit:
        return memory
    return max(limit + 0.05 * (memory - limit), 1.1 * memory - 0.55 * 15_600)


@pytest.mark.parametrize("bend", [straight, recomputed])
@pytest.mark.parametrize("seed", range(30))
def test_the_search_ends_with_proof(seed, bend):
    chance = random.Random(seed)
    fixed, each = chance.choice([10, 300, 3000]), 10 ** chance.uniform(0.3, 3.3)
    ladder = Ladder(maximum=8192)
    answer = max(size for size in range(1, 8193) if bend(fixed + each * size) <= TARGET)
    guess = int(answer * chance.uniform(0.55, 1.9)) or 1

    found = search(lambda size: int(bend(fixed + each * size)), ladder, guess=guess, held=fixed)

    low, high = bracket(found, TARGET)
    if answer == ladder.last:
        assert (low, high) == (answer, None)
    else:
        assert ladder.after(low) == high
        assert low <= answer < high


def test_where_nothing_fits_the_search_ends_at_the_smallest_size():
    found = search(lambda size: 20_000 + size, Ladder(maximum=8192), guess=300, held=20_000)

    assert bracket(found, TARGET)[0] is None
    assert min(found) == 1


def test_where_all_fit_the_search_ends_at_the_largest_size():
    found = search(lambda size: 100, Ladder(maximum=100), guess=3, held=100)

    assert max(found) == 100


def test_no_size_is_between_the_smallest_and_the_largest():
    assert next_size({}, Ladder(minimum=9, maximum=12, multiple_of=8), TARGET, left=6) is None
