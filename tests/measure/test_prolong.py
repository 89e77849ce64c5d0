"""Steps after the recorded ones: what they replace is what is there."""

from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.allocator import Pool
from oomdoctor.measure.prolong import prolonged

HELD = {0: (400.0, 0.0), 1: (400.0, 0.0), 2: (0.0, 8.0)}
"""Two variables and a batch."""


@st.composite
def replacing(draw):
    """Return steps that replace some of what is held, with scratch tensors in between."""
    alive, following, steps = dict(HELD), 100, []
    for _ in range(draw(st.integers(1, 4))):
        step = []
        for old in draw(st.permutations(sorted(alive))):
            if draw(st.booleans()):
                scratch, new, following = following + 1, following + 2, following + 2
                step += [(scratch, 10.0, 4.0), (new, *alive[old]), (-old - 1, 0, 0)]
                step.append((-scratch - 1, 0, 0))
                alive[new] = alive.pop(old)
        steps.append(step)
    return steps


@given(replacing(), st.integers(1, 6))
def test_a_step_leaves_as_much_as_it_found_and_releases_nothing_twice(steps, count):
    further = prolonged(steps, HELD, 8, count)
    assert len(further) == count
    sizes, alive = dict(HELD), set(HELD)
    for step in (*steps, *further):
        for number, fixed, each in step:
            if number < 0:
                alive.remove(-number - 1)
            else:
                assert number not in sizes
                sizes[number] = (fixed, each)
                alive.add(number)
        assert sorted(sizes[number] for number in alive) == sorted(HELD.values())


def test_variables_wander_further_with_each_step():
    """Two orders by turns: what one frees, the other cannot always use."""
    large, small = (0.0, 100.0), (30 * 1024.0, 0.0)
    held = {0: small, 1: small}
    early = [(10, *small), (11, *large), (-1, 0, 0), (-12, 0, 0)]
    late = [(20, *large), (21, *small), (-21, 0, 0), (-2, 0, 0)]
    again = [(30, *small), (31, *large), (-11, 0, 0), (-32, 0, 0)]
    places_of = set()
    pool, places = Pool([(0, 2**30)]), {}
    for number in held:
        places[number] = pool.allocate(30 * 1024)
    recorded = [early, late, again]
    for step in (*recorded, *prolonged(recorded, held, 4096, 20)):
        for number, fixed, each in step:
            if number < 0:
                pool.release(places.pop(-number - 1))
            else:
                places[number] = pool.allocate(round(fixed + each * 4096))
        places_of.add(tuple(sorted(places.values())))
    assert len(places) == len(held)
    assert len(places_of) > 2
