"""Whole datasets in RAM, their copies, and the sizes that code itself says."""

import json
import subprocess
import sys
import textwrap

import pytest

import oomdoctor
from oomdoctor.findings import Outcome
from oomdoctor.scripts.scan import check_source

HEAD = """\
import glob
import os

import cv2
import numpy as np
import tensorflow as tf
from PIL import Image
from sklearn.model_selection import train_test_split
from tensorflow import keras
"""
IMAGES = """\
images = []
for name in os.listdir("data"):
    image = Image.fromarray(cv2.imread("data/" + name)).resize((224, 224))
    images.append(np.array(image))
"""
READ = """\
def read(path):
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (512, 512))

"""


def matches(code):
    found = check_source(HEAD + textwrap.dedent(code))
    return [match for match in found if match.check != "growth-not-set"]


def found(code):
    return [match.check for match in matches(code)]


def severities(path):
    return {
        (finding.name, finding.severity.value)
        for finding in oomdoctor.check(path, ram="16GiB").findings
        if finding.outcome is Outcome.FIRED
    }


FOUND = {
    "a_list_and_its_array": (
        IMAGES + "x = np.stack(images)\nkeras.Model().fit(x, y)",
        ["pictures-read-into-list", "copy-of-dataset"],
    ),
    "a_list_under_one_name": (IMAGES + "images = np.array(images)", ["pictures-read-into-list"]),
    "a_split_of_images_that_stay": (
        IMAGES + "images = np.array(images)\na, b = train_test_split(images)",
        ["pictures-read-into-list", "copy-of-dataset"],
    ),
    "float64_of_an_array_of_images": (
        IMAGES + "images = np.array(images) / 255.",
        ["pictures-read-into-list", "bytes-to-float64"],
    ),
    "normalize_of_keras": (
        IMAGES + "images = keras.utils.normalize(np.array(images))",
        ["pictures-read-into-list", "bytes-to-float64"],
    ),
    "a_comprehension": (
        "x = np.array([cv2.imread(f) for f in glob.glob('*.png')])",
        ["pictures-read-into-list"],
    ),
    "map_over_names": (
        "def read(f):\n    return cv2.imread(f)\nx = np.array(list(map(read, glob.glob('*'))))",
        ["pictures-read-into-list"],
    ),
    "an_array_filled_by_place": (
        """
        names = os.listdir("data")
        x = np.zeros((len(names), 128, 128, 3), dtype="uint8")
        for i, name in enumerate(names):
            x[i] = cv2.imread(name)
        """,
        ["pictures-read-into-list"],
    ),
    "images_of_a_table": (
        """
        import pandas as pd
        table = pd.read_csv("train.csv")
        x = []
        for path in table["path"]:
            x.append(cv2.resize(cv2.imread(path), (64, 64)))
        x = np.array(x)
        """,
        ["pictures-read-into-list"],
    ),
    "a_function_that_copies_what_it_is_given": (
        IMAGES + "def scaled(x):\n    return x.astype('float32')\n"
        "images = np.array(images)\nx = scaled(images)",
        ["pictures-read-into-list", "copy-of-dataset"],
    ),
    "folds": (
        """
        from sklearn.model_selection import KFold
        data = np.load("x.npy")
        for train, test in KFold(5).split(data):
            part = data[train]
        """,
        ["copy-of-dataset"],
    ),
    "one_sample_at_a_time_through_a_method": (
        """
        class Agent:
            def __init__(self):
                self.model = keras.Sequential()

            def act(self, state):
                return self.model.predict(state)

        agent = Agent()
        for step in range(1000):
            action = agent.act(state)
        """,
        ["predict-in-loop"],
    ),
    "text_as_one_hot": (
        """
        x = np.zeros((len(texts), 40, len(chars)), dtype="bool")
        for i, text in enumerate(texts):
            for t, char in enumerate(text):
                x[i, t, index[char]] = 1
        """,
        ["one-hot-labels"],
    ),
    "masks_as_one_hot": (
        IMAGES + "masks = np.array(images)\ny = keras.utils.to_categorical(masks, 4)",
        ["pictures-read-into-list", "copy-of-dataset", "one-hot-labels"],
    ),
    "float64_by_the_name_of_the_dtype": (
        IMAGES + "images = np.array(images, dtype='float') / 255.0",
        ["pictures-read-into-list", "bytes-to-float64"],
    ),
    "lists_put_together": (
        "a = []\nfor n in os.listdir('a'):\n    a.append((cv2.imread(n), 0))\nb = a[:5] + a[9:]",
        ["pictures-read-into-list"],
    ),
    "float64_for_keras": (
        "keras.backend.set_floatx('float64')",
        ["floatx-of-64-bits"],
    ),
    "names_that_a_star_brings": (
        "from keras.models import *\nfor i in range(9):\n    m = Sequential()\n    m.fit(x, y)",
        ["model-built-in-loop"],
    ),
}


