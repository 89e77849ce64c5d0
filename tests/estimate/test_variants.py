"""Other ways to train, each measured under the real allocator and estimated."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from steps import run_steps

HERE = Path(__file__).parent
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
BATCH = 64
CLOSE = 0.15
"""One order of ops of one graph is measured here; see the benchmark for medians."""

WAYS = [
    ("accumulating", "train"),
    ("clipped", "train"),
    ("bfloat16", "train"),
    ("recomputing", "train"),
    ("plain", "evaluate"),
    ("plain", "predict"),
]


@pytest.fixture(scope="module")
def measured():
    """The peak of each, from one process."""
    requests = [
        {
            "source": f"varied_models:{name}",
            "sys_path": [str(HERE)],
            "kind": kind,
            "batch_size": BATCH,
        }
        for name, kind in WAYS
    ]
    peaks = [step["peak_bytes"] for step in run_steps(*requests)]
    return dict(zip(WAYS, peaks, strict=True))


def built(name):
    location = importlib.util.spec_from_file_location("varied_models", HERE / "varied_models.py")
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return getattr(module, name)()


@pytest.mark.parametrize(("name", "kind"), WAYS)
def test_other_ways_to_run_a_model_are_estimated_as_well(measured, name, kind):
    import oomdoctor

    peak = measured[name, kind]
    found = oomdoctor.estimate_memory(built(name), batch_size=BATCH, kind=kind)
    assert found.peak_bytes == pytest.approx(peak, rel=CLOSE)
    assert found.low_bytes <= peak <= found.high_bytes
    assert found.unknown_ops == ()
