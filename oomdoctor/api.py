"""The functions people import. Facts flow one way: probe, inventory, footprint → rules → report.

Only this module composes the stages; each of them knows nothing of the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oomdoctor import _show
from oomdoctor.errors import InputError, UsageError
from oomdoctor.facts import Diagnosis, Facts, Footprint, Inventory, Machine, Stage, Workload
from oomdoctor.findings import Report
from oomdoctor.units import dtype_bytes, parse_size

LOADS = ("auto", "memory", "stream")

Size = str | int


def probe_machine(
    *, machine: str | Machine | None = None, ram: Size | None = None, vram: Size | None = None
) -> Machine:
    """Return the memory of this machine, or of the one that is named or declared.

    Example:
        >>> import oomdoctor
        >>> machine = oomdoctor.probe_machine(ram="16GiB", vram="6GiB")
        >>> machine.gpus[0].free_bytes
        6442450944

    Args:
        machine: A catalogue entry such as `colab-t4`; None looks at this machine.
        ram: System memory to reckon with instead, such as `16GiB`.
        vram: GPU memory to reckon with instead.
    """
    from oomdoctor.probe.catalogue import find_machine
    from oomdoctor.probe.machine import declare_machine
    from oomdoctor.probe.machine import probe_machine as probe

    if isinstance(machine, Machine):
        base = machine
    elif machine is not None:
        base = find_machine(machine)
    else:
        base = probe(with_gpus=vram is None)
    return declare_machine(
        base,
        ram=None if ram is None else parse_size(ram),
        vram=None if vram is None else parse_size(vram),
    )


def check(
    target: Any,
    *,
    machine: str | Machine | None = None,
    ram: Size | None = None,
    vram: Size | None = None,
    image_size: Sequence[int] | None = None,
    dtype: str | None = None,
    batch_size: int = 32,
    replicas: int = 1,
    load: str = "auto",
    sample: int | None = None,
    purpose: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rules: Iterable[str | os.PathLike[str]] = (),
    severities: Mapping[str, str] | None = None,
    progress: Any = None,
    keep_partial: bool = False,
) -> Report:
    """Return whether a dataset fits in memory, and what to change if it does not.

    Example:
        >>> import oomdoctor
        >>> report = oomdoctor.check("fixtures/datasets/shapes", ram="8GiB", vram="4GiB")
        >>> report.verdict
        'fits'

    Args:
        target: A folder, a file, a list of these, a NumPy array or memory-map, a pandas
            DataFrame, or a `tf.data.Dataset`.
        machine: A catalogue entry such as `colab-t4` to compare with; None is this machine.
        ram: System memory to compare with instead, such as `16GiB`.
        vram: GPU memory to compare with instead.
        image_size: Height, width and perhaps channels that pictures are resized to.
        dtype: What the loading code makes of the data, such as `float32`.
        batch_size: Samples per batch, over all replicas.
        replicas: GPUs that share each batch, as under `tf.distribute.MirroredStrategy`.
        load: How the data is fed: `memory`, `stream`, or `auto`, which takes arrays and tables
            to be loaded whole and the rest streamed.
        sample: Read only this many files of each group, chosen at random.
        purpose: What the run is for: `prototype`, `train` or `production`. Ranks the remedies.
        select: Rules to run, by id or beginning of an id; all when empty.
        ignore: Rules to leave out.
        rules: Folders with more rules.
        severities: Severity by rule, in place of the rule's own.
        progress: Called with the number of files seen, now and then.
        keep_partial: On Ctrl-C report what was seen so far instead of raising.
    """
    _must_be_sensible(image_size, dtype, load, sample)
    _must_be_positive(batch_size=batch_size, replicas=replicas)
    inventory, stages = _look(target, sample=sample, progress=progress, keep_partial=keep_partial)
    if not inventory.groups:
        raise InputError(_nothing_found(inventory))
    known_machine = probe_machine(machine=machine, ram=ram, vram=vram)
    footprint = _measure(
        inventory,
        stages,
        known_machine,
        image_size=None if image_size is None else tuple(image_size),
        dtype=dtype,
        batch_size=batch_size,
        load=load,
    )
    facts = Facts(
        machine=known_machine,
        inventory=inventory,
        footprint=footprint,
        workload=Workload(replicas=replicas, batch_size=batch_size),
        versions=_versions(),
    )
    return _conclude(
        "check",
        facts,
        purpose=purpose,
        select=select,
        ignore=ignore,
        rules=rules,
        severities=severities,
    )


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
        redact: Take out user names, paths, host names and tokens, to share the report.
        purpose: What the run is for: `prototype`, `train` or `production`. Ranks the remedies.
        select: Rules to run, by id or beginning of an id; all when empty.
        ignore: Rules to leave out.
        rules: Folders with more rules.
        severities: Severity by rule, in place of the rule's own.
    """
    if batch_size is not None:
        _must_be_positive(batch_size=batch_size)
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
        versions=_versions() if is_here else (),
    )
    return _conclude(
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
    return diagnose_files(paths, sys.stdin.buffer, batch_size=batch_size)


def _redacted(diagnosis: Diagnosis) -> Diagnosis:
    import getpass
    import socket

    from oomdoctor.diagnose.redact import redact

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = ""
    return redact(diagnosis, (user, socket.gethostname()))


def _look(
    target: Any, *, sample: int | None, progress: Any, keep_partial: bool
) -> tuple[Inventory, tuple[Stage, ...]]:
    paths = target if isinstance(target, (list, tuple)) else [target]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        from oomdoctor.inventory.scan import scan

        return scan(paths, sample=sample, progress=progress, keep_partial=keep_partial), ()
    from oomdoctor.inventory.live import describe_live

    return describe_live(target)


def _measure(
    inventory: Inventory, stages: tuple[Stage, ...], machine: Machine, **how: Any
) -> Footprint:
    from oomdoctor.footprint.dataset import measure
    from oomdoctor.footprint.feeding import compare

    return compare(measure(inventory, stages=stages, **how), machine)


def _conclude(command: str, facts: Facts, *, rules: Iterable[Any], **how: Any) -> Report:
    from oomdoctor.advise.evaluate import advise
    from oomdoctor.advise.load import load_rules
    from oomdoctor.footprint.feeding import verdict_of

    verdict = "unknown"
    if facts.footprint is not None and facts.footprint.chosen is not None and facts.machine:
        verdict = verdict_of(facts.footprint.chosen, has_gpu=bool(facts.machine.gpus))
    if facts.diagnosis is not None:
        from oomdoctor.diagnose.run import verdict_of as verdict_of_diagnosis

        verdict = verdict_of_diagnosis(facts.diagnosis)
    findings = advise(facts, load_rules(list(rules)), **how)
    return Report(command=command, verdict=verdict, facts=facts, findings=findings)


def _versions() -> tuple[tuple[str, str], ...]:
    from oomdoctor.probe.versions import installed_versions

    return installed_versions()


def _must_be_sensible(
    image_size: Sequence[int] | None,
    dtype: str | None,
    load: str,
    sample: int | None,
) -> None:
    if load not in LOADS:
        raise UsageError(f"{load!r} is not a way to load data: use one of {', '.join(LOADS)}.")
    if dtype is not None:
        dtype_bytes(dtype)
    if sample is not None and sample < 1:
        raise UsageError(f"A sample holds at least one file: {sample} does not.")
    if image_size is not None and (len(image_size) not in (2, 3) or min(image_size) < 1):
        raise UsageError("An image size is height, width and perhaps channels, such as 150x150x3.")


def _must_be_positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} must be at least 1: {count} is not.")


def _nothing_found(inventory: Inventory) -> str:
    if not inventory.files:
        return f"{inventory.root} is empty: give a folder or a file with data."
    reasons = "; ".join(f"{skipped.files:,} {skipped.reason}" for skipped in inventory.skipped[:3])
    return (
        f"{inventory.root} holds no data that can be sized ({inventory.files:,} files: {reasons})."
        " Give a folder with pictures, arrays, records or tables."
    )


class _Drawing:
    """Draws every value that the functions above hand out."""

    def text(self, value: Any) -> str:
        from oomdoctor.report import text
        from oomdoctor.report.views import view_of

        return text.render(view_of(value))

    def html(self, value: Any) -> str:
        from oomdoctor.report import html
        from oomdoctor.report.views import view_of

        return html.render(view_of(value))

    def plain(self, value: Any) -> dict[str, Any]:
        from oomdoctor.report.frame import plain_value

        return plain_value(value)

    def frame(self, value: Any) -> Any:
        from oomdoctor.report.frame import frame

        return frame(value)


_show.draw_with(_Drawing())
