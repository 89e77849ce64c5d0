"""The plugin in a real pytest of its own, with the real TensorFlow under a real limit."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import junitparser
import pytest

MODELS = """\
import keras
import numpy as np
import pytest


def dense(width):
    model = keras.Sequential(
        [keras.Input((256,)), keras.layers.Dense(width, name="wide"), keras.layers.Dense(10)]
    )
    model.compile("adam", "mse")
    return model


@pytest.fixture(scope="module")
def width():
    return 64


@pytest.mark.fits_memory("64MiB", batch_size=8)
@pytest.mark.parametrize("times", [1, 2], ids=["once", "a::b [c]"])
def test_returns(width, times, memory_budget):
    assert memory_budget.limit_bytes == 64 * 2**20
    assert 0 <= memory_budget.used_bytes <= memory_budget.peak_bytes < 2**20
    return dense(width * times)


class TestTrained:
    @pytest.mark.fits_memory("64MiB")
    def test_does_not_fit(self):
        x, y = np.zeros((20000, 256), "float32"), np.zeros((20000, 10), "float32")
        dense(1024).fit(x, y, batch_size=20000, verbose=0)

    @pytest.mark.fits_memory("64MiB")
    def test_one_array_does_not_fit(self):
        dense(64).fit(np.zeros((70000, 256), "float32"), np.zeros((70000, 10)), verbose=0)

    @pytest.mark.fits_memory("64MiB")
    def test_fails_for_another_reason(self, tmp_path):
        assert tmp_path.name == "other"


@pytest.mark.fits_memory("512MiB")
def test_returns_something_else():
    return 3


def test_not_marked(width):
    assert width == 64
"""


def run(folder, *args, timeout=600):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "oomdoctor.testing.plugin", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
    )


def results(folder):
    suites = junitparser.JUnitXml.fromfile(str(folder / "r.xml"))
    return {case.name: case for suite in suites for case in suite}


@pytest.mark.tensorflow
@pytest.mark.slow
def test_marked_tests_run_under_the_limit_and_say_why_they_do_not_fit(tmp_path):
    (tmp_path / "test_models.py").write_text(MODELS)
    # pytest-xdist, options and a path at once: all of them reach the other process.
    told = run(tmp_path, "-n", "2", "--junit-xml", "r.xml", "test_models.py")
    assert told.returncode == 1, told.stdout + told.stderr
    found = results(tmp_path)
    failed = {name for name, case in found.items() if case.result}
    assert set(found) - failed == {
        "test_returns[once]",
        "test_returns[a::b [c]]",
        "test_not_marked",
    }

    text = found["test_does_not_fit"].result[0].text
    assert "The test does not fit in 64.0 MiB." in text
    assert "device memory is full" in text
    assert "20000" in text  # the tensor that did not fit
    assert "What to change" in text
    text = found["test_one_array_does_not_fit"].result[0].text
    assert "The test does not fit in 64.0 MiB." in text
    other = found["test_fails_for_another_reason"].result[0].text
    assert "assert tmp_path.name == " in other or "AssertionError" in other
    assert "does not fit" not in other
    assert "returned a int" in found["test_returns_something_else"].result[0].text
    peak = ElementTree.parse(tmp_path / "r.xml").find(".//property[@name='peak_bytes']")
    assert 64 * 256 * 4 < int(peak.get("value")) < 64 * 2**20


MECHANICS = """\
import os, signal, sys, time
import pytest

@pytest.fixture(scope="module")
def kept():
    yield 1
    print("kept was torn down")

def test_before(kept):
    pass

@pytest.mark.fits_memory("64MiB")
def test_is_killed(kept):
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.fits_memory("64MiB", timeout=2)
def test_hangs():
    time.sleep(600)
"""


@pytest.mark.tensorflow
@pytest.mark.slow
def test_a_process_that_dies_or_hangs_fails_its_test_and_no_other(tmp_path):
    (tmp_path / "test_a.py").write_text(MECHANICS)
    (tmp_path / "test_b.py").write_text("def test_after():\n    pass\n")
    told = run(tmp_path, "--junit-xml", "r.xml", "-s")
    found = results(tmp_path)
    assert {name for name, case in found.items() if not case.result} == {
        "test_before",
        "test_after",
    }
    assert "was killed" in found["test_is_killed"].result[0].text
    assert "was ended after 2 s" in found["test_hangs"].result[0].text
    assert told.stdout.count("kept was torn down") == 1
    assert told.returncode == 1


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("", "write @pytest.mark.fits_memory('6GiB')"),
        ("'6GiB', 3", "write @pytest.mark.fits_memory('6GiB')"),
        ("'lots'", "is not a size"),
        ("6", "the least limit is 1MiB"),
        ("'6GiB', batch_size=0", "batch_size is a whole number"),
    ],
)
def test_a_wrong_mark_is_told_before_anything_runs(tmp_path, mark, says):
    (tmp_path / "test_a.py").write_text(
        f"import pytest\n\n@pytest.mark.fits_memory({mark})\ndef test_a():\n    pass\n"
    )
    told = run(tmp_path)
    assert told.returncode == 4
    assert says in told.stdout + told.stderr


def test_the_fixture_without_the_mark_says_what_is_missing(tmp_path):
    (tmp_path / "test_a.py").write_text("def test_a(memory_budget):\n    pass\n")
    told = run(tmp_path)
    assert told.returncode == 1
    assert "memory_budget is for tests that are marked" in told.stdout


def test_the_mark_is_registered(tmp_path):
    assert "@pytest.mark.fits_memory(size" in run(tmp_path, "--markers").stdout


def test_loading_the_plugin_imports_nothing_heavy():
    code = (
        "import sys, oomdoctor.testing.plugin\n"
        "heavy = ('tensorflow', 'keras', 'numpy', 'pandas', 'msgspec', 'click', 'psutil')\n"
        "print(*[name for name in heavy if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""
