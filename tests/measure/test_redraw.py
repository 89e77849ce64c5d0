"""Another order of ops: the graph is prepared again, once for each number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.measure.redraw import DRAWS, draws
from oomdoctor.measure.worker import LOOP_DRAWS, Request, Serving
from oomdoctor.units import MIB

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(os.name != "posix", reason="POSIX only")]

PREPARED = """
import json
import keras
from oomdoctor.measure.events import record
from oomdoctor.measure.redraw import draw
from oomdoctor.measure.spec import ModelSpec
from oomdoctor.measure.step import Step

draw(0)
layers = [keras.layers.Dense(64, "relu") for _ in range(6)]
model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(4)])
model.compile("adam", "mse")
step = Step(model, ModelSpec(""), "train")
data, function = step.data(8), step.function(8)
found = []
for number in (0, 0, 1, 1, 2, 0, 1):
    draw(number)
    found.append(len(record(lambda: function(data), None)))
print(json.dumps(found))
"""


def test_each_draw_prepares_the_graph_once_and_is_found_again():
    environ = {**os.environ, "KERAS_BACKEND": "tensorflow", **settings_for_the_cpu(256 * MIB)}
    out = subprocess.run(
        [sys.executable, "-c", PREPARED],
        env=environ,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout
    events = json.loads(out.splitlines()[-1])

    # Preparing a graph folds constants, which takes allocations of its own.
    first, again, other, other_again, third, *kept = events
    assert min(first, other, third) > 2 * max(again, other_again, *kept)


class Step:
    def __init__(self, loops):
        self.loops = loops

    def has_loop(self, batch_size):
        return self.loops


@pytest.mark.parametrize(("thorough", "count"), [(False, LOOP_DRAWS), (True, DRAWS)])
def test_a_loop_is_judged_in_orders_that_no_step_has_run_in(thorough, count):
    serving = Serving()
    serving.regions = [(0, MIB)]
    request = Request(settled=True, thorough=thorough)

    orders = [serving._orders(Step(loops=True), request, 8) for _ in range(3)]

    numbers = [number for trial in orders for number, _ in trial]
    assert len(set(numbers)) == len(numbers) == 3 * count
    assert not set(numbers) & set(draws(unlucky=0))
    # `fit` begins with a whole batch; others train on a few samples first.
    assert {tuple(first) for _, first in orders[0]} == {(), (1,)}


def test_other_steps_are_judged_in_one_order_or_in_the_same_ones_again():
    serving = Serving()
    serving.regions = [(0, MIB)]

    usual = [serving._orders(Step(loops=False), Request(settled=True), 8) for _ in range(2)]
    thorough = serving._orders(Step(loops=False), Request(settled=True, thorough=True), 8)

    assert usual == [[(0, range(1, 2))]] * 2
    assert [number for number, _ in thorough] == list(range(DRAWS))


def test_what_is_recorded_runs_in_the_order_the_process_began_with():
    serving = Serving()
    serving.regions = [(0, MIB)]

    assert serving._orders(Step(loops=True), Request(record=True), 8) == [(0, range(0))]


def test_the_order_that_failed_last_comes_first():
    assert draws(unlucky=0) == list(range(DRAWS))
    assert draws(unlucky=DRAWS - 1)[0] == DRAWS - 1
    assert sorted(draws(unlucky=1)) == list(range(DRAWS))
