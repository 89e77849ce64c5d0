"""Why did it die?"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from oomdoctor.api.conclude import conclude, installed, must_be_positive
from oomdoctor.api.machine import Size, probe_machine
from oomdoctor.errors import UsageError
from oomdoctor.facts import Diagnosis, Facts, Machine, Workload
from oomdoctor.findings import Report


def explain_error(
    error: Any,
    *,
    batch_size: int | None = None,
    model: Any = None,
    machine: str | Machine | None = None,
    ram: Size | None = None,
    vram: Size | None = None,
    redact: bool = False,
    purpose: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rules: Iterable[str | os.PathLike[str]] = (),
    severities: Mapping[str, str] | None = None,
) -> Report:
    """Return why a run died, and what to change.

    Example:
        >>> import oomdoctor
        >>> report = oomdoctor.explain_error(
        ...     "MemoryError: Unable to allocate 55.2 GiB for an array "
        ...     "with shape (42128, 376, 1248, 3) and data type uint8"
        ... )
        >>> report.facts.diagnosis.cause
        'host_array_too_large'

    Args:
        error: An exception, the text of a log, or paths: a file, a folder of logs, a notebook,
            a list of these. `-` in a list is standard input.
        batch_size: The batch size of the run, to tell which dimension of a shape it is.
        model: The Keras model that was trained, where it is at hand.
        machine: Where it ran, such as `colab-t4`. For an exception, this machine by default; a
            log may come from anywhere, so none.
        ram: System memory of that machine instead.
        vram: GPU memory of that machine instead.
        redact: Remove folders, host and user names, addresses, passwords, keys and tokens, as far
            as their form or the word before them shows what they are. Names of files, layers and
            variables stay: read the report before you share it.
        purpose: What the run is for: `prototype`, `train` or `production`. Ranks the remedies.
        select: Rules to run, by id or beginning of an id; all when empty.
        ignore: Rules to leave out.
        rules: Folders with more rules.
        severities: Severity by rule, in place of the rule's own.
    """
    if batch_size is not None:
        must_be_positive(batch_size=batch_size)
    diagnosis = _diagnose(error, batch_size)
    is_here = isinstance(error, BaseException)
    known_machine = None
    if is_here or (machine, ram, vram) != (None, None, None):
        known_machine = probe_machine(machine=machine, ram=ram, vram=vram)
    if redact:
        diagnosis = _redacted(diagnosis)
    facts = Facts(
        machine=known_machine,
        diagnosis=diagnosis,
        workload=_workload(model, batch_size),
        versions=installed() if is_here else (),
    )
    return conclude(
        "diagnose",
        facts,
        purpose=purpose,
        select=select,
        ignore=ignore,
        rules=rules,
        severities=severities,
    )


def _workload(model: Any, batch_size: int | None) -> Workload | None:
    if model is None:
        return None if batch_size is None else Workload(batch_size=batch_size)
    from oomdoctor.diagnose.live import describe_model

    return describe_model(model, batch_size)


def _diagnose(error: Any, batch_size: int | None) -> Diagnosis:
    import sys

    from oomdoctor.diagnose.live import add_live_figures
    from oomdoctor.diagnose.run import diagnose_exception, diagnose_files, diagnose_text

    if isinstance(error, BaseException):
        return add_live_figures(diagnose_exception(error, batch_size=batch_size))
    if isinstance(error, str):
        is_path = "\n" not in error and len(error) < 4096 and os.path.exists(error)
        if not is_path:
            return diagnose_text(error, batch_size=batch_size)
    paths = error if isinstance(error, (list, tuple)) else [error]
    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise UsageError("Give an exception, the text of a log, or the path of one.")
    # Closed, or not made of bytes, as in a notebook.
    stdin = getattr(sys.stdin, "buffer", None)
    return diagnose_files(paths, stdin, batch_size=batch_size)


def _redacted(diagnosis: Diagnosis) -> Diagnosis:
    import getpass
    import socket

    from oomdoctor.diagnose.redact import redact

    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container whose user has no name
        user = ""
    return redact(diagnosis, (user, socket.gethostname()))
