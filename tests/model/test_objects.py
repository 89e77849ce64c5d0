"""Classes and functions reach a process that cannot import them."""

import json
import math
import os
import pickle
import subprocess
import sys
import threading

import pytest

from oomdoctor.errors import InputError
from oomdoctor.model.objects import pack

FACTOR = 3


class Base:
    def __init__(self, size):
        self.size = size

    def area(self):
        return self.size


def make_square():
    """Return a class that cannot be imported, with what copies by value get wrong first."""

    class Square(Base):
        SIDES = 4

        def __init__(self, size=2):
            super().__init__(size)

        @property
        def half(self):
            return self.size / 2

        @classmethod
        def unit(cls):
            return cls(1)

        @staticmethod
        def root(value):
            return math.sqrt(value)

        def area(self):
            return Square.unit().size * super().area() ** 2

    return Square


def in_another_process(objects, expression):
    """Return what an expression over the objects gives in a fresh process."""
    code = (
        "import json, pickle, sys\n"
        "names = pickle.loads(sys.stdin.buffer.read())\n"
        f"print(json.dumps(eval({expression!r}, names)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=pack(objects),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stderr.decode()
    return json.loads(run.stdout)


def test_a_function_takes_its_globals_along():
    def times_factor(value):
        return value * FACTOR

    assert in_another_process({"f": times_factor}, "f(5)") == 15


def test_a_closure_takes_its_cells_along():
    def add_to(total, *, step=1):
        def add(value):
            return total + value * step

        return add

    assert in_another_process({"f": add_to(10), "g": add_to}, "[f(1), g(1, step=2)(3)]") == [11, 7]


def test_a_class_works_with_super_properties_and_itself():
    expression = (
        "[Square(3).area(), Square().half, Square.unit().size, Square.root(9), Square.SIDES]"
    )

    assert in_another_process({"Square": make_square()}, expression) == [9, 1.0, 1, 3.0, 4]


def test_an_attribute_named_like_a_global_does_not_drag_the_global_along():
    def read(value):
        return value.lock

    read.__globals__["lock"] = threading.Lock()
    try:
        assert pickle.loads(pack({"f": read}))["f"].__name__ == "read"
    finally:
        del read.__globals__["lock"]


def test_what_can_be_imported_is_sent_by_name():
    assert len(pack({"d": json.JSONDecoder})) < 100


@pytest.mark.tensorflow
def test_a_traced_function_is_sent_as_the_function_it_was_made_from():
    import tensorflow as tf

    @tf.function(jit_compile=False)
    def doubled(value):
        return value * 2

    assert int(doubled(tf.constant(4))) == 8  # traced: it holds a graph now
    received = pickle.loads(pack({"f": doubled, "g": lambda value: doubled(value) + 1}))

    assert int(received["f"](tf.constant(4))) == 8
    assert int(received["g"](tf.constant(4))) == 9
    assert received["f"]._jit_compile is False


def test_code_that_holds_a_lock_is_refused_with_advice():
    lock = threading.Lock()

    def locked():
        return lock

    with pytest.raises(InputError, match=r"cannot be handed to another process.*module:callable"):
        pack({"f": locked})
