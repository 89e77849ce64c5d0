"""`oomdoctor check` without a path: what the configuration names, on every machine, one command."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "pictures" / "a.png")
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "x.npy", np.zeros((1000, 1000), "float32"))
    return tmp_path


SETTINGS = """\
[tool.oomdoctor]
machine = ["colab-t4", "rtx3060-laptop"]
[[tool.oomdoctor.datasets]]
path = "pictures"
image-size = "16x16x3"
load = "memory"
[[tool.oomdoctor.datasets]]
path = "arrays"
"""


def run(project, *args, command="check", **more):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", command, *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
        **more,
    )


def as_json(project, *args):
    result = run(project, *args, "--format", "json")
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


def test_everything_named_is_compared_with_every_machine(project):
    (project / "pyproject.toml").write_text(SETTINGS)
    code, told = as_json(project)
    assert code == 0
    assert told["verdict"] == "fits"
    assert [(part["subject"], part["target"]) for part in told["reports"]] == [
        ("pictures", "colab-t4"),
        ("arrays", "colab-t4"),
        ("pictures", "rtx3060-laptop"),
        ("arrays", "rtx3060-laptop"),
    ]
    assert told["reports"][0]["footprint"]["decoded_bytes"] == 16 * 16 * 3 * 4


def test_there_is_a_table_for_each_target_within_80_columns(project):
    (project / "pyproject.toml").write_text(SETTINGS)
    for args in ((), ("-v",)):
        shown = run(project, *args).stdout
        assert "On colab-t4 (" in shown
        assert "On rtx3060-laptop (" in shown
        assert all(len(line) <= 80 for line in shown.splitlines())


def test_the_worst_verdict_decides_also_where_its_rules_are_left_out(project):
    (project / "oomdoctor.toml").write_text(
        'ram = "620MiB"\nselect = ["OD106"]\ndatasets = ["pictures", "arrays"]\n'
    )
    code, told = as_json(project)
    assert code == 0
    (project / "oomdoctor.toml").write_text(
        'ram = "610MiB"\nselect = ["OD106"]\ndatasets = ["pictures", "arrays"]\n'
    )
    code, told = as_json(project)
    assert (code, told["verdict"]) == (1, "does_not_fit")
    assert [part["verdict"] for part in told["reports"]] == ["fits", "does_not_fit"]
    assert told["reports"][1]["findings"][0]["rule"] == "does-not-fit"
    assert as_json(project, "--fail-on", "never")[0] == 0


def test_paths_are_relative_to_the_configuration(project):
    (project / "pyproject.toml").write_text(SETTINGS)
    (project / "deep").mkdir()
    assert as_json(project / "deep")[1]["reports"][0]["subject"] == "pictures"


def test_flags_win_over_the_configuration(project):
    (project / "pyproject.toml").write_text(SETTINGS)
    _, told = as_json(project, "--machine", "a100-40gb", "--batch-size", "8")
    assert {part["target"] for part in told["reports"]} == {"a100-40gb"}
    assert {part["footprint"]["batch_size"] for part in told["reports"]} == {8}


def test_several_machines_may_be_given_for_a_path(project):
    _, told = as_json(project, "arrays", "--machine", "colab-t4", "--machine", "a100-40gb")
    assert [part["target"] for part in told["reports"]] == ["colab-t4", "a100-40gb"]
    _, told = as_json(project, "arrays", "--machine", "colab-t4")
    assert told["reports"] is None
    assert told["target"] == "colab-t4"


def test_without_models_tensorflow_is_not_imported(project):
    (project / "pyproject.toml").write_text(SETTINGS)
    code = (
        "import sys\nfrom oomdoctor.cli import main\nsys.argv = ['oomdoctor', 'check']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("", "Give a PATH to check, or name models, datasets or scripts"),
        ("datasets = []", "Give a PATH to check, or name models, datasets or scripts"),
        ("dataset = ['x']", "Did you mean datasets?"),
        ("datasets = 3", "datasets is a list of tables, each with path"),
        ("[[datasets]]\nlaod = 'memory'\npath = 'arrays'", "Did you mean load?"),
        ("[[datasets]]\nload = 'disk'\npath = 'arrays'", "is not one of auto, memory, stream"),
        ("[[datasets]]\nload = 'stream'", "has no path"),
        ("[[datasets]]\npath = 'gone'", "does not exist"),
        ("[[datasets]]\npath = 'arrays'\nimage-size = 'big'", "is not an image size"),
        ("[[models]]\nmodle = 'a:b'", "an entry of models has no model"),
        ("[[models]]\nmodel = 'a:b'\nbatch-sizes = [2]", "Did you mean batch-size?"),
        ("[[models]]\nmodel = 'a:b'\nbatch-size = [0]", "0 is not a whole number from 1 on"),
        ("[[models]]\nmodel = 'a:b'\njit = 'yes'", "is not one of auto, on, off"),
        ("scripts = [1]", "scripts is a list of paths"),
        ("tolerance = 'some'\ndatasets = ['arrays']", "is not a tolerance: write 5% or 0.05"),
        ("machine = ['colab-t5']\ndatasets = ['arrays']", "did you mean 'colab-t4'"),
    ],
)
def test_a_wrong_plan_gets_one_sentence_and_exit_code_2(project, settings, says):
    (project / "oomdoctor.toml").write_text(settings)
    result = run(project)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_no_configuration_and_no_path_says_what_to_give(tmp_path):
    result = run(tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("oomdoctor: Give a PATH to check")


def test_a_known_finding_does_not_fail_and_a_new_one_does(project):
    (project / "oomdoctor.toml").write_text(
        'ram = "610MiB"\nbaseline = "base.json"\ndatasets = ["arrays"]\n'
    )
    assert run(project).returncode == 2  # there is no such file yet
    assert run(project, "--update-baseline").returncode == 0
    code, told = as_json(project)
    assert code == 0
    fired = [f for f in told["reports"][0]["findings"] if f["outcome"] == "fired"]
    assert fired
    assert all(finding["known"] for finding in fired)
    np.save(project / "arrays" / "y.npy", np.zeros((2000, 1000)))
    code, told = as_json(project)
    new = [f["rule"] for f in told["reports"][0]["findings"] if f["outcome"] == "fired"]
    assert len(new) > len(fired)  # float64, which the baseline does not know
    assert as_json(project, "--fail-on", "warning")[0] == 1
    assert run(project, "--update-baseline", "--fail-on", "info").returncode == 0
    assert as_json(project, "--fail-on", "info")[0] == 0


def test_a_baseline_is_written_the_same_every_time_and_stays_small(project):
    (project / "oomdoctor.toml").write_text('ram = "610MiB"\ndatasets = ["arrays"]\n')
    texts = []
    for _ in range(2):
        result = run(project, "--baseline", "b.json", "--update-baseline")
        assert "Recorded 0 peak(s) and" in result.stderr
        texts.append((project / "b.json").read_text())
    assert texts[0] == texts[1]
    assert [p.name for p in project.iterdir() if p.name.endswith(".part")] == []


def test_a_single_path_updates_its_own_part_of_the_baseline(project):
    for path in ("arrays", "pictures"):
        run(project, path, "--ram", "1MiB", "--baseline", "b.json", "--update-baseline")
    subjects = {
        known["subject"] for known in json.loads((project / "b.json").read_text())["findings"]
    }
    assert subjects == {"arrays", "pictures"}
    assert run(project, "arrays", "--ram", "1MiB", "--baseline", "b.json").returncode == 0
    assert run(project, "arrays", "--ram", "2MiB", "--baseline", "b.json").returncode == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not a baseline of oomdoctor"),
        (b"\xff\xfe{", "is not a baseline of oomdoctor"),
        (b"[" * 100_000, "is not a baseline of oomdoctor"),
        (b'{"tool": "ruff", "version": 1}', "is not a baseline of oomdoctor"),
        (b'{"tool": "oomdoctor", "version": 2}', "is a baseline of version 2"),
        (b'{"tool": "oomdoctor", "version": 1, "peaks": [{"subject": 3}]}', "is not a baseline"),
        (b'{"schema_version": 1, "tool": {"name": "oomdoctor"}}', "is not a baseline of oomdoctor"),
    ],
)
def test_a_corrupt_or_foreign_baseline_is_one_sentence(project, content, says):
    (project / "b.json").write_bytes(content)
    result = run(project, "arrays", "--baseline", "b.json")
    assert result.returncode == 2
    assert says in result.stderr
    assert "--update-baseline" in result.stderr
    assert "Traceback" not in result.stderr


def test_update_without_a_file_says_what_is_missing(project):
    result = run(project, "arrays", "--update-baseline")
    assert result.returncode == 2
    assert "--update-baseline needs --baseline FILE" in result.stderr


def test_markdown_folds_the_parts_away_and_escapes_names(project):
    (project / "a<b>|c").mkdir()
    np.save(project / "a<b>|c" / "x.npy", np.zeros((10, 10)))
    (project / "oomdoctor.toml").write_text('datasets = ["a<b>|c", "arrays"]\nram = "610MiB"\n')
    told = run(project, "--format", "markdown").stdout
    assert told.count("<details><summary>") == told.count("</details>") == 2
    outside_code = "\n".join(told.split("```")[::2])
    assert "a<b>" not in outside_code
    assert "a\\<b\\>\\|c" in outside_code


def test_junit_has_a_suite_for_each_part(project):
    import junitparser

    (project / "pyproject.toml").write_text(SETTINGS)
    run(project, "--also", "junit=r.xml")
    suites = junitparser.JUnitXml.fromfile(str(project / "r.xml"))
    assert [suite.name for suite in suites] == [
        "pictures on colab-t4",
        "arrays on colab-t4",
        "pictures on rtx3060-laptop",
        "arrays on rtx3060-laptop",
    ]


def test_scripts_are_checked_beside_the_data_and_once_for_all_machines(project):
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text(
        "import numpy as np\nimport tensorflow as tf\n\ndef load(files):\n"
        "    return np.zeros((1_000_000, 84, 84))\n"
    )
    (project / "pyproject.toml").write_text(SETTINGS.replace("[[", 'scripts = ["src"]\n[[', 1))
    code, told = as_json(project)
    assert code == 0
    assert [part["target"] for part in told["reports"]][-2:] == ["rtx3060-laptop", None]
    assert told["verdict"] == "fits"
    assert as_json(project, "--fail-on", "warning")[0] == 1
    entries = json.loads(run(project, "--format", "gitlab").stdout)
    places = [(e["location"]["path"], e["location"]["lines"]["begin"]) for e in entries]
    assert ("src/train.py", 5) in places
    base = ("--baseline", "b.json", "--fail-on", "warning")
    assert run(project, *base, "--update-baseline").returncode == 0
    (project / "src" / "train.py").write_text(
        "# a line more\n" + (project / "src" / "train.py").read_text()
    )
    assert run(project, *base).returncode == 0
    assert run(project / "src", *base[2:], "--baseline", "../b.json").returncode == 0
    with open(project / "src" / "train.py", "a") as file:
        file.write("\n\ndef more(files):\n    return np.zeros((2_000_000, 84, 84))\n")
    assert run(project, *base).returncode == 1


def test_what_is_known_of_the_data_decides_how_bad_code_is(project):
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text(
        "import tensorflow as tf\n\n\ndef load(files):\n"
        "    return tf.data.TFRecordDataset(files).cache().batch(8)\n"
    )
    (project / "oomdoctor.toml").write_text('ram = "8GiB"\nscripts = ["src"]\n')
    shown = run(project).stdout
    assert shown.startswith("✓ No new errors.")
    assert "src/train.py:5:43: " in shown
    (project / "oomdoctor.toml").write_text(
        'ram = "8GiB"\nscripts = ["src"]\ndatasets = ["arrays"]\n'
    )
    assert "train.py" not in run(project).stdout  # a cache of 4 MB is fine


CACHED = (
    "import tensorflow as tf\n\n\ndef load(files):\n"
    "    return tf.data.TFRecordDataset(files).batch(8).cache()\n"
)


def test_findings_in_code_are_shown_under_every_machine(project):
    (project / "train.py").write_text(
        "import tensorflow as tf\n\nclass Batches(tf.keras.utils.Sequence):\n"
        "    def __getitem__(self, index):\n"
        "        return list(self.dataset.as_numpy_iterator())[index]\n"
    )
    machines = ("--machine", "colab-t4", "--machine", "a100-40gb")
    _, told = as_json(project, "arrays", "train.py", *machines)
    assert [part["target"] for part in told["reports"]] == ["colab-t4", "a100-40gb"]
    for part in told["reports"]:
        assert [
            finding["location"]["line"] for finding in part["findings"] if finding["location"]
        ] == [5]
        assert part["scripts"]["files"] == 1
    # Other programs are told of a line of code once.
    entries = json.loads(run(project, "arrays", "train.py", *machines, "--format", "gitlab").stdout)
    assert sum(entry["location"]["path"] == "train.py" for entry in entries) == 1
    junit = run(project, "arrays", "train.py", *machines, "--format", "junit").stdout
    assert junit.count("(train.py:5)") == 2


def test_code_is_as_bad_as_on_the_worst_machine_whatever_their_order(project):
    np.save(project / "arrays" / "y.npy", np.zeros((3_000_000, 1000), "uint8"))
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text(CACHED.replace(".batch(8).cache()", ".cache()"))
    found = {}
    for order in (["colab-t4", "a100-40gb"], ["a100-40gb", "colab-t4"]):
        (project / "oomdoctor.toml").write_text(
            f'machine = {json.dumps(order)}\nscripts = ["src"]\n'
            '[[datasets]]\npath = "arrays"\ndtype = "float64"\n'
        )
        _, told = as_json(project)
        (code,) = [part for part in told["reports"] if part["target"] is None]
        found[order[0]] = [
            (finding["rule"], finding["outcome"], finding["severity"])
            for finding in code["findings"]
            if finding["location"]
        ]
    assert found["colab-t4"]
    assert found["colab-t4"] == found["a100-40gb"]


def test_the_exit_code_needs_no_report_to_be_drawn(project, monkeypatch):
    from oomdoctor import check
    from oomdoctor.cli.check import exit_code
    from oomdoctor.report import listing

    report = check(project / "arrays", ram="1MiB", vram="1MiB")
    monkeypatch.setattr(listing, "list_problems", None)
    assert exit_code(report, "error") == 1
    assert exit_code(report, "never") == 0
