"""Two recorded sizes say of a third whether it fits."""

from dataclasses import replace

from oomdoctor.measure.foresee import FIRST_NUMBER, Foresight, Recorded, foresee
from oomdoctor.measure.replay import Event
from oomdoctor.measure.spec import MAX_BATCH_SIZE

KIB = 1024
MIB = 2**20
REGIONS = [(0, MIB), (10**9, 1024 * MIB)]


def recorded(batch_size, *, order="ab", steps=1):
    """Return steps with two outputs of 1 MiB a sample each, on top of a variable of 4 MiB."""
    variable, batch = (10**9, 4 * MIB), (0, batch_size * KIB)
    events, at, in_use = [], 0, 4 * MIB + batch_size * KIB
    start = variable[0] + variable[1]
    addresses = dict(zip(order, (start, start + batch_size * MIB), strict=True))

    def event(op, size, release):
        nonlocal at, in_use
        at += 1
        in_use += -size if release else size
        return Event(
            at_ps=at,
            thread=1,
            address=addresses[op],
            allocated_bytes=size,
            requested_bytes=size,
            in_use_bytes=in_use,
            is_release=release,
            op=None if release else op,
            kind="output",
        )

    for release in (False, True):
        events += [event(op, batch_size * MIB, release) for op in order]
    return Recorded(batch_size, (batch,), (variable,), (tuple(events),) * steps)


def test_the_largest_size_follows_from_two_smaller_ones():
    foresight = foresee(recorded(8), recorded(2), REGIONS)
    # The small region of 1 MiB takes the batch; beside 4 MiB of variable, 2 MiB a sample.
    assert foresight.largest(105 * MIB, lowest=1, highest=1000) == 50
    assert foresight.fits(50, 105 * MIB)
    assert not foresight.fits(51, 105 * MIB)


def test_a_higher_peak_in_another_order_bounds_the_size():
    seen = replace(recorded(8), elsewhere_bytes=24 * MIB)  # beside the variable 2.5 MiB a sample
    assert seen.most_elsewhere(104 * MIB) == 40
    assert seen.most_elsewhere(3 * MIB) == 0
    assert replace(seen, elsewhere_bytes=4 * MIB).most_elsewhere(104 * MIB) > 1000
    assert recorded(8).most_elsewhere(MIB) == MAX_BATCH_SIZE


def test_batches_that_wait_take_their_part():
    foresight = foresee(recorded(8), recorded(2), REGIONS)
    alone = foresight.largest(1024 * MIB, lowest=1, highest=10_000)
    beside = foresight.largest(1024 * MIB, lowest=1, highest=10_000, batches_ahead=200)
    assert alone > 1.05 * beside


def test_other_processes_may_take_more_for_a_batch_than_this_one():
    foresight = foresee(recorded(8), recorded(2), REGIONS)
    assert foresight.largest(105 * MIB, lowest=1, highest=1000, excess=1.1) == 45
    # As recorded it must fit the limit itself: only the other layouts are other processes.
    assert foresight._fits_from(0, 0, 50, 105 * MIB, 0)


def test_a_limit_that_the_variables_fill_lets_nothing_in():
    foresight = foresee(recorded(8), recorded(2), REGIONS)
    assert foresight.largest(5 * MIB, lowest=1, highest=100) is None
    assert foresight.largest(MIB, lowest=1, highest=100) is None


def test_the_bounds_are_kept():
    foresight = foresee(recorded(8), recorded(2), REGIONS)
    assert foresight.largest(1000 * MIB, lowest=1, highest=20) == 20
    assert foresight.largest(20 * MIB, lowest=9, highest=20) is None


def test_several_steps_are_played_one_after_the_other():
    once = foresee(recorded(8), recorded(2), REGIONS)
    often = foresee(recorded(8, steps=5), recorded(2), REGIONS)
    assert often.largest(105 * MIB, lowest=1, highest=1000) == once.largest(
        105 * MIB, lowest=1, highest=1000
    )


def fed_anew(batch_size, steps=3):
    """Return steps that each let go of their batch, 1 MiB a sample, and are given the next."""
    start, size = REGIONS[1][0] + 4 * MIB, batch_size * MIB
    events = [
        Event(
            at_ps=at,
            thread=1,
            address=start,
            allocated_bytes=size,
            requested_bytes=size,
            in_use_bytes=4 * MIB + (0 if release else size),
            is_release=release,
            op=None if release else "next",
            kind="output",
        )
        for at, release in enumerate((True, False))
    ]
    variable = (REGIONS[1][0], 4 * MIB)
    return Recorded(batch_size, ((start, size),), (variable,), (tuple(events),) * steps)


def test_a_batch_that_follows_another_takes_its_place():
    foresight = foresee(fed_anew(8), fed_anew(2), REGIONS)
    assert foresight.largest(105 * MIB, lowest=1, highest=1000) == 105 - 1 - 4
    assert foresight.largest(105 * MIB, lowest=1, highest=1000, batches_ahead=1) == 50


def test_large_variables_may_lie_elsewhere_in_another_process():
    base = REGIONS[1][0]
    as_recorded = Foresight(
        batch_size=8,
        held=tuple((base + 8 * number * MIB, 8 * MIB) for number in range(4)),
        batch=(),
        variables=(),
        steps=(((FIRST_NUMBER + 1, 0, MIB),),),
        regions=tuple(REGIONS),
    )
    wandering = replace(as_recorded, variables=(0, 1, 2, 3))
    # Side by side they leave one free stretch; copies leave holes between them.
    assert as_recorded.largest(100 * MIB, lowest=1, highest=1000) == 100 - 1 - 32
    assert wandering.largest(100 * MIB, lowest=1, highest=1000) < 100 - 1 - 32
    # Where they are a small part of memory, only the holes that their copies left are lost.
    assert 1000 - 1 - 32 - 16 <= wandering.largest(1000 * MIB, lowest=1, highest=5000) < 1000 - 33
