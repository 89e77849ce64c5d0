"""Another order of ops: the graph is prepared again, once for each number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.allocator import settings_for_the_cpu
from oomdoctor.measure.redraw import DRAWS, draws
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


def test_the_order_that_failed_last_comes_first():
    assert draws(unlucky=0) == list(range(DRAWS))
    assert draws(unlucky=DRAWS - 1)[0] == DRAWS - 1
    assert sorted(draws(unlucky=1)) == list(range(DRAWS))
