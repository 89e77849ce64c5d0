"""A model that is named brings no code but its own, and no file makes a process swell.

The commands run as installed: the calling process itself takes nothing from the current folder.
What is checked here is what they start.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))
from hostile_archives import write_bomb, write_huge_layer

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]
LURKING = ("queue", "json", "keras", "tensorflow", "numpy", "sitecustomize", "usercustomize")
PATIENCE = 600
MOST_KIB = 2 * 1024 * 1024
"""TensorFlow alone takes 0.6 GiB."""


def mark(folder, name, rest=""):
    """Write a module that leaves a mark when it runs."""
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    line = f"open({str(marks)!r} + '/{name}', 'w').close()\n"
    (folder / f"{name}.py").write_text(line + rest)


def marks_in(folder):
    return sorted(path.name for path in (folder / "marks").iterdir())


class Done:
    """A command that has ended, and the most memory that it or a child of it had."""

    def __init__(self, folder, *arguments):
        environ = {**os.environ, "PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        output, errors = folder / "stdout", folder / "stderr"
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-I", "-m", "oomdoctor", *arguments],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                time.sleep(0.05)
            else:
                process.kill()
                pytest.fail(f"{arguments} did not end")
        process.returncode = self.code = os.waitstatus_to_exitcode(status)
        self.most_kib = usage.ru_maxrss
        self.output, self.errors = output.read_text(), errors.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a saved model among modules that nobody asked for."""
    import keras

    folder = tmp_path_factory.mktemp("shared")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.save(folder / "model.keras")
    for name in LURKING:
        mark(folder, name)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("estimate", "model.keras", "--batch-size", "4"),
        ("tune", "model.keras", "--vram", "64MiB", "--max-batch-size", "2"),
    ],
    ids=["estimate", "tune"],
)
def test_nothing_beside_a_saved_model_runs(folder, command):
    done = Done(folder, *command)

    assert done.code == 0, done.errors
    assert marks_in(folder) == []


@pytest.mark.parametrize(
    "command",
    [
        ("estimate", "my_model:build", "--batch-size", "4"),
        ("tune", "my_model:build", "--vram", "64MiB", "--max-batch-size", "2"),
    ],
    ids=["estimate", "tune"],
)
def test_a_named_module_brings_its_imports_and_nothing_else(tmp_path, command):
    for name in LURKING:
        mark(tmp_path, name, "raise SystemExit('not the module that was meant')\n")
    mark(tmp_path, "my_layers", "import keras\ndef dense():\n    return keras.layers.Dense(2)\n")
    build = (
        "import json, keras, queue\n"
        "import my_layers\n"
        "def build():\n"
        "    queue.Queue(), json.dumps(1)\n"
        "    model = keras.Sequential([keras.Input((4,)), my_layers.dense()])\n"
        "    model.compile('sgd', 'mse')\n"
        "    return model\n"
    )
    mark(tmp_path, "my_model", build)

    done = Done(tmp_path, *command)

    assert done.code == 0, done.errors
    assert marks_in(tmp_path) == ["my_layers", "my_model"]


@pytest.mark.parametrize("command", ["estimate", "tune"])
def test_a_zip_bomb_is_one_sentence_in_little_memory(tmp_path, command):
    write_bomb(tmp_path / "bomb.keras")
    done = Done(tmp_path, command, "bomb.keras")

    assert done.code == 2
    assert "not a model that Keras saved" in done.errors
    assert len(done.errors.splitlines()) == 1
    assert done.most_kib < MOST_KIB


def test_estimating_a_layer_that_no_machine_can_hold_is_one_sentence(tmp_path):
    write_huge_layer(tmp_path / "huge.keras")
    done = Done(tmp_path, "estimate", "huge.keras")

    assert done.code == 2
    assert "is more than this machine can address" in done.errors
    assert len(done.errors.splitlines()) == 1
    assert done.most_kib < MOST_KIB


@pytest.mark.heavy
def test_tuning_a_layer_that_no_machine_can_hold_says_that_it_does_not_fit(tmp_path):
    write_huge_layer(tmp_path / "huge.keras")
    done = Done(tmp_path, "tune", "huge.keras", "--vram", "64MiB")

    assert done.code in (1, 2)
    assert "Not even a batch size of 1 fits in 64.0 MiB" in done.errors
    assert "Traceback" not in done.errors
    assert done.most_kib < MOST_KIB
