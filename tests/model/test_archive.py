"""The configuration of a saved model is read within bounds, whoever wrote the file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oomdoctor.errors import InputError
from oomdoctor.model.archive import MAX_MEMBERS, read_config

sys.path.insert(0, str(Path(__file__).parent))

from hostile_archives import write_bomb, write_config

READ_IN_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from oomdoctor.errors import InputError
from oomdoctor.model.archive import read_config
resource.setrlimit(resource.RLIMIT_DATA, (128 * 2**20, 128 * 2**20))
try:
    read_config(Path(sys.argv[1]))
except InputError as error:
    print(error)
"""


def test_a_configuration_comes_as_keras_wrote_it(tmp_path):
    path = tmp_path / "model.keras"
    write_config(path, json.dumps({"class_name": "Sequential"}), members=3)

    assert read_config(path) == {"class_name": "Sequential"}


def test_a_zip_bomb_is_refused_in_little_memory(tmp_path):
    path = tmp_path / "bomb.keras"
    write_bomb(path)
    assert path.stat().st_size < 8 * 2**20

    done = subprocess.run(
        [sys.executable, "-c", READ_IN_LITTLE_MEMORY, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    assert "is larger than 16.0 MiB: not a model that Keras saved" in done.stdout


def test_more_members_than_any_model_has_are_refused(tmp_path):
    path = tmp_path / "model.keras"
    write_config(path, "{}", members=MAX_MEMBERS)

    with pytest.raises(InputError, match="more than 10,000 members"):
        read_config(path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "[" * 1_000_000, '{"a":' * 1_000_000, "\x00", '"text"'],
    ids=["empty", "torn", "list", "deep list", "deep object", "nul", "string"],
)
def test_what_is_no_configuration_is_one_sentence(tmp_path, text):
    path = tmp_path / "model.keras"
    write_config(path, text)

    with pytest.raises(InputError, match=r"is not a \.keras archive"):
        read_config(path)


def test_what_is_no_archive_is_one_sentence(tmp_path):
    path = tmp_path / "model.keras"
    with pytest.raises(InputError, match="does not exist"):
        read_config(path)
    path.write_text("not a zip")
    with pytest.raises(InputError, match=r"is not a \.keras archive"):
        read_config(path)
