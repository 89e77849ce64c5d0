"""Makes damaged copies of a sound file and checks that a reader survives each of them."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomdoctor.inventory.parts import Part, Unreadable

MEMORY_LIMIT_BYTES = 64 * 1024 * 1024


@pytest.fixture(scope="session")
def hostile():
    """The checks below: under pytest's importlib mode a test cannot import its neighbours."""
    return SimpleNamespace(
        parts_or_reason=parts_or_reason,
        reason=reason,
        memory_below=memory_below,
        survives_cuts=survives_cuts,
        survives_changes=survives_changes,
    )


def parts_or_reason(read, path):
    """Return the parts of a file, or the reason why there are none; nothing else may happen."""
    path = str(path)
    try:
        parts = list(read(path, os.path.getsize(path)))
    except Unreadable as error:
        return str(error)
    for part in parts:
        assert isinstance(part, Part)
        for number in (part.samples, part.elements, part.memory_bytes, *(part.shape or ())):
            assert number is None or (type(number) is int and number >= 0)
    return parts


def reason(read, path):
    found = parts_or_reason(read, path)
    assert isinstance(found, str), found
    assert 0 < len(found) < 120
    return found


def survives_cuts(read, path, *, steps=200):
    """Check a reader against the file cut short at every length, or at `steps` lengths of it."""
    whole = path.read_bytes()
    cut = path.with_name("cut" + "".join(path.suffixes))
    for length in sorted({round(len(whole) * i / steps) for i in range(steps)}):
        cut.write_bytes(whole[:length])
        parts_or_reason(read, cut)


def survives_changes(read, path, *, examples=150, head=None):
    """Check a reader against the file with bytes changed, within a bound of memory."""
    whole = path.read_bytes()
    changed = path.with_name("changed" + "".join(path.suffixes))
    last = min(len(whole), head or len(whole)) - 1
    edits = st.lists(
        st.tuples(st.integers(0, last), st.one_of(st.integers(0, 255), st.sampled_from([0, 255]))),
        min_size=1,
        max_size=12,
    )

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(edits)
    def check(edits):
        data = bytearray(whole)
        for at, value in edits:
            data[at] = value
        changed.write_bytes(data)
        with memory_below(MEMORY_LIMIT_BYTES):
            parts_or_reason(read, changed)

    check()


@contextmanager
def memory_below(limit_bytes):
    """Check that what happens inside never holds as many bytes as this at once."""
    tracemalloc.start()
    try:
        yield
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < limit_bytes