@pytest.mark.parametrize(("code", "expected"), FOUND.values(), ids=FOUND)
def test_it_is_found(code, expected):
    assert sorted(found(code)) == sorted(expected)


LEFT_ALONE = {
    "a_generator_of_batches": """
        def batches(names):
            while True:
                images = []
                for name in os.listdir("data"):
                    images.append(cv2.imread(name))
                yield np.array(images)
        """,
    "a_list_that_is_emptied": """
        batch = []
        for name in os.listdir("data"):
            batch.append(cv2.imread(name))
            if len(batch) == 32:
                model.fit(np.array(batch), epochs=1)
                batch = []
        """,
    "frames_of_an_animation": """
        import imageio
        frames = []
        for name in glob.glob("*.png"):
            frames.append(imageio.imread(name))
        imageio.mimsave("a.gif", frames)
        """,
    "a_few_names": "x = np.array([cv2.imread(f) for f in glob.glob('*')[:10]])",
    "names_and_not_images": "names = [f for f in os.listdir('data')]\nx = np.array(names)",
    "counted_and_not_kept": "n = len([x for x in tf.data.TFRecordDataset('a') if good(x)])",
    "a_copy_that_takes_the_name": "x = np.load('x.npy')\nx = x.astype('float32')",
    "a_copy_of_what_is_deleted": "a = np.load('x.npy')\nb = a.astype('f4')\ndel a",
    "an_ensemble": """
        models = []
        for seed in range(5):
            model = keras.Sequential()
            model.fit(x, y)
            models.append(model)
        """,
    "single_samples_shuffled": "ds = tf.data.TFRecordDataset('a').map(f).batch(1).shuffle(1000)",
    "a_loop_of_one_turn": """
        model = keras.models.load_model("m")
        for i in range(1):
            print(model.predict(x[i]))
        """,
    "one_batch_of_a_dataset": """
        model = keras.models.load_model("m")
        for x in tf.data.TFRecordDataset("a").map(f).take(1):
            print(model.predict(x))
        for x, _ in zip(data, range(1)):
            print(model.predict(x))
        """,
    "a_dataset_without_a_last_batch": """
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            model = keras.Sequential()
        model.fit(tf.data.TFRecordDataset("a").map(f).repeat().batch(32))
        """,
    "now_and_then": """
        model = keras.models.load_model("m")
        for step in range(1000):
            x = draw(step)
            if step % 100 == 0:
                show(model.predict(x))
        """,
    "numbers_of_a_tensor": """
        means = [x.numpy().mean() for x, y in tf.data.TFRecordDataset("a").map(f)]
        """,
    "a_small_buffer": READ + "ds = tf.data.Dataset.list_files('*').map(read).shuffle(100)",
    "a_queue_of_vectors": """
        from collections import deque
        memory = deque(maxlen=100_000)
        memory.append((state, action, reward, next_state, done))
        """,
}


