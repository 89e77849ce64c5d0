"""Runs one marked test in a pytest of its own and brings its reports back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oomdoctor.testing.explain import explained, read_end

if TYPE_CHECKING:
    from oomdoctor.testing.plugin import Limit

NOT_THERE = frozenset(("--pdb", "--trace", "--collect-only", "--co"))
"""Options that make no sense in a process that nobody talks to."""
SHOWN_LINES = 30


def reports_of(item: pytest.Item, limit: Limit) -> list[pytest.TestReport]:
    """Return what a test did in its own process; a failure where that process died."""
    with tempfile.TemporaryDirectory(prefix="oomdoctor-pytest-") as folder:
        reports, log = Path(folder, "reports.jsonl"), Path(folder, "log.txt")
        ending = _run(item, limit, folder, reports, log)
        found = _read(item, reports)
        if not any(report.when == "teardown" for report in found):
            found.append(_failure(item, limit, ending, read_end(str(log))))
        return found


def _run(item: pytest.Item, limit: Limit, folder: str, reports: Path, log: Path) -> str:
    """Return how the process ended, in words."""
    from oomdoctor.runner.process import environment

    environ = environment(limit.limit_bytes)
    environ["OOMDOCTOR_FITS_MEMORY"] = str(reports)
    environ["OOMDOCTOR_LOG"] = str(log)
    environ["OOMDOCTOR_PARENT"] = str(os.getpid())
    command = [sys.executable, *_as_here(), "-m", "pytest", *arguments(item, folder)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=item.config.invocation_params.dir,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit.timeout)
        except subprocess.TimeoutExpired:
            return (
                f"The test was ended after {limit.timeout:g} s. TensorFlow waits ten seconds for "
                "each operation that finds no memory; timeout= in the mark allows more."
            )
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return _ending(code)


def _as_here() -> list[str]:
    """Keep the current folder off the path of modules if it is not on it here.

    `-m` puts it first, where a `queue.py` of the project would hide that of Python.
    """
    is_here = any(os.path.abspath(place) == os.getcwd() for place in sys.path)
    return [] if is_here or sys.version_info < (3, 11) else ["-P"]


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "The test's process was killed: the machine itself probably ran out of memory."
    if code < 0:
        return f"The test's process was ended by {signal.Signals(-code).name}."
    return f"The test's process ended with exit code {code} and without a result."


def arguments(item: pytest.Item, folder: str) -> list[str]:
    """Return the arguments of this run of pytest, for one test alone."""
    config = item.config
    given = [arg for arg in _given(config) if arg not in NOT_THERE]
    for place in reversed(getattr(config.option, "file_or_dir", None) or []):
        with contextlib.suppress(ValueError):
            del given[len(given) - 1 - given[::-1].index(place)]
    # What TensorFlow itself writes goes to the log, also if the process dies of it.
    added = ["--capture=sys", "--rootdir", str(config.rootpath), "-o", f"cache_dir={folder}/cache"]
    if config.inipath is not None:
        added += ["-c", str(config.inipath)]
    has = config.pluginmanager.hasplugin
    added += ["--junit-xml="] if has("junitxml") else []
    added += ["-n0"] if has("xdist") else []
    added += ["--no-cov"] if has("_cov") else []
    _, _, name = item.nodeid.partition("::")
    return [*given, *added, f"{item.path}::{name}"]


def _given(config: pytest.Config) -> list[str]:
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:  # of pytest-xdist, which was not started with arguments itself
        return [str(arg) for arg in worker.get("mainargv", [])[1:]]
    return [str(arg) for arg in config.invocation_params.args]


def _read(item: pytest.Item, path: Path) -> list[pytest.TestReport]:
    found = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:  # torn by the end of the process
            continue
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        report.nodeid = item.nodeid
        found.append(report)
    return found


def _failure(item: pytest.Item, limit: Limit, ending: str, log: str) -> pytest.TestReport:
    tail = "\n".join(log.splitlines()[-SHOWN_LINES:])
    # TensorFlow crashes where an array becomes a tensor and there is no memory for it.
    if "ran out of memory trying to allocate" in log:
        ending = f"{explained(log, limit)}\n{ending}"
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=ending,
        when="call",
        sections=[("The end of what it wrote", tail)] if tail else [],
    )
