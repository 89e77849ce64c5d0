"""Recorded steps of two sizes, written by hand, played at a third."""

import pytest

from oomdoctor.estimate.nodes import Variable
from oomdoctor.trace.replay import Event
from oomdoctor.trace.scaled import Recorded, ScaledStep


def step_of(batch_size, *lines):
    """Lines are (op, address, bytes, shape), or (address, bytes) for a release."""
    events, in_use = [], 0
    for at, line in enumerate(lines):
        op, address, size, shape = (None, *line, None) if len(line) == 2 else line
        in_use += size if op else -size
        events.append(
            Event(
                at_ps=at,
                thread=1,
                address=address,
                allocated_bytes=size,
                requested_bytes=size,
                in_use_bytes=in_use,
                is_release=op is None,
                op=op,
                kind="temp" if op and op.endswith("scratch") else "output",
                shape=shape,
            )
        )
    return Recorded(batch_size, events, 100 * batch_size)


def sizes_at(batch_size, line, *, scratch=True, variables=()):
    small, large = (step_of(size, *line(size)) for size in (2, 4))
    run = ScaledStep(small, large, variables).run(batch_size, scratch=scratch)
    return [size for _, size in run.before], [size for _, size in run.events]


@pytest.mark.parametrize(
    ("bytes_at", "shape_at"),
    [
        (lambda n: 40 * n, lambda n: f"[{n},10]"),
        (lambda n: 4 * n * n, lambda n: f"[{n},{n}]"),
        (lambda n: 4 * (n + 2) * 5, lambda n: f"[{n + 2},5]"),
        (lambda n: 4000, lambda n: "[10,100]"),
        (lambda n: 64 + 12 * n, lambda n: None),
    ],
    ids=["samples", "samples x samples", "padded", "fixed", "no shape"],
)
def test_a_buffer_follows_the_batch(bytes_at, shape_at):
    def line(n):
        return [("a", 1, bytes_at(n), shape_at(n)), (1, bytes_at(n))]

    before, sizes = sizes_at(64, line)
    assert before == [6400]
    assert sizes == [bytes_at(64), -1]


def test_scratch_memory_is_left_out_for_a_gpu():
    def line(n):
        return [
            ("a", 1, 40 * n, f"[{n},10]"), ("a/scratch", 2, 8000, "[8000]"), (2, 8000),
            ("b", 3, 400, "[100]"), (1, 40 * n), (3, 400),
        ]  # fmt: skip

    assert sizes_at(8, line)[1] == [320, 8000, -1, 400, -1, -1]
    assert sizes_at(8, line, scratch=False)[1] == [320, 400, -1, -1]


def test_what_an_update_puts_in_a_variables_place_stays():
    weights = Variable("w", "weights", 4096, (32, 32), "float32")

    def line(n):
        return [("update", 1, 4096, "[32,32]"), (99, 4096), ("a", 2, 40 * n, f"[{n},10]")]

    small, large = (step_of(size, *line(size)) for size in (2, 4))
    run = ScaledStep(small, large, [weights]).run(8)
    assert run.before == [(0, 4096), (1, 800)]
    # The new value takes the variable's place; what else is left is let go at the end.
    assert run.events == [(2, 4096), (0, -1), (3, 320), (3, -1)]
    assert run.after == {0: 2}


def test_a_release_nobody_can_explain_changes_nothing():
    weights = Variable("w", "weights", 4096, (32, 32), "float32")

    def line(n):
        return [("a", 1, 40 * n, f"[{n},10]"), (99, 4096), (1, 40 * n)]

    small, large = (step_of(size, *line(size)) for size in (2, 4))
    run = ScaledStep(small, large, [weights]).run(8)
    assert run.events == [(2, 320), (2, -1)]
    assert run.after == {0: 0}
