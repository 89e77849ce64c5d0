"""The user's modules are found, and never in place of Python's own."""

import subprocess
import sys

SCRIPT = """
import sys
from oomdoctor.model.modules import find_modules_in, load_callable
find_modules_in((sys.argv[1],))
find_modules_in((sys.argv[1],))
assert sys.path.count(sys.argv[1]) == 1
import queue, colorsys
print(load_callable("mine:answer")(), load_callable("mine:Inner.value"))
"""


def test_a_module_named_like_one_of_python_s_own_does_not_run(tmp_path):
    for name in ("queue", "colorsys", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the folder was asked first')\n")
    (tmp_path / "mine.py").write_text(
        "import json\nanswer = lambda: json.dumps(42)\nclass Inner:\n    value = 7\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "42 7\n", done.stderr
