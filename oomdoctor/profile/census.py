"""Counts what a Python program keeps: graphs, models, iterators, and containers that only grow.

A census walks all objects the garbage collector knows, which takes tens of milliseconds in a
program with TensorFlow. So it is taken only while memory grows, often at first and then so rarely
that it costs no more than one hundredth of the time. Objects are looked at, never held or changed.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import Counter, deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from oomdoctor.profile import records

if TYPE_CHECKING:
    from oomdoctor.profile.inside import Inside

FIRST_AFTER_SECONDS = 0.5
LOOK_EVERY_SECONDS = 0.25
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


class Census:
    """Compares what is there with what was there before."""

    def __init__(self, ignored: tuple[Any, ...] = ()) -> None:
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
        objects = gc.get_objects()
        try:
            return [*self._counted(objects, step), *self._containers(objects)]
        finally:
            objects.clear()

    def _counted(self, objects: list[Any], step: int) -> list[records.Suspicion]:
        found = []
        for kind, name, count in _kinds(objects):
            history = self._counts.setdefault((kind, name), [])
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

    def _containers(self, objects: list[Any]) -> list[records.Suspicion]:
        former, self._lengths = self._lengths, {}
        growing = []
        for each in [one for one in objects if type(one) in _CONTAINERS]:
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
                    growing.append((each, lengths))
            else:
                self._lengths[id(each)] = [length]
        held = [(_held_bytes(each), each, lengths) for each, lengths in growing]
        large = [
            one for one in held if one[0][0] >= LEAST_HELD_BYTES and id(one[1]) not in self._ignored
        ]
        large.sort(key=lambda one: -one[0][0])
        return [self._suspicion(*one) for one in large[:MOST_NAMED]]

    def _suspicion(
        self, held: tuple[int, bool], container: Any, lengths: list[int]
    ) -> records.Suspicion:
        kind = "tensors_kept" if held[1] else "objects_kept"
        steps = self._steps[-1] - self._steps[-len(lengths)] if len(lengths) > 1 else 0
        return records.Suspicion(
            kind=kind,
            what=f"{_name_of(container)} ({type(container).__name__})"[:300],
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
        is_training, level, taken = False, 0, 0
        while True:
            time.sleep(LOOK_EVERY_SECONDS)
            if inside.is_paused or inside.is_in("import"):
                continue
            left -= LOOK_EVERY_SECONDS
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
            pause = 2 * pause if taken < FIRST_CENSUSES else took / SHARE_OF_TIME
            left = pause = max(pause, FIRST_AFTER_SECONDS)

    threading.Thread(target=run, name="oomdoctor-census", daemon=True).start()


def _only_grows(counts: list[int]) -> bool:
    """Whether each of the last counts is above the one before; three of them at least."""
    last = counts[-4:]
    return len(last) >= 3 and all(one < other for one, other in pairwise(last))


def _kinds(objects: list[Any]) -> list[tuple[str, str, int]]:
    """Return kind, name and number of what TensorFlow and Keras make."""
    by_type = Counter(map(type, objects))
    model_class = getattr(sys.modules.get("keras"), "Model", None)
    models = 0
    found = []
    for each, count in by_type.items():
        name = each.__name__
        if name == "FuncGraph":
            found += _graphs(objects, each)
        elif name == "OwnedIterator":
            found.append(("iterators_made", "iter(dataset)", count))
        elif isinstance(model_class, type) and issubclass(each, model_class):
            models += count
    if models:
        found.append(("models_rebuilt", "keras.Model", models))
    return found


def _graphs(objects: list[Any], kind: type) -> list[tuple[str, str, int]]:
    names = Counter(
        str(getattr(each, "name", "?")).rstrip("0123456789_")
        for each in objects
        if type(each) is kind
    )
    # Keras and tf.data make functions of their own; the user's are those that grow.
    return [("retracing", name[:200], count) for name, count in names.most_common(20)]


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


def _name_of(container: Any) -> str:
    """Return the variable or attribute that holds a container, as far as Python tells."""
    for holder in gc.get_referrers(container):
        if isinstance(holder, dict):
            key = next((key for key, value in list(holder.items()) if value is container), None)
            if isinstance(key, str):
                return _owner_of(holder) + key
        elif hasattr(holder, "__dict__") and not isinstance(holder, type):
            attributes = list(vars(holder).items())
            key = next((key for key, value in attributes if value is container), None)
            if key is not None:
                return f"{type(holder).__name__}.{key}"
    return "a local variable"


def _owner_of(namespace: dict[Any, Any]) -> str:
    module = namespace.get("__name__")
    if isinstance(module, str) and "__builtins__" in namespace:
        return "" if module == "__main__" else f"{module}."
    for holder in gc.get_referrers(namespace):
        if getattr(holder, "__dict__", None) is namespace:
            return f"{type(holder).__name__}."
    return ""
