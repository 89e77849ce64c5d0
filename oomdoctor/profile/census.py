"""Counts what a Python program keeps: graphs that are traced, and containers that only grow.

The garbage collector could list all objects, but that list also holds tuples which another thread
is still filling, and holding those breaks the program. So only what can be reached by name is
looked at: variables of the program's own modules and the attributes of what they hold. Variables
inside functions are not seen. A census is taken only while memory grows, often at first and then
so rarely that it costs no more than one hundredth of the time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from oomdoctor.profile import own_loops, records

if TYPE_CHECKING:
    from oomdoctor.profile.inside import Inside

FIRST_AFTER_SECONDS = 0.25
LOOK_EVERY_SECONDS = 0.1
FIRST_CENSUSES = 4
"""These follow each other quickly: it takes three to see that something only grows."""
SHARE_OF_TIME = 0.01
LEAST_LENGTH = 8
LEAST_HELD_BYTES = 1 << 20
LEAST_GROWTH_BYTES = 8 << 20
"""Since the last census: a program that rests is not looked at."""
MOST_NAMED = 3
_CONTAINERS = frozenset((list, dict, set, deque))
_ADVICE = {
    "retracing": "pass tensors of one shape to a tf.function, not Python numbers or lists",
    "models_rebuilt": "build the model once, or call keras.backend.clear_session() between models",
    "iterators_made": "make one iterator before the loop, not one in each step",
    "tensors_kept": "keep plain numbers, as float(loss), not tensors",
    "objects_kept": "empty it now and then, or keep less",
}


MOST_COUNTED = 2000
MOST_MODULES = 300
STEP = "one_step_on_data"
"""What Keras calls the function that trains on one batch."""
MADE: Counter[tuple[str, str]] = Counter()
"""How often each kind and name was made since counting began."""
steps_traced: deque[Any] = deque(maxlen=20)
_counted_types: set[type] = set()
Named = Iterable[tuple[str, Any]]


class Census:
    """Compares what is there with what was there before."""

    def __init__(
        self, ignored: tuple[Any, ...] = (), roots: Callable[[], Named] | None = None
    ) -> None:
        count_creations()
        self._roots = roots or _named_containers
        self._ignored = frozenset(map(id, ignored))
        self._counts: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._lengths: dict[int, list[int]] = {}
        self._steps: list[int] = []
        self._ignored |= {id(self._counts), id(self._lengths), id(self._steps)}

    def take(self, step: int) -> list[records.Suspicion]:
        """Count, and return what has grown each time so far.

        Args:
            step: How many steps the program has made; 0 where they are not known.
        """
        self._steps.append(step)
        return [*self._counted(step), *self._containers(list(self._roots()))]

    def _counted(self, step: int) -> list[records.Suspicion]:
        found = []
        for (kind, name), count in list(MADE.items()):
            history = self._counts.setdefault((kind, name), [])
            if kind == "models_rebuilt" and history and history[-1][1] == count:
                continue  # one model may be trained for longer than it takes to look twice
            history.append((step, count))
            if not _only_grows([each for _, each in history]):
                continue
            made = count - history[0][1]
            steps = step - history[0][0]
            found.append(
                records.Suspicion(
                    kind=kind,
                    what=name,
                    count=count,
                    per_step=made / steps if steps > 0 else None,
                    advice=_ADVICE[kind],
                    step=step,
                )
            )
        return found

    def _containers(self, named: list[tuple[str, Any]]) -> list[records.Suspicion]:
        former, self._lengths = self._lengths, {}
        growing = []
        for name, each in named:
            length = len(each)
            if length < LEAST_LENGTH:
                continue
            known = former.get(id(each))
            if known is None:
                self._lengths[id(each)] = [length]
            elif length > known[-1]:
                lengths = [*known[-5:], length]
                self._lengths[id(each)] = lengths
                if _only_grows(lengths):
                    growing.append((name, each, lengths))
            else:
                self._lengths[id(each)] = [length]
        held = [(_held_bytes(each), name, each, lengths) for name, each, lengths in growing]
        large = [
            one for one in held if one[0][0] >= LEAST_HELD_BYTES and id(one[2]) not in self._ignored
        ]
        large.sort(key=lambda one: -one[0][0])
        return [self._suspicion(*one) for one in large[:MOST_NAMED]]

    def _suspicion(
        self, held: tuple[int, bool], name: str, container: Any, lengths: list[int]
    ) -> records.Suspicion:
        kind = "tensors_kept" if held[1] else "objects_kept"
        steps = self._steps[-1] - self._steps[-len(lengths)] if len(lengths) > 1 else 0
        return records.Suspicion(
            kind=kind,
            what=f"{name} ({type(container).__name__})"[:300],
            count=lengths[-1],
            per_step=(lengths[-1] - lengths[0]) / steps if steps > 0 else None,
            held_bytes=held[0],
            advice=_ADVICE[kind],
            step=self._steps[-1],
        )


def count_now_and_then(inside: Inside) -> None:
    """Take a census now and then, in a thread that does not keep the program from ending."""

    def run() -> None:
        census, pause, left = Census(), FIRST_AFTER_SECONDS, FIRST_AFTER_SECONDS
        is_training, level, taken, steps = False, 0, 0, own_loops.Counter()
        while True:
            time.sleep(LOOK_EVERY_SECONDS)
            if inside.is_paused or inside.is_in("import"):
                continue
            left -= LOOK_EVERY_SECONDS
            with contextlib.suppress(Exception):  # an optimizer of the program's own
                steps.look(inside)
            if inside.step and not is_training:
                # What is made before the first step is made once.
                census, pause, is_training = Census(), FIRST_AFTER_SECONDS, True
                left, taken = pause, 0
            held = inside.meter.rss_bytes() or 0
            if left > 0 or held < level + LEAST_GROWTH_BYTES:
                level = min(level, held)
                continue
            level = held
            began = time.thread_time()
            try:
                for line in census.take(inside.step):
                    inside.write(line)
            except Exception:  # objects change while they are looked at
                pass
            took, taken = time.thread_time() - began, taken + 1
            pause = 0.0 if taken < FIRST_CENSUSES else took / SHARE_OF_TIME
            left = pause = max(pause, FIRST_AFTER_SECONDS)

    threading.Thread(target=run, name="oomdoctor-census", daemon=True).start()


def _only_grows(counts: list[int]) -> bool:
    """Whether each of the last counts is above the one before; three of them at least."""
    last = counts[-4:]
    return len(last) >= 3 and all(one < other for one, other in pairwise(last))


def count_creations() -> None:
    """Count from now on which models are built, graphs traced and iterators made."""
    for module, name, kind in (
        ("keras.src.models.model", "Model", "models_rebuilt"),
        ("tensorflow.python.framework.func_graph", "FuncGraph", "retracing"),
        ("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", "iterators_made"),
    ):
        made = getattr(sys.modules.get(module), name, None)
        if isinstance(made, type) and made not in _counted_types:
            _counted_types.add(made)
            _count(made, kind)


def _count(made: Any, kind: str) -> None:
    original = made.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        name = "iter(dataset)" if kind == "iterators_made" else type(self).__name__[:200]
        if kind == "retracing":
            name = str(getattr(self, "name", "?")).rstrip("0123456789_")[:200]
            if name.startswith(STEP):
                steps_traced.append(weakref.ref(self))
        if len(MADE) < MOST_COUNTED or (kind, name) in MADE:
            MADE[kind, name] += 1

    made.__init__ = init


def _named_containers() -> Iterator[tuple[str, Any]]:
    """Yield the containers of the program's own modules, with their names."""
    for module in _own_modules():
        prefix = "" if module.__name__ == "__main__" else f"{module.__name__}."
        for key, value in list(vars(module).items()):
            if type(value) in _CONTAINERS:
                yield prefix + key, value
            elif not isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType)):
                yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    # Not `vars`: a class may answer with code of its own.
    try:
        inside = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return
    owner = value.__name__ if isinstance(value, type) else type(value).__name__
    for key, held in list(inside.items()):
        if type(held) in _CONTAINERS:
            yield f"{owner}.{key}", held


