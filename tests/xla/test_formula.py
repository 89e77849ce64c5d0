"""The peak that XLA's layout tells is the peak that is measured: a small part of the benchmark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "xla_formula.py"


@pytest.mark.parametrize(
    ("model", "precision", "batch"),
    [("cnn", "float32", 32), ("unet", "mixed_float16", 8), ("transformer", "float32", 8)],
)
def test_the_static_peak_is_the_measured_peak(model, precision, batch):
    spec = importlib.util.spec_from_file_location("xla_formula", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    formula = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(formula)

    static, measured = formula.figures(model, precision, batch)

    # A step takes what is planned, and little more.
    assert static <= measured <= static * (1 + formula.WITHIN)
