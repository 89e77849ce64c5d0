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
        size = next_size(found, ladder, TARGET, guess=guess, held_bytes=held)
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
        assert high - low <= max(multiple, low // 32)
        assert ladder.at_most(high - 1) == low


@pytest.mark.parametrize("seed", range(40))
def test_a_line_is_searched_to_its_end(seed):
    chance = random.Random(seed)
    fixed, each = chance.choice([10, 300, 3000]), 10 ** chance.uniform(0.3, 3.3)
    guess = int((TARGET - fixed) / each * chance.uniform(0.4, 2.5)) or 1
    ladder = Ladder(maximum=8192)

    found = search(lambda size: int(fixed + each * size), ladder, guess=guess, held=fixed)

    low, high = bracket(found, TARGET)
    assert ladder.after(low) == high
    assert low <= (TARGET - fixed) / each < high


def test_where_nothing_fits_the_search_ends_at_the_smallest_size():
    found = search(lambda size: 20_000 + size, Ladder(maximum=8192), guess=300, held=20_000)

    assert bracket(found, TARGET)[0] is None
    assert min(found) == 1


def test_where_all_fit_the_search_ends_at_the_largest_size():
    found = search(lambda size: 100, Ladder(maximum=100), guess=3, held=100)

    assert max(found) == 100


def test_no_size_is_between_the_smallest_and_the_largest():
    assert next_size({}, Ladder(minimum=9, maximum=12, multiple_of=8), TARGET) is None
