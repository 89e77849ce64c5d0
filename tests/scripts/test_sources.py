"""Scripts, notebooks and folders of them: what is read, what is passed over, what is said."""

import json
import os

import pytest

from oomdoctor.scripts import scan
from oomdoctor.scripts.scan import find_scripts, scan_scripts
from oomdoctor.scripts.source import ignored_lines

BAD = "import tensorflow as tf\nrecords = list(tf.data.TFRecordDataset('a'))\n"


def notebook(path, *cells, **more):
    made = [{"cell_type": "code", "source": cell, "outputs": []} for cell in cells]
    made.insert(1, {"cell_type": "markdown", "source": ["# Title"]})
    path.write_text(json.dumps({"cells": made, "nbformat": 4, **more}))
    return path


def test_a_notebook_names_the_cell_and_the_line_in_it(tmp_path):
    path = notebook(
        tmp_path / "a.ipynb",
        ["import tensorflow as tf\n", "ds = tf.data.TFRecordDataset('a')"],
        "x = 1\n\nrecords = list(ds)",
    )

    (match,) = scan_scripts([path]).matches

    assert (match.cell, match.line, match.column) == (3, 3, 11)
    assert match.text == "list(ds)"


def test_what_ipython_reads_itself_is_left_out(tmp_path):
    path = notebook(
        tmp_path / "a.ipynb",
        "%matplotlib inline\n!pip install tensorflow\nimport tensorflow as tf\n",
        "%%bash\nls | head\n",
        "%%time\nfiles = !ls\nif files:\n    %cd data\nawait work()\nlist?\n"
        "records = list(tf.data.TFRecordDataset(files))\n",
    )

    scripts = scan_scripts([path])

    assert [(match.cell, match.line) for match in scripts.matches] == [(4, 7)]
    assert scripts.notes == ()


def test_a_cell_that_is_not_python_is_noted_and_the_others_are_checked(tmp_path):
    path = notebook(tmp_path / "a.ipynb", BAD, "this is no python", BAD)

    scripts = scan_scripts([path])

    assert [match.cell for match in scripts.matches] == [1, 4]
    assert "cell 3 is not Python" in scripts.notes[0]


@pytest.mark.parametrize(
    "content",
    [
        b"{keras",
        b"[1, 2] keras",
        b'"keras"',
        b'{"keras": 1}',
        b'{"worksheets": "keras"}',
        b"[" * 100_000 + b"keras",
    ],
)
def test_a_file_that_is_no_notebook_is_noted(tmp_path, content):
    path = tmp_path / "a.ipynb"
    path.write_bytes(content)

    scripts = scan_scripts([path])

    assert scripts.matches == ()
    assert "not a notebook" in scripts.notes[0]


@pytest.mark.parametrize("cells", [None, 3, [3, None, {"cell_type": "code", "source": None}]])
def test_a_notebook_with_strange_cells_does_no_harm(tmp_path, cells):
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "by": "keras"}))

    assert scan_scripts([path]).matches == ()


@pytest.mark.parametrize(
    "content",
    [
        b"import keras\ndef (:\n",
        b"import keras\nx = '\x00'\n",
        b"# coding: nonsense\nimport keras\n",
        b"import keras\nx = '\xff'\n",
        b"import keras\nx = " + b"(" * 5000 + b")" * 5000 + b"\n",
        b"import keras\nx = " + b"-" * 60_000 + b"1\n",
        b"import keras\nx = a" + b".b()" * 50_000 + b"\n",
    ],
    ids=["syntax", "null", "coding", "bytes", "deep", "minus", "chain"],
)
def test_what_cannot_be_parsed_is_a_note_and_not_a_crash(tmp_path, content):
    (tmp_path / "bad.py").write_bytes(content)
    (tmp_path / "good.py").write_text(BAD)

    scripts = scan_scripts([tmp_path])

    assert [match.file for match in scripts.matches] == [str(tmp_path / "good.py")]
    assert len(scripts.notes) == 1
    assert "bad.py was not checked" in scripts.notes[0]


@pytest.mark.parametrize(
    "code",
    [
        "".join(f"a{n} = 1\n" for n in range(20_000)) + "if x:\n    y = 1\n" * 5_000,
        "import tensorflow as tf\nds = tf.data.TFRecordDataset('a')\n" + "list(ds);" * 20_000,
        "import tensorflow as tf\nkept = []\nfor x in tf.data.TFRecordDataset('a'):\n"
        + "    kept.append(tf.nn.relu(x))\n" * 5_000,
    ],
    ids=["branches", "one_line", "appends"],
)
def test_a_file_made_to_take_long_ends_soon(tmp_path, code):
    (tmp_path / "hostile.py").write_text("import keras\n" + code)

    scripts = scan_scripts([tmp_path])

    assert len(scripts.matches) == 1000 or "too many names" in scripts.notes[0]


def test_folders_are_walked_without_what_is_hidden_or_installed(tmp_path):
    places = {
        "train.py": True,
        "src/model.py": True,
        "src/look.ipynb": True,
        ".hidden/a.py": False,
        ".hidden.py": False,
        "src/__pycache__/a.py": False,
        "venv/pyvenv.cfg": False,
        "venv/lib/a.py": False,
        "lib/site-packages/a.py": False,
        "notes.txt": False,
    }
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)

    found = [os.path.relpath(path, tmp_path) for path in find_scripts(tmp_path)]
    named = [os.path.relpath(path, tmp_path) for path in find_scripts(tmp_path / "venv")]

    assert sorted(found) == sorted(place for place, wanted in places.items() if wanted)
    assert named == ["venv/lib/a.py"]


def test_files_that_are_too_large_or_no_files_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "MAX_SCRIPT_BYTES", 1024 * 1024)
    (tmp_path / "large.py").write_text("import keras\n" * 100_000)
    os.mkfifo(tmp_path / "pipe.py")

    in_folder = scan_scripts([tmp_path])
    named = scan_scripts([tmp_path / "pipe.py"])

    assert "large.py is larger than 1 MiB" in in_folder.notes[0]
    assert "pipe.py is not a file" in named.notes[0]


def test_files_without_a_word_of_tensorflow_are_not_parsed(tmp_path):
    (tmp_path / "a.py").write_text("def (:\n")

    scripts = scan_scripts([tmp_path])

    assert (scripts.files, scripts.lines, scripts.notes) == (1, 1, ())


def test_a_file_given_twice_is_read_once(tmp_path):
    (tmp_path / "a.py").write_text(BAD)

    assert scan_scripts([tmp_path / "a.py", tmp_path]).files == 1


def test_only_comments_suppress():
    text = 'x = "# oomdoctor: ignore"\ny = 1  # see oomdoctor: ignore[OD902,od904] here\n'
    text += "z = 1  #oomdoctor:ignore\nw = 1  # oomdoctor: ignored\n"

    assert ignored_lines(text) == {3: ("*",)}
    assert ignored_lines("y = 1  # oomdoctor: ignore[OD902,od904] here\n") == {
        1: ("OD902", "OD904")
    }