@pytest.mark.parametrize("code", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_it_is_left_alone(code):
    assert found(code) == []


SIZES = {
    "a_shuffle_buffer": (
        READ + "ds = tf.data.Dataset.list_files('*').map(read).shuffle(10_000)",
        10_000 * 512 * 512 * 3 * 4,
        "That takes 29.3 GiB: 10,000 × 3.00 MiB.",
    ),
    "batches_of_a_loader": (
        "ds = keras.utils.image_dataset_from_directory('d', image_size=(150, 150)).shuffle(1000)",
        1000 * 32 * 150 * 150 * 3 * 4,
        "That takes 8.05 GiB: 32,000 × 264 KiB.",
    ),
    "a_cache_of_some_samples": (
        READ + "ds = tf.data.Dataset.list_files('*').map(read).take(4200).cache()",
        4200 * 512 * 512 * 3 * 4,
        "That takes 12.3 GiB: 4,200 × 3.00 MiB.",
    ),
    "a_published_dataset": (
        "import tensorflow_datasets as tfds\nds = tfds.load('celeb_a', split='train').cache()",
        162_770 * 218 * 178 * 3,
        "That takes 17.6 GiB: 162,770 × 114 KiB.",
    ),
    "an_array": (
        "states = np.zeros((100_000, 84, 84, 4), dtype='uint8')",
        100_000 * 28_224,
        "That takes 2.63 GiB: 100,000 × 27.6 KiB.",
    ),
    "a_replay_buffer": (
        """
        from collections import deque
        memory = deque(maxlen=100_000)
        model = keras.Sequential([keras.layers.Conv2D(32, 8, input_shape=(84, 84, 4))])
        memory.append((state, action, reward, next_state, done))
        """,
        100_000 * 2 * 28_224,
        "That takes 5.26 GiB: 100,000 × 2 × 27.6 KiB.",
    ),
}


@pytest.mark.parametrize(("code", "size", "said"), SIZES.values(), ids=SIZES)
def test_the_size_is_what_the_code_says(code, size, said):
    (match,) = matches(code)

    assert (match.size_bytes, match.size) == (size, said)


def test_a_size_for_each_is_told_where_the_number_is_not_known():
    told = matches(IMAGES + "images = np.array(images)")[0]

    assert (told.size_bytes, told.name) == (None, "images")
    assert told.size == "Each takes 147 KiB: 7,134 of them take 1.00 GiB."


def test_a_warning_is_what_can_end_a_run_and_a_hint_what_depends(tmp_path):
    script = tmp_path / "train.py"
    loader = "keras.utils.image_dataset_from_directory('d')"
    script.write_text(HEAD + IMAGES + f"x = np.array(images)\nds = {loader}.cache()\n"
                      f"model = keras.Sequential()\nmodel.fit_generator({loader})\n")  # fmt: skip

    assert severities(script) == {
        ("pictures-read-into-list", "warning"),
        ("copy-of-dataset", "warning"),
        ("cache-of-batches", "info"),
        ("old-generator-method", "info"),
    }


def test_hints_are_counted_and_listed_on_demand(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import tensorflow as tf\nds = tf.data.TFRecordDataset('a').cache()\n")
    command = [sys.executable, "-m", "oomdoctor", "check", str(script)]

    short = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    long = subprocess.run([*command, "-v"], capture_output=True, text=True, check=False).stdout

    assert short.splitlines()[0].endswith("1 hint in 1 script.")
    assert "1 hint not shown; -v lists it." in short
    assert "OD903" not in short
    assert "OD903" in long


LOADER = """\
import os
import cv2
import numpy as np

def load():
    images = []
    for name in os.listdir("data"):
        images.append(cv2.imread(name))
    return np.array(images)
"""


@pytest.mark.parametrize(
    "script",
    [
        "import keras\nfrom data import load\nx = load()\n",
        "import keras\nimport data\nx = data.load()\n",
        "import keras\nfrom data import *\nx = load()\n",
        "from nets import build\nfrom data import load\nx = load()\nbuild().fit(x, y)\n",
    ],
    ids=["from", "import", "star", "framework_through_a_module"],
)
def test_what_another_file_of_the_project_gives_is_told_where_it_is_called(tmp_path, script):
    (tmp_path / "data.py").write_text(LOADER)
    (tmp_path / "nets.py").write_text("import keras\ndef build():\n    return keras.Sequential()\n")
    path = tmp_path / "train.py"
    path.write_text(script)

    findings = [f for f in oomdoctor.check(path).findings if f.name == "pictures-read-into-list"]

    (told,) = [finding for finding in findings if finding.outcome is Outcome.FIRED]
    assert (told.location.file, told.location.line) == (str(path), 3)


def test_a_module_that_imports_itself_or_is_no_python_is_left_alone(tmp_path):
    (tmp_path / "loop.py").write_text("from loop import f\nfrom broken import g\n")
    (tmp_path / "broken.py").write_text("def g(:\n")
    path = tmp_path / "train.py"
    path.write_text("import keras\nfrom loop import *\nfrom broken import g\nf(g(1))\n")

    assert oomdoctor.check(path).facts.scripts.unchecked == 0


def test_a_notebook_counts_lines_of_code_and_names_the_cell(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["text\n"] * 50},
        {"cell_type": "code", "source": HEAD, "outputs": [{"text": ["x\n"] * 500}]},
        {"cell_type": "code", "source": IMAGES + "images = np.array(images)"},
    ]
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": cells}, indent=1))

    report = oomdoctor.check(path)
    command = [sys.executable, "-m", "oomdoctor", "check", str(path), "--format", "github"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert report.facts.scripts.lines == 10 + 5
    assert "Cell 3, line 4: " in shown
