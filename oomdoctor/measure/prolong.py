"""Recorded steps → the steps that come after them.

Where threads take turns no two steps are alike, and variables that an update replaces come to lie
elsewhere each time. Memory falls to pieces over many steps: in twelve short epochs under 600 MiB,
MobileNetV2 failed with 99 samples after 3 steps, with 96 after 18, with 94 after 3 and after 15,
with 92 after 27 in one process of two, and with 90 in none of two. Twelve steps played in the
recorded orders, one or the other by chance, said 91.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence

Played = tuple[int, float, float]
"""The number of an allocation, its fixed bytes and its bytes for each sample. A release has the
number of what it releases, negative, less one."""

Size = tuple[float, float]
"""Fixed bytes and bytes for each sample."""


def prolonged(
    steps: Sequence[Sequence[Played]], held: Mapping[int, Size], batch_size: int, count: int
) -> tuple[tuple[Played, ...], ...]:
    """Return further steps, each like one of those recorded after the first.

    A buffer that a step releases and did not allocate is a variable's that it replaces, or the last
    batch's. In another step it is the one of that size which has been there longest.

    Args:
        steps: The recorded ones, each number used once.
        held: By number, what was there before the first.
        batch_size: The recorded one.
        count: How many more.

    Example:
        >>> prolonged([[(10, 4.0, 0.0), (-2, 0, 0)]], {1: (4.0, 0.0)}, batch_size=8, count=2)
        (((11, 4.0, 0.0), (-11, 0, 0)), ((12, 4.0, 0.0), (-12, 0, 0)))
    """
    sizes = dict(held)
    alive = dict.fromkeys(held)
    for number, *size in (event for step in steps for event in step):
        if number < 0:
            alive.pop(-number - 1, None)
        else:
            sizes[number] = (size[0], size[1])
            alive[number] = None

    def bytes_of(number: int) -> int:
        fixed, each = sizes[number]
        return round(fixed + each * batch_size)

    waiting: dict[int, deque[int]] = {}
    for number in alive:
        waiting.setdefault(bytes_of(number), deque()).append(number)
    following = max(sizes)
    rng = random.Random(0)
    further = []
    for _ in range(count):
        step: list[Played] = []
        own: dict[int, int] = {}
        for number, fixed, each in rng.choice(steps[1:] or steps):
            if number >= 0:
                following += 1
                own[number] = following
                step.append((following, fixed, each))
                continue
            released = own.pop(-number - 1, None)
            if released is None and (same := waiting.get(bytes_of(-number - 1))):
                released = same.popleft()
            if released is not None:
                step.append((-released - 1, 0, 0))
        for number, replaced in own.items():
            waiting.setdefault(bytes_of(number), deque()).append(replaced)
        further.append(tuple(step))
    return tuple(further)
