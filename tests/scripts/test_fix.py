"""`--fix` changes what is safe, keeps the rest as it was, and has nothing left to do after."""

import ast

import pytest

from oomdoctor.scripts.fix import fix_scripts, fix_source
from oomdoctor.scripts.scan import check_source, scan_scripts

pytest.importorskip("libcst")

HEAD = """\
import numpy as np
import tensorflow as tf
from tensorflow import keras

model = keras.models.load_model("m")
loss_fn = keras.losses.MeanSquaredError()
records = tf.data.TFRecordDataset("a")
(x, y), _ = keras.datasets.cifar10.load_data()
"""
CASES = {
    "a_generator": (
        "model.fit_generator(batches, 10,  # steps\n    2, verbose=0)\n",
        "model.fit(batches, steps_per_epoch=10,  # steps\n    epochs=2, verbose=0)\n",
    ),
    "a_generator_by_name": (
        "model.evaluate_generator(generator=batches, steps=3)\n",
        "model.evaluate(x=batches, steps=3)\n",
    ),
    "a_shuffle_of_batches": (
        "ds = records.map(f).batch( 32 ).shuffle(1000)  # mix\n",
        "ds = records.map(f).shuffle(1000).batch( 32 )  # mix\n",
    ),
    "a_shuffle_of_batches_on_lines": (
        "ds = (\n    records\n    .batch(32, drop_remainder=True)\n    .shuffle(1000)\n)\n",
        "ds = (\n    records\n    .shuffle(1000)\n    .batch(32, drop_remainder=True)\n)\n",
    ),
    "a_division": ("x  =  x / 255.   # scale\n", "x  =  x / np.float32(255.)   # scale\n"),
    "astype_text": ("x = x.astype( 'float64' )\n", "x = x.astype( 'float32' )\n"),
    "astype_numpy": ("x = x.astype(np.float64)\n", "x = x.astype(np.float32)\n"),
    "astype_python": ("x = x.astype(float)\n", 'x = x.astype("float32")\n'),
    "a_list_to_loop_over": (
        "for r in list(records.as_numpy_iterator()):  # all\n    print(r)\n",
        "for r in records.as_numpy_iterator():  # all\n    print(r)\n",
    ),
    "a_list_to_count": ("n = len(list(records))\n", "n = sum(1 for _ in records)\n"),
    "a_loss_that_is_kept": (
        "losses = []\nfor a, b in records:\n    loss = loss_fn(b, model(a))\n"
        "    losses.append(loss)\n",
        "losses = []\nfor a, b in records:\n    loss = loss_fn(b, model(a))\n"
        "    losses.append(float(loss))\n",
    ),
}
each_case = pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)


def fixed(text):
    checks = {match.check for match in check_source(text)}
    return fix_source(text.encode(), checks=checks)[0].decode()


@each_case
def test_the_change_is_made_and_nothing_else(before, after):
    assert fixed(HEAD + before) == HEAD + after


@each_case
def test_the_finding_is_gone_and_a_second_time_changes_nothing(before, after):
    once = fixed(HEAD + before)

    ast.parse(once)
    assert not [match for match in check_source(once) if match.is_fixable]
    assert fixed(once) == once


@pytest.mark.parametrize(
    "code",
    [
        "model.fit_generator(batches, workers=4)\n",
        "model.fit_generator(*arguments)\n",
        "ds = (\n    records.batch(32)  # large\n    .shuffle(1000)\n)\n",
        "kept = list(records)\nprint(kept[3])\n",
        "losses = []\nfor a, b in records:\n    losses.append(loss_fn(b, model(a)))\n"
        "print(losses[-1].numpy())\n",
        "ds = records.batch(32).cache()\n",
        "ds = records.batch(32).shuffle(1000)  # oomdoctor: ignore\n",
    ],
)
def test_what_is_not_safe_is_left_to_people(code):
    assert fixed(HEAD + code) == HEAD + code


def test_line_ends_encoding_and_the_last_line_stay_as_they_are(tmp_path):
    path = tmp_path / "train.py"
    text = "# coding: latin-1\r\nimport keras\r\nname = 'é'; model.fit_generator(batches)"
    path.write_bytes(text.encode("latin-1"))

    (change,) = fix_scripts(scan_scripts([path]).matches)
    change.write()

    assert path.read_bytes() == text.replace("fit_generator", "fit").encode("latin-1")
    assert "No newline at end of file" in change.diff()


def test_a_link_is_followed_and_the_mode_is_kept(tmp_path):
    path, link = tmp_path / "real.py", tmp_path / "link.py"
    path.write_text("import keras\nmodel.fit_generator(batches)\n")
    path.chmod(0o750)
    link.symlink_to(path)

    (change,) = fix_scripts(scan_scripts([link]).matches)
    change.write()

    assert link.is_symlink()
    assert path.read_text() == "import keras\nmodel.fit(batches)\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert sorted(item.name for item in tmp_path.iterdir()) == ["link.py", "real.py"]
