"""Five programs as people write them and as they should be: what is found in each, and that the
corrected ones run."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oomdoctor
from oomdoctor.findings import Outcome

SCRIPTS = Path(__file__).parent.parent.parent / "fixtures" / "scripts"
EXPECTED = {
    "arrays": [("OD907", 6), ("OD907", 8)],
    "chunks": [("OD920", 12), ("OD909", 13)],
    "generator": [("OD906", 10), ("OD907", 7), ("OD908", 9)],
    "sequence": [("OD901", 20), ("OD904", 31)],
    "several_gpus": [("OD919", 12), ("OD919", 29), ("OD916", 35)],
}

RUNNER = """
import runpy, sys, traceback
failed = []
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
    except BaseException:
        failed.append(path)
        traceback.print_exc()
sys.exit(len(failed))
"""


def found(path):
    report = oomdoctor.check(path, ram="16GiB", vram="8GiB")
    return [
        (finding.rule, finding.location.line)
        for finding in report.findings
        if finding.outcome is Outcome.FIRED
    ]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_program_as_people_write_it_has_these_mistakes_and_no_others(name):
    assert found(SCRIPTS / f"{name}_naive.py") == EXPECTED[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_corrected_program_has_none(name):
    assert found(SCRIPTS / f"{name}_corrected.py") == []


def test_a_sequence_that_lists_its_dataset_in_getitem_is_an_error():
    report = oomdoctor.check(SCRIPTS / "sequence_naive.py")

    (finding,) = (f for f in report.findings if f.rule == "OD901")
    assert finding.severity.value == "error"
    assert "list(self.dataset.as_numpy_iterator())" in finding.message


@pytest.mark.tensorflow
@pytest.mark.slow
def test_the_corrected_programs_run(tmp_path):
    tf = pytest.importorskip("tensorflow")
    from PIL import Image

    rng = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for number in range(24):
        pixels = rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
    for split in ("train", "val"):
        np.save(tmp_path / f"x_{split}.npy", rng.random((20, 32, 32, 3), dtype=np.float32))
        np.save(tmp_path / f"y_{split}.npy", rng.integers(0, 3, 20))
    with tf.io.TFRecordWriter(str(tmp_path / "train.tfrecord")) as writer:
        for number in range(40):
            floats = tf.train.FloatList(value=rng.random(16))
            feature = {
                "x": tf.train.Feature(float_list=floats),
                "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 3])),
            }
            features = tf.train.Features(feature=feature)
            writer.write(tf.train.Example(features=features).SerializeToString())

    scripts = [SCRIPTS / f"{name}_corrected.py" for name in EXPECTED]
    run = subprocess.run(
        [sys.executable, "-c", RUNNER, *scripts],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-3000:]
