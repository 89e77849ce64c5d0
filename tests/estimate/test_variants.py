"""Other ways to train, each measured under the real allocator and estimated."""

import importlib.util
from pathlib import Path

import pytest

from oomdoctor.measure.runner import Runner
from oomdoctor.measure.spec import ModelSpec

HERE = Path(__file__).parent
BATCH = 64
CLOSE = 0.15
"""One step order of one graph is measured here; see the benchmark for medians."""


def built(name):
    location = importlib.util.spec_from_file_location("varied_models", HERE / "varied_models.py")
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return getattr(module, name)()


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("accumulating", ("train",)),
        ("clipped", ("train",)),
        ("bfloat16", ("train",)),
        ("recomputing", ("train",)),
        ("plain", ("evaluate", "predict")),
    ],
)
def test_other_ways_to_run_a_model_are_estimated_as_well(name, kinds):
    import oomdoctor

    with Runner(ModelSpec(f"varied_models:{name}", sys_path=(str(HERE),))) as runner:
        peaks = {kind: runner.run(BATCH, steps=4, kind=kind).peak_bytes for kind in kinds}
    for kind, measured in peaks.items():
        found = oomdoctor.estimate_memory(built(name), batch_size=BATCH, kind=kind)
        assert found.peak_bytes == pytest.approx(measured, rel=CLOSE), kind
        assert found.low_bytes <= measured <= found.high_bytes, kind
        assert found.unknown_ops == (), kind