def _own_modules() -> list[ModuleType]:
    """The modules that are neither installed nor part of Python."""
    foreign = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__)))
    found = []
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType):
            continue
        file = module.__dict__.get("__file__")
        is_own = isinstance(file, str) and not file.startswith(foreign)
        if is_own or module.__dict__.get("__name__") == "__main__":
            found.append(module)
    return found[:MOST_MODULES]


def _held_bytes(container: Any) -> tuple[int, bool]:
    """Return about how much a container holds, told from its newest element, and if tensors."""
    try:
        values = container.values() if isinstance(container, dict) else container
        newest = next(reversed(values)) if not isinstance(values, set) else next(iter(values))
    except Exception:  # it changed meanwhile
        return 0, False
    size, is_tensor = _size_of(newest, 2)
    return size * len(container), is_tensor


def _size_of(value: Any, depth: int) -> tuple[int, bool]:
    kind = type(value)
    if kind.__name__ in ("EagerTensor", "ndarray", "ResourceVariable", "Variable"):
        size = getattr(value, "nbytes", None)
        if size is None:
            size = int(getattr(value.dtype, "size", 4)) * int(value.shape.num_elements() or 0)
        return int(size) + 200, True
    if depth and kind in (list, tuple, dict) and len(value) <= 100:
        inner = [
            _size_of(each, depth - 1)
            for each in (list(value.values()) if kind is dict else list(value))
        ]
        return sum(size for size, _ in inner) + sys.getsizeof(value), any(is_ for _, is_ in inner)
    try:
        return sys.getsizeof(value), False
    except Exception:  # a class whose own size cannot be had
        return 0, False
