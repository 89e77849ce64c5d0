"""Runners for the models beside this file."""

from pathlib import Path

import pytest

from oomdoctor.measure.runner import Runner
from oomdoctor.measure.spec import ModelSpec

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def spec_of():
    """A function from the name of a model beside this file to its spec."""

    def make_spec(name, **fields):
        return ModelSpec(f"measured_models:{name}", sys_path=(HERE,), **fields)

    return make_spec


@pytest.fixture
def run_once(spec_of):
    """A function that measures one batch of a model in a worker of its own."""

    def run(name, batch_size=4, *, limit_bytes=None, kind="train", trace=False, **fields):
        with Runner(spec_of(name, **fields), limit_bytes=limit_bytes) as runner:
            return runner.run(batch_size, steps=2, kind=kind, trace=trace)

    return run
