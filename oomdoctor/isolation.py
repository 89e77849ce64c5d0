"""Start Python processes that run none of the code lying around, and end with their parent.

`python -c` and `python -m` put the current folder first on the path, and `PYTHONPATH` comes right
after it: a file named `json.py` in a folder that is checked would be run. A child that is started
with `python_command` finds

1. the standard library,
2. packages that are installed, in the order in which this process finds them, user site included,
3. this very copy of oomdoctor, and nothing else of the folder that holds it,
4. last, the folders in `also`: the user's own, where a module of theirs was asked for.

It never finds the current folder, the folder of the script that runs, or a folder of source code
on `PYTHONPATH`, unless one of these was installed (`pip install --editable`).

    command = python_command("oomdoctor.inventory.hdf5_worker:serve", str(os.getpid()))
    subprocess.Popen(command, env=clean_environment())
"""

from __future__ import annotations

import json
import os
import signal
import site
import sys
from collections.abc import Iterable
from contextlib import suppress

_START = """\
import importlib, importlib.util, json, os, site, sys
home, packages, user_site, also = json.loads(sys.argv.pop(1))
target = sys.argv.pop(1)
places = set(site.getsitepackages())
library = next((i for i, entry in enumerate(sys.path) if entry in places), len(sys.path))
if user_site:
    site.addsitedir(user_site)
sys.path[:] = dict.fromkeys([*sys.path[:library], *packages, *sys.path, *also])
spec = importlib.util.spec_from_file_location(
    "oomdoctor", os.path.join(home, "__init__.py"), submodule_search_locations=[home])
sys.modules["oomdoctor"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
module, _, function = target.partition(":")
getattr(importlib.import_module(module), function)(sys.argv[1:])
"""
_HARMLESS = frozenset(
    (
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONFAULTHANDLER",
        "PYTHONHASHSEED",
        "PYTHONIOENCODING",
        "PYTHONNOUSERSITE",
        "PYTHONSAFEPATH",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
    )
)
"""Variables of Python that neither name a place to load code from nor code to run."""

_SET_PARENT_DEATH_SIGNAL = 1


def python_command(target: str, *arguments: str, also: Iterable[str] = ()) -> list[str]:
    """Return the command that runs a function of oomdoctor in a process of its own.

    Args:
        target: The function, as `module:function`. It is called with the list of arguments.
        arguments: What it is given.
        also: Folders to look for modules in after everything else.
    """
    user_site = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    user_site = user_site if user_site in sys.path else None  # others may not have one yet
    how = [os.path.dirname(__file__), _package_folders(), user_site, list(also)]
    # Isolated, Python reads no variables, so what it took from them here is handed over.
    flags = ["-I", "-X", f"utf8={sys.flags.utf8_mode}", *(["-B"] * sys.dont_write_bytecode)]
    return [sys.executable, *flags, "-c", _START, json.dumps(how), target, *arguments]


def clean_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment without the variables that make Python run other code.

    An isolated child does not read them, but what it starts in its turn would.

    Args:
        changes: Variables to set.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") or name in _HARMLESS
    }
    return kept | changes


def end_with_parent(parent: int) -> None:
    """Have this process killed as soon as its parent has ended.

    On Linux the kernel does it, whatever this process is busy with. It counts the *thread* that
    started this process as the parent, so this process also ends with that thread. Elsewhere only
    a parent that is gone already is noticed.

    Args:
        parent: The parent's process id, as it knows it.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def volunteer_for_the_oom_killer() -> None:
    """If system RAM runs out, let the kernel end this process, not the user's notebook."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _package_folders() -> list[str]:
    """Return the folders of installed packages that this process has on its path."""
    momentary = {os.path.realpath(folder) for folder in _momentary_folders()}
    return [
        entry
        for entry in map(str, sys.path)
        if os.path.isabs(entry)
        and _holds_packages(entry)
        and os.path.realpath(entry) not in momentary
    ]


def _momentary_folders() -> list[str]:
    """Return the current folder and that of the script which runs."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = [os.path.dirname(os.path.abspath(script))] if script else []
    with suppress(FileNotFoundError):  # the current folder was deleted
        folders.append(os.getcwd())
    return folders


def _holds_packages(folder: str) -> bool:
    """Return whether an installer put packages into a folder."""
    if os.path.basename(folder) in ("site-packages", "dist-packages"):
        return True
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".dist-info") for entry in entries)
    except OSError:
        return False
