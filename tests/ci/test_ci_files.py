"""What CI systems read from this repository, by those systems' own readers where there are any."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import junitparser
import numpy as np
import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
DOCS = (REPOSITORY / "docs" / "ci.md").read_text(encoding="utf-8")
STORE = "https://json.schemastore.org"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

BAD_SCRIPT = """\
import tensorflow as tf


class Batches(tf.keras.utils.Sequence):
    def __init__(self, dataset):
        self.dataset = dataset

    def __getitem__(self, index):
        return list(self.dataset.as_numpy_iterator())[index]
"""


def block(name, language):
    """Return the block of the page that stands under a comment with this name."""
    return re.search(rf"<!-- {name} -->\n```{language}\n(.*?)```", DOCS, re.DOTALL)[1]


@pytest.fixture
def path_with_oomdoctor(tmp_path):
    """A PATH on which `oomdoctor` is this copy, as it is where it was installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "oomdoctor"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m oomdoctor "$@"\n')
    command.chmod(0o755)
    return f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def git(folder, *args):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit_all(folder):
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "all")
    return git(folder, "rev-parse", "HEAD")


def run_pre_commit(project, *args, **environ):
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", *args],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
    )


def project_with_hooks(tmp_path, *, language):
    """A checkout with the hooks, and a project that uses them."""
    checkout = tmp_path / "oomdoctor"
    if language == "python":
        shutil.copytree(
            REPOSITORY,
            checkout,
            ignore=shutil.ignore_patterns(".git", ".venv", "fixtures", "tests", "__pycache__"),
        )
    else:
        checkout.mkdir()
        hooks = (REPOSITORY / ".pre-commit-hooks.yaml").read_text()
        hooks = hooks.replace("language: python", f"language: {language}")
        (checkout / ".pre-commit-hooks.yaml").write_text(hooks)
    revision = commit_all(checkout)
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    np.save(project / "data" / "x.npy", np.zeros((1000, 1000)))
    (project / "train.py").write_text(BAD_SCRIPT)
    (project / "fine.py").write_text("print('no TensorFlow here')\n")
    (project / "oomdoctor.toml").write_text('ram = "8GiB"\ndatasets = ["data"]\n')
    config = yaml.safe_load(block("pre-commit", "yaml"))
    config["repos"][0].update(repo=str(checkout), rev=revision)
    config["repos"][0]["hooks"][1].pop("stages")
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(project, "init", "-q")
    git(project, "add", "-A")
    return project


def assert_hooks_work(project, **environ):
    told = run_pre_commit(project, "run", "--all-files", **environ)
    assert told.returncode == 1, told.stdout + told.stderr
    assert "train.py:9:" in told.stdout
    assert "OD901" in told.stdout
    assert re.search(r"what the project names fits in memory\.+Passed", told.stdout)
    only = run_pre_commit(project, "run", "oomdoctor", "--files", "fine.py", **environ)
    assert only.returncode == 0, only.stdout
    (project / "oomdoctor.toml").write_text('ram = "8MiB"\ndatasets = ["data"]\n')
    told = run_pre_commit(project, "run", "oomdoctor-gate", "--all-files", **environ)
    assert told.returncode == 1
    assert "1 of 1 does not fit" in told.stdout


def test_pre_commit_runs_the_hooks_from_a_checkout(tmp_path, path_with_oomdoctor):
    # `language: system` takes the installed oomdoctor; the test below lets pre-commit install it.
    project = project_with_hooks(tmp_path, language="system")
    assert_hooks_work(project, PATH=path_with_oomdoctor, PRE_COMMIT_HOME=str(tmp_path / "home"))


@pytest.mark.heavy  # installs the package and what it needs, from a package index
def test_pre_commit_installs_the_hooks_and_runs_them(tmp_path):
    project = project_with_hooks(tmp_path, language="python")
    environ = {"PRE_COMMIT_HOME": str(tmp_path / "home"), "PYTHONPATH": ""}
    assert_hooks_work(project, **environ)


def test_pre_commit_accepts_the_hooks_and_the_page_s_configuration(tmp_path, published_schema):
    manifest = str(REPOSITORY / ".pre-commit-hooks.yaml")
    told = run_pre_commit(tmp_path, "validate-manifest", manifest)
    assert told.returncode == 0, told.stdout
    (tmp_path / "c.yaml").write_text(block("pre-commit", "yaml"))
    told = run_pre_commit(tmp_path, "validate-config", "c.yaml")
    assert told.returncode == 0, told.stdout


def test_the_action_obeys_the_schema_of_actions(published_schema):
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    jsonschema.validate(action, published_schema(f"{STORE}/github-action.json"))
    # Inputs reach the shell through its environment alone: what they hold cannot become code.
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]


