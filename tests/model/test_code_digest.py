"""A digest of the user's own code: it changes when the code does, and only then."""

import subprocess
import sys

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import helper_of_mine, json, numpy
from oomdoctor.model.code_digest import digest_of_code
print(digest_of_code())
"""


def digest(folder, comment=""):
    (folder / "script.py").write_text(SCRIPT.format(folder=str(folder)) + comment)
    done = subprocess.run(
        [sys.executable, str(folder / "script.py")], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_changed_module_changes_the_digest_and_a_changed_script_does_not(tmp_path):
    module = tmp_path / "helper_of_mine.py"
    module.write_text("UNITS = 8\n")
    first = digest(tmp_path)

    assert len(first) == 64
    assert digest(tmp_path, comment="# another word\n") == first
    module.write_text("UNITS = 16\n")
    assert digest(tmp_path) != first


def test_packages_of_another_environment_are_not_the_user_s_own(tmp_path):
    """A virtual environment may borrow packages from another: TensorFlow alone was too much."""
    packages = tmp_path / "elsewhere" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "borrowed.py").write_text("A = 1\n")
    (tmp_path / "helper_of_mine.py").write_text(
        f"import sys\nsys.path.append({str(packages)!r})\nimport borrowed\n"
    )
    first = digest(tmp_path)
    (packages / "borrowed.py").write_text("A = 2\n")

    assert digest(tmp_path) == first


def test_too_much_code_has_no_digest(tmp_path, monkeypatch):
    from oomdoctor.model import code_digest

    (tmp_path / "large_module_of_mine.py").write_text("# " + "x" * 100)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("large_module_of_mine")
    monkeypatch.setattr(code_digest, "MAX_BYTES", 10)
    assert code_digest.digest_of_code() is None
