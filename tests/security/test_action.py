"""The action and the hooks run in strangers' checkouts, and run nothing of them.

Except for models, where the workflow asks for them.

The steps of `action.yml` are executed as GitHub's runner does, in a checkout that holds modules
named like those that pip, oomdoctor and Python itself import. Each leaves a mark when it is run.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())

SHADOWS = (
    *("pip", "json", "click", "msgspec", "oomdoctor", "tomllib", "runpy", "re", "ast", "types"),
    *("sitecustomize", "usercustomize", "setuptools", "hatchling", "numpy", "psutil", "pynvml"),
    *("tabulate", "typing", "dataclasses", "subprocess", "queue", "tempfile", "contextlib"),
)


@pytest.fixture
def checkout(tmp_path):
    """A stranger's checkout; `marks` is where their code says that it was run."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    mark = f"open({str(tmp_path / 'marks')!r}, 'a').write(__name__ + '\\n')\n"
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(mark)
    for name in ("conftest", "setup"):
        (folder / f"{name}.py").write_text(mark)
    (folder / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/stranger\n")
    (folder / "data").mkdir()
    np.save(folder / "data" / "x.npy", np.zeros((100, 100)))
    (folder / "model.py").write_text(f"{mark}\ndef build():\n    raise SystemExit\n")
    (folder / "oomdoctor.toml").write_text(
        'ram = "8GiB"\ndatasets = ["data"]\nscripts = ["model.py"]\nmodels = ["model:build"]\n'
    )
    return folder


def run_step(name, folder, inputs, **environ):
    step = next(step for step in ACTION["runs"]["steps"] if step["id"] == name)
    values = {**{key: value["default"] for key, value in ACTION["inputs"].items()}, **inputs}

    def filled(text):
        text = text.replace("${{ github.action_path }}", str(REPOSITORY))
        return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)

    files = {key: folder.parent / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    script = folder.parent / "step.sh"
    script.write_text(step["run"])
    given = {key: filled(value) for key, value in step["env"].items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder / filled(step.get("working-directory", ".")),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **{k: str(v) for k, v in files.items()}, **given, **environ},
    )


def ran(checkout):
    marks = checkout.parent / "marks"
    return marks.read_text().split() if marks.exists() else []


def path_with(python):
    return f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("python_path", ["", ".", "{checkout}"])
def test_installing_runs_nothing_of_the_checkout(checkout, tmp_path, python_path):
    # A real pip, in an environment of its own, and a real wheel from a folder instead of an index.
    venv.create(tmp_path / "env", with_pip=True)
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "oomdoctor-9.9.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr("oomdoctor/__init__.py", "")
        info = "oomdoctor-9.9.9.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: oomdoctor\nVersion: 9.9.9\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")
    python = tmp_path / "env" / "bin" / "python"
    done = run_step(
        "install",
        checkout,
        {"version": "9.9.9"},
        PATH=path_with(python),
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(index),
        PYTHONPATH=python_path.format(checkout=checkout),
    )
    assert done.returncode == 0, done.stderr
    assert ran(checkout) == []
    listed = subprocess.run(
        [python, "-I", "-c", "import oomdoctor; print(oomdoctor.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "env") in listed.stdout


@pytest.mark.parametrize("python_path", ["", ".", "{checkout}"])
@pytest.mark.parametrize("args", ["", "data", "-- data model.py"])
def test_checking_runs_nothing_of_the_checkout(checkout, python_path, args):
    done = run_step(
        "check",
        checkout,
        {"args": args},
        PATH=path_with(sys.executable),
        PYTHONPATH=python_path.format(checkout=checkout),
    )
    assert done.returncode == 0, done.stderr
    assert ran(checkout) == []
    if not args:
        assert (
            "1 model(s) in the configuration were not checked"
            in (checkout.parent / "GITHUB_STEP_SUMMARY").read_text()
        )


@pytest.mark.tensorflow
@pytest.mark.slow
def test_models_are_imported_where_the_workflow_asks_for_it(checkout):
    for name in SHADOWS:
        (checkout / f"{name}.py").unlink()
    run_step("check", checkout, {"models": "true"}, PATH=path_with(sys.executable))
    assert "model" in ran(checkout)


def test_a_link_in_the_checkout_does_not_lead_the_report_elsewhere(checkout):
    victim = checkout.parent / "victim.pth"
    victim.write_text("precious")
    (checkout / "oomdoctor.sarif").symlink_to(victim)
    done = run_step("check", checkout, {"args": "data"}, PATH=path_with(sys.executable))
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "precious"
    assert not (checkout / "oomdoctor.sarif").is_symlink()


def test_no_step_starts_python_in_a_way_that_looks_into_the_current_folder():
    for step in ACTION["runs"]["steps"]:
        for line in step["run"].splitlines():
            if re.match(r"\s*(python|pip|oomdoctor)\b", line):
                assert line.strip().startswith("python -I -m ")


def git(folder, *args):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_file_that_is_named_like_an_option_is_a_file_to_the_hook(tmp_path):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    manifest = (REPOSITORY / ".pre-commit-hooks.yaml").read_text()
    (hooks / ".pre-commit-hooks.yaml").write_text(
        manifest.replace("language: python", "language: system")
    )
    git(hooks, "init", "-q")
    git(hooks, "add", "-A")
    git(hooks, "commit", "-qm", "all")
    project = tmp_path / "project"
    project.mkdir()
    (project / "victim.py").write_text("precious = 1\n")
    (project / "--also=text=victim.py").write_text("import tensorflow as tf\n")
    config = {
        "repos": [
            {
                "repo": str(hooks),
                "rev": git(hooks, "rev-parse", "HEAD"),
                "hooks": [{"id": "oomdoctor"}],
            }
        ]
    }
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(project, "init", "-q")
    git(project, "add", "-A")
    command = tmp_path / "bin" / "oomdoctor"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m oomdoctor "$@"\n')
    command.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--verbose"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "PRE_COMMIT_HOME": str(tmp_path / "home"),
        },
    )
    assert done.returncode == 0, done.stdout
    assert "No memory mistakes found in 2 scripts" in done.stdout
    assert (project / "victim.py").read_text() == "precious = 1\n"
