"""The real command, run on a small program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

import oomdoctor

HOME = Path(oomdoctor.__file__).parent.parent
SCRIPTS = HOME / "fixtures" / "scripts_profile"


# A busy machine must not fail a test: none of them is about time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def environ():
    """An environment in which `oomdoctor` is the one under test."""
    paths = [str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "OOMDOCTOR_DEBUG": "1",
    }


@pytest.fixture
def profile(tmp_path, environ):
    """A function that profiles a program and returns what came of it."""

    def run(*arguments, **how):
        folder = tmp_path / "recording"
        command = [sys.executable, "-m", "oomdoctor", "profile", "-o", folder, *arguments]
        done = subprocess.run(
            [str(word) for word in command],
            check=False,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            cwd=tmp_path,
            **how,
        )
        report = folder / "report.json"
        return SimpleNamespace(
            code=done.returncode,
            out=done.stdout,
            err=done.stderr,
            folder=folder,
            report=json.loads(report.read_text()) if report.exists() else None,
        )

    return run
