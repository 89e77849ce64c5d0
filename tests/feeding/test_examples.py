"""The examples in the docstrings of the functions that feed data are run."""

import doctest
import os

import pytest

import oomdoctor

# Keras 3.15 says so in every `fit` on a dataset, since `shuffle` is true by default.
IGNORED = "ignore:`shuffle=True` was passed"
pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings(IGNORED)]
NAMES = ("stream_dataset", "fit_in_chunks", "store_features", "convert")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name, tmp_path, monkeypatch):
    import keras
    import numpy as np
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    known = {"np": np, "tf": tf, "keras": keras, "model": model, "backbone": model}
    tests = doctest.DocTestFinder().find(getattr(oomdoctor, name), name, globs=known)
    examples = [test for test in tests if test.examples]
    assert len(examples) == 1
    said = []
    result = doctest.DocTestRunner().run(examples[0], out=said.append)
    assert result.attempted >= 3
    assert not result.failed, "".join(said)
    assert os.listdir(tmp_path)
