"""A configuration comes with a checkout: it is a stranger's, and gives defaults alone."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np
import pytest

from oomdoctor.cli import COMMANDS
from oomdoctor.cli.config import PATHS, find_config
from oomdoctor.cli.options import CommandLineOption

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

SOMEBODY = 54321


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    np.save(folder / "data" / "x.npy", np.zeros((10, 10)))
    (folder / "train.py").write_text("import tensorflow as tf\n")
    return folder


def run(project, *args, **environ):
    return subprocess.run(
        [sys.executable, "-m", "oomdoctor", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=project,
        env={**os.environ, **environ},
    )


def assert_refused(done, *says):
    assert done.returncode == 2, done.stdout
    for words in says:
        assert words in done.stderr
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ('also = ["markdown={victim}"]', "--also"),
        ('output = "{victim}"', "--output"),
        ("update-baseline = true\nbaseline = 'b.json'", "--update-baseline"),
        ("update_baseline = true\nbaseline = 'b.json'", "--update-baseline"),
        ("fix = true", "--fix"),
        ('timeline = "{victim}"', "--timeline"),
        ("write-index = true", "--write-index"),
        ('config = "{victim}"', "--config"),
    ],
)
@pytest.mark.parametrize("command", ["check", "diagnose", "estimate"])
def test_keys_that_write_are_for_the_command_line(project, tmp_path, line, flag, command):
    victim = tmp_path / "victim.pth"
    victim.write_text("precious")
    (project / "oomdoctor.toml").write_text(line.format(victim=victim))
    target = {"check": "data", "diagnose": "train.py", "estimate": "model.keras"}[command]
    done = run(project, command, target)
    assert_refused(done, f"give {flag} on the command line")
    assert victim.read_text() == "precious"
    assert not (project / "b.json").exists()


def test_every_option_that_names_a_file_is_read_only_or_for_the_command_line():
    # A new option that writes must be a CommandLineOption; this fails where that was forgotten.
    read = {*PATHS, "from", "compare", "validate"}
    for command in COMMANDS:
        for param in importlib.import_module(f"oomdoctor.cli.{command}").command.params:
            if not isinstance(param, click.Option):
                continue
            names = {name.lstrip("-") for name in param.opts}
            files = isinstance(param.type, click.Path) or "FILE" in str(
                param.metavar or param.type.name
            )
            if files and not names & read:
                assert isinstance(param, CommandLineOption), (command, names)


@pytest.mark.parametrize(
    "settings",
    [
        'rules = ["{outside}"]',
        'rules = "../outside"',
        'rules = ["data/../../outside"]',
        'rules = ["link"]',
        'baseline = "{outside}/b.json"',
        'baseline = "../b.json"',
        'baseline = "link/b.json"',
        'datasets = ["{outside}"]',
        'datasets = ["../outside"]',
        'datasets = ["link"]',
        'datasets = ["/"]',
        'scripts = ["{outside}"]',
        'scripts = ["../outside"]',
        'scripts = ["link"]',
        'models = ["{outside}/m.keras"]',
        'models = ["../outside/m.keras"]',
        'models = ["link/m.keras"]',
        'datasets = ["a\\u0000b"]',
        'rules = "a\\u0000b"',
    ],
)
def test_paths_stay_below_the_configuration(project, tmp_path, settings):
    outside = tmp_path / "outside"
    outside.mkdir()
    np.save(outside / "x.npy", np.zeros((10, 10)))
    (outside / "b.json").write_text('{"tool": "oomdoctor", "version": 1}')
    (project / "link").symlink_to(outside)
    text = settings.format(outside=outside)
    if not text.startswith(("datasets", "scripts", "models")):
        text += '\ndatasets = ["data"]'
    (project / "oomdoctor.toml").write_text(text)
    assert_refused(run(project, "check"), "leads out of", "command line")


def test_a_loop_of_links_is_one_sentence(project):
    (project / "loop").symlink_to(project / "loop")
    (project / "oomdoctor.toml").write_text('datasets = ["loop"]')
    assert_refused(run(project, "check"), "loop")


def test_a_person_may_name_a_configuration_with_paths_elsewhere(project, tmp_path):
    trusted = tmp_path / "trusted.toml"
    trusted.write_text(f'ram = "8GiB"\ndatasets = ["{project / "data"}", "project/data"]\n')
    (project / "oomdoctor.toml").write_text("nonsense")
    done = run(project, "check", "--config", str(trusted), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["reports"]) == 2
    assert f"using the settings in {trusted}" in done.stderr


@pytest.mark.parametrize("name", ["missing.toml", "data", "pipe", "pyproject.toml", "a\nb"])
def test_a_configuration_that_cannot_be_used_is_one_sentence(project, name):
    os.mkfifo(project / "pipe")
    (project / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert_refused(run(project, "check", "data", "--config", name))


def test_the_file_that_was_used_is_named(project):
    (project / "pyproject.toml").write_text("[tool.oomdoctor]\nbatch-size = 8\n")
    deeper = project / "deeper"
    deeper.mkdir()
    (deeper / "data").symlink_to(project / "data")
    for folder in (project, deeper):
        done = run(folder, "check", "data")
        assert done.returncode == 0
        assert f"using the settings in {project / 'pyproject.toml'}" in done.stderr


def test_a_file_above_the_repository_is_not_used(project, tmp_path):
    (tmp_path / "oomdoctor.toml").write_text("batch-size = 7\n")
    inside = project / "data"
    assert find_config(inside).path == tmp_path / "oomdoctor.toml"
    (project / ".git").mkdir()
    assert find_config(inside) is None
    (project / "oomdoctor.toml").write_text("batch-size = 8\n")
    assert find_config(inside).path == project / "oomdoctor.toml"
    (project / ".git").rmdir()
    (project / ".git").write_text("gitdir: elsewhere\n")  # as in a worktree or a submodule
    assert find_config(inside).path == project / "oomdoctor.toml"


def test_a_file_above_the_home_folder_is_not_used(project, tmp_path, monkeypatch):
    (tmp_path / "oomdoctor.toml").write_text("batch-size = 7\n")
    monkeypatch.setenv("HOME", str(project))
    assert find_config(project / "data") is None
    (project / "oomdoctor.toml").write_text("batch-size = 8\n")
    assert find_config(project / "data").path == project / "oomdoctor.toml"


@needs_root
@pytest.mark.parametrize("gives", ["file", "link"])
def test_a_file_of_another_user_is_not_used_and_that_is_said(project, tmp_path, gives):
    theirs = project / "oomdoctor.toml"
    if gives == "file":
        theirs.write_text("nonsense")
    else:
        (project / "mine.toml").write_text("nonsense")
        theirs.symlink_to("mine.toml")
    os.chown(theirs, SOMEBODY, SOMEBODY, follow_symlinks=False)
    (project / "pyproject.toml").write_text("[tool.oomdoctor]\nbatch-size = 8\n")
    done = run(project, "check", "data", "--format", "json", SUDO_UID="")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["footprint"]["batch_size"] == 8
    assert f"{theirs} belongs to another user and is not used" in done.stderr
    done = run(project, "check", "data", SUDO_UID=str(SOMEBODY))
    assert_refused(done, "is not valid TOML")
    assert_refused(run(project, "check", "data", "--config", "oomdoctor.toml"), "is not valid TOML")


@needs_root
def test_a_file_of_root_is_used_by_everybody(project):
    (project / "oomdoctor.toml").write_text("batch-size = 8\n")
    for folder in (project, *project.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    code = (
        "import os, pathlib, sys; from oomdoctor.cli.config import find_config, read_toml\n"
        "read_toml(str())  # imports what it needs while it may\n"
        f"os.seteuid({SOMEBODY})\n"
        "print(find_config(pathlib.Path(sys.argv[1])).path.name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(project)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "oomdoctor.toml\n", done.stderr


def test_a_link_out_of_the_project_is_not_followed(project, tmp_path):
    (tmp_path / "secret.toml").write_text('token = "hunter2"\n')
    (project / "oomdoctor.toml").symlink_to(tmp_path / "secret.toml")
    done = run(project, "check", "data")
    assert_refused(done, "is a link that leads out of")
    assert "token" not in done.stderr


def test_a_pyproject_that_is_about_other_tools_is_not_even_parsed(project):
    (project / "pyproject.toml").write_text("[tool.other\n" + "a." * 100_000)
    assert run(project, "check", "data").returncode == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (".".join(["a"] * 30_000) + " = 1", "more than 32 parts"),
        ("x = " + "[" * 5000 + "]" * 5000, "nested too deep"),
        ("batch-size = " + "9" * 5000, "too large"),
        ("batch-size = 0x" + "f" * 5000, "too large"),
        ("batch-size = inf", "not a valid int"),
        ("batch-size = nan", "not a valid int"),
        ("batch-size = [1, 2]", "single value"),
        ("batch-size = 2026-01-01", "neither a word"),
        ("select = [[1]]", "neither a word"),
        ("select = [{a = 1}]", "neither a word"),
        ("rules = {a = 1}", "neither a word"),
        ("severity = {OD101 = {a = 1}}", "severity"),
        ("machine = {a = 1}", "neither a word"),
        ("verbose = 'perhaps'", "verbose"),
        ("scripts = 5", "scripts is a list"),
        ("datasets = 5", "datasets is a list"),
        ("datasets = [5]", "datasets is a list"),
        ("models = [[]]", "models is a list"),
        ("x" * 100_000 + " = 1", "unknown key"),
        ("#" * 300_000, "larger than 256 KiB"),
        (b"\xff\xfe".decode("latin-1") + "\0", "not valid TOML"),
    ],
)
def test_a_hostile_configuration_is_one_sentence(project, text, says):
    (project / "oomdoctor.toml").write_text(text, encoding="utf-8")
    done = run(project, "check")
    assert_refused(done, says)
    assert len(done.stderr) < 3000


def test_what_is_not_utf_8_a_pipe_or_a_folder_is_one_sentence(project):
    config = project / "oomdoctor.toml"
    config.write_bytes(b"a = '\xff'")
    assert_refused(run(project, "check", "data"), "is not valid TOML")
    config.unlink()
    os.mkfifo(config)
    assert_refused(run(project, "check", "data"), "it is not a file")
    config.unlink()
    config.mkdir()
    assert_refused(run(project, "check", "data"), "it is not a file")
    config.rmdir()
    config.symlink_to(config)
    assert_refused(run(project, "check", "data"), "oomdoctor.toml")


def test_a_broken_configuration_does_not_stop_help(project):
    (project / "oomdoctor.toml").write_text("nonsense")
    assert run(project, "check", "--help").returncode == 0


@pytest.mark.parametrize("content", ["import os\n", '{"tool": "other"}', "x" * 5000])
def test_a_baseline_never_takes_the_place_of_another_file(project, content):
    (project / "setup.py").write_text(content)
    (project / "oomdoctor.toml").write_text(
        'ram = "8GiB"\nbaseline = "setup.py"\ndatasets = ["data"]\n'
    )
    done = run(project, "check", "--update-baseline")
    assert_refused(done, "left as it is")
    assert (project / "setup.py").read_text() == content


def test_a_baseline_in_conflict_or_empty_is_recorded_again(project):
    baseline = project / "b.json"
    (project / "oomdoctor.toml").write_text(
        'ram = "8GiB"\nbaseline = "b.json"\ndatasets = ["data"]\n'
    )
    for before in ("", '{\n "tool": "oomdoctor",\n<<<<<<< HEAD\n'):
        baseline.write_text(before)
        assert run(project, "check", "--update-baseline").returncode == 0
        assert json.loads(baseline.read_text())["tool"] == "oomdoctor"


def test_models_are_left_out_on_demand_and_that_is_said(project):
    mark = project / "mark"
    (project / "model.py").write_text(f"open({str(mark)!r}, 'w')\n")
    (project / "oomdoctor.toml").write_text(
        'ram = "8GiB"\nbaseline = "b.json"\ndatasets = ["data"]\nmodels = ["model:build"]\n'
    )
    (project / "b.json").write_text('{"tool": "oomdoctor", "version": 1}')
    done = run(project, "check", "--no-models")
    assert done.returncode == 0, done.stderr
    assert "1 model(s) in the configuration were not checked" in done.stdout
    assert not mark.exists()
    assert_refused(run(project, "check", "--no-models", "--update-baseline"), "--no-models")


def limited(project, *args, most=512):
    """Run with a limit on the size of files, which fails a write as a full disk does."""
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "sys.dont_write_bytecode = True\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        f"sys.argv = ['oomdoctor', *{list(args)!r}]\n"
        "from oomdoctor.cli import main; main()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=project
    )


@pytest.mark.parametrize(
    "args",
    [
        ("--output", "out.json"),
        ("--also", "sarif=out.json"),
        ("--baseline", "out.json", "--update-baseline"),
    ],
)
def test_a_full_disk_leaves_nothing_behind_and_the_old_file_as_it_was(project, args):
    before = '{"tool": "oomdoctor", "version": 1}'
    (project / "out.json").write_text(before)
    for number in range(30):  # findings enough for a baseline of more than the limit
        (project / f"t{number}.py").write_text(
            "import tensorflow as tf\n"
            "class Batches(tf.keras.utils.Sequence):\n"
            "    def __getitem__(self, index):\n"
            "        return list(self.dataset.as_numpy_iterator())[index]\n"
        )
    paths = sorted(path.name for path in project.iterdir())
    done = limited(project, "check", ".", "--format", "json", *args)
    assert_refused(done, "out.json cannot be written (File too large)")
    assert sorted(path.name for path in project.iterdir()) == paths
    assert (project / "out.json").read_text() == before


def test_output_goes_to_devices_pipes_and_open_files(project):
    args = ("check", "data", "--format", "json", "--output")
    assert json.loads(run(project, *args, "/dev/stdout").stdout)
    assert run(project, *args, "/dev/null").returncode == 0
    assert not Path("/dev/null").is_file()
    with open(project / "o.json", "w") as file:
        subprocess.run(
            [sys.executable, "-m", "oomdoctor", *args, "/dev/stdout"],
            stdout=file,
            stderr=subprocess.DEVNULL,
            cwd=project,
            check=True,
        )
    assert json.loads((project / "o.json").read_text())
    os.mkfifo(project / "pipe")
    reader = subprocess.Popen(["cat", project / "pipe"], stdout=subprocess.PIPE)
    assert run(project, *args, "pipe").returncode == 0
    assert json.loads(reader.communicate(timeout=60)[0])


def test_a_replaced_file_keeps_its_permissions(project):
    (project / "o.json").write_text("")
    (project / "o.json").chmod(0o640)
    run(project, "check", "data", "--output", "o.json")
    assert (project / "o.json").stat().st_mode & 0o777 == 0o640
    assert (project / "o.json").read_text()