def run_step(name, folder, inputs, **environ):
    """Run one step of the action as GitHub's runner does."""
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    step = next(step for step in action["runs"]["steps"] if step["id"] == name)
    defaults = {key: value["default"] for key, value in action["inputs"].items()}
    values = {**defaults, **inputs}

    def filled(text):
        text = text.replace("${{ github.action_path }}", "/actions/oomdoctor")
        return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)

    files = {key: folder / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    given = {key: filled(value) for key, value in step["env"].items()}
    (folder / "step.sh").write_text(step["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **{k: str(v) for k, v in files.items()}, **given, **environ},
    )
    return done, {key: file.read_text() for key, file in files.items()}


def test_the_action_s_check_annotates_summarises_and_fails(tmp_path, path_with_oomdoctor):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.zeros((1000, 1000)))
    inputs = {"args": "data\n  --ram 8MiB", "sarif": "out.sarif"}
    done, files = run_step("check", tmp_path, inputs, PATH=path_with_oomdoctor)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=pyproject.toml,line=1,title=OD101 ")
    assert files["GITHUB_OUTPUT"] == "exit-code=1\nsarif=out.sarif\n"
    assert files["GITHUB_STEP_SUMMARY"].startswith("### oomdoctor check")
    assert json.loads((tmp_path / "out.sarif").read_text())["version"] == "2.1.0"


def test_the_action_s_check_passes_and_tells_what_is_wrong(tmp_path, path_with_oomdoctor):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.zeros((10, 10)))
    (tmp_path / "oomdoctor.toml").write_text('ram = "8GiB"\ndatasets = ["data"]\n')
    done, files = run_step("check", tmp_path, {}, PATH=path_with_oomdoctor)
    assert done.returncode == 0, done.stderr
    assert files["GITHUB_OUTPUT"].startswith("exit-code=0\n")
    hostile = {"args": "$(touch pwned) ; touch pwned"}
    done, files = run_step("check", tmp_path, hostile, PATH=path_with_oomdoctor)
    assert done.returncode == 2
    assert files["GITHUB_OUTPUT"].startswith("exit-code=2\n")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("inputs", "installs"),
    [
        ({}, "/actions/oomdoctor"),
        ({"extras": "tensorflow-cpu"}, "/actions/oomdoctor[tensorflow-cpu]"),
        ({"version": "0.1.0"}, "oomdoctor==0.1.0"),
        ({"version": "0.1.0", "extras": "hdf5"}, "oomdoctor[hdf5]==0.1.0"),
    ],
)
def test_the_action_installs_what_was_asked_for(tmp_path, inputs, installs):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    done, _ = run_step("install", tmp_path, inputs, PATH=path)
    assert done.stdout.split() == ["-I", "-m", "pip", "install", "--quiet", installs]


def test_the_page_s_github_workflow_obeys_its_schema(published_schema):
    workflow = yaml.safe_load(block("github", "yaml"))
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads `on` as a truth value
    jsonschema.validate(workflow, published_schema(f"{STORE}/github-workflow.json"))
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    step = next(s for s in workflow["jobs"]["memory"]["steps"] if "oomdoctor" in s["uses"])
    assert set(step["with"]) <= set(action["inputs"])


def test_the_page_s_gitlab_job_obeys_its_schema_and_runs(
    tmp_path, path_with_oomdoctor, published_schema
):
    address = (
        "https://gitlab.com/gitlab-org/gitlab/-/raw/master/app/assets/javascripts/editor/schema/"
        "ci.json"
    )
    jobs = yaml.safe_load(block("gitlab", "yaml"))
    jsonschema.validate(jobs, published_schema(address))
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "x.npy", np.zeros((1000, 1000)))
    (tmp_path / "oomdoctor.toml").write_text('ram = "8MiB"\ndatasets = ["data"]\n')
    script = [line for line in jobs["memory"]["script"] if not line.startswith("pip install")]
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path_with_oomdoctor, "CI_PROJECT_DIR": str(tmp_path)},
    )
    assert done.returncode == 1, done.stderr
    reports = jobs["memory"]["artifacts"]["reports"]
    entries = json.loads((tmp_path / reports["codequality"]).read_text())
    assert {entry["location"]["path"] for entry in entries} == {"oomdoctor.toml"}
    assert junitparser.JUnitXml.fromfile(str(tmp_path / reports["junit"])).failures > 0


def test_the_page_s_configuration_is_one(tmp_path):
    toml = pytest.importorskip("tomllib")
    from oomdoctor.cli.config import Config
    from oomdoctor.cli.plan import read_plan

    settings = toml.loads(block("config", "toml"))["tool"]["oomdoctor"]
    config = Config(path=tmp_path / "pyproject.toml", settings=settings)
    plan = read_plan(config, defaults={"batch_size": 8})
    assert plan["models"][0].batch_sizes == (32, 64)
    assert plan["datasets"][0].how_fed["load"] == "stream"
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    readme = re.search(r"## In CI.*?```toml\n(.*?)```", text, re.DOTALL)[1]
    config = Config(path=tmp_path / "p.toml", settings=toml.loads(readme)["tool"]["oomdoctor"])
    plan = read_plan(config, defaults={"batch_size": 8})
    assert [len(section) for section in plan.values()] == [1, 1, 1]


@pytest.mark.tensorflow
@pytest.mark.slow
def test_the_page_s_tests_pass(tmp_path):
    (tmp_path / "test_page.py").write_text(block("pytest", "python"))
    command = [sys.executable, "-m", "pytest", "-p", "oomdoctor.testing.plugin", "-q"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ
    )
    assert "2 passed" in done.stdout, done.stdout
