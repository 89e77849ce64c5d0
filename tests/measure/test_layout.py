"""What lay in memory before recorded steps, found from what they used of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.allocator import Pool, rounded, settings_for_the_cpu
from oomdoctor.measure.layout import held_before
from oomdoctor.measure.replay import Event
from oomdoctor.units import MIB

LARGE = (0, 1 << 20)
SMALL = (1 << 30, 4096)


def event(address, size, in_use, *, release=False):
    return Event(0, 1, address, rounded(size), size, in_use, is_release=release)


def test_what_a_release_alone_shows_was_there_before():
    steps = [[event(512, 256, 1024), event(512, 256, 768, release=True),
              event(1024, 300, 256, release=True)]]  # fmt: skip

    assert held_before(steps, [(0, 8)], [LARGE]) == [(0, 8), (1024, 300)]


def test_a_stretch_that_nobody_used_was_taken():
    steps = [[event(1024, 256, 5 * 256)]]

    assert held_before(steps, [(0, 256)], [LARGE]) == [(0, 256), (256, 768)]


def test_but_not_more_than_was_in_use():
    steps = [[event(2048, 256, 3 * 256)]]

    # Of the holes before 1024 and before 2048 only the first accounts for 256 bytes.
    known = [(0, 256), (512, 512 - 256)]
    assert held_before(steps, known, [LARGE]) == known
    steps = [[event(2048, 256, 4 * 256)]]
    assert held_before(steps, known, [LARGE]) == [(0, 256), (256, 256), (512, 256)]


def test_what_is_still_missing_lies_at_the_end_of_the_first_region():
    first = SMALL[0]
    steps = [[event(first, 256, 256 + 512)]]

    assert held_before(steps, [], [SMALL, LARGE]) == [(first + SMALL[1] - 512, 512)]


def test_without_steps_only_what_is_known_is_known():
    assert held_before([[]], [(0, 256)], [LARGE]) == [(0, 256)]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.data())
def test_a_replay_from_the_layout_found_takes_the_same_places(sizes, data):
    pool = Pool([SMALL, (0, 1 << 16)])
    before = [pool.allocate(size) for size in sizes]
    for address in data.draw(st.lists(st.sampled_from(before), unique=True)):
        if address is not None:
            pool.release(address)
            before.remove(address)
    asked = data.draw(st.lists(st.integers(1, 3000), min_size=1, max_size=30))
    events = []
    for size in asked:
        address = pool.allocate(size)
        if address is None:
            break
        taken = pool.size_of(address)
        events.append(Event(0, 1, address, taken, size, pool.in_use_bytes))
    held = held_before([events], [], [SMALL, (0, 1 << 16)])
    total = sum(rounded(size) for _, size in held)
    if events:
        assert total <= events[0].in_use_bytes - events[0].allocated_bytes
    spans = [(e.address, e.address + e.allocated_bytes) for e in events]
    for address, size in held:
        assert all(address + size <= first or end <= address for first, end in spans)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["dense", "conv"])
def test_the_model_of_the_allocator_follows_the_real_one(name):
    """The first steps of a fresh process, thousands of allocations, replayed."""
    script = Path(__file__).parent / "replay_first_steps.py"
    environ = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        **settings_for_the_cpu(200 * MIB),
        "TF_NUM_INTEROP_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, script, name], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["allocations"] > 500
    assert found["elsewhere"] <= 0.1 * found["allocations"], found
    assert found["in_use_differs"] <= 64 * 1024, found
