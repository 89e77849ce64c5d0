"""Will the data fit?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oomdoctor.api.conclude import conclude, installed, must_be_positive
from oomdoctor.api.machine import Size, probe_machine
from oomdoctor.api.scripts import is_data, look_at_scripts
from oomdoctor.errors import InputError, UsageError
from oomdoctor.facts import (
    TENSORFLOW_RAM_BYTES,
    Facts,
    Footprint,
    Inventory,
    Machine,
    Stage,
    Workload,
)
from oomdoctor.findings import Report
from oomdoctor.units import dtype_bytes, parse_image_size

if TYPE_CHECKING:
    from oomdoctor.inventory.sources import Sources

LOADS = ("auto", "memory", "stream")


def check(
    target: Any,
    *,
    machine: str | Machine | None = None,
    ram: Size | None = None,
    vram: Size | None = None,
    image_size: str | Sequence[int] | None = None,
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
    state: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Any = None,
    progress: Any = None,
    keep_partial: bool = False,
) -> Report:
    """Return whether a dataset fits in memory, and what to change if it does not.

    Scripts and notebooks among the paths are searched for memory mistakes; what is known of the
    data then decides how bad they are.

    Example:
        >>> import oomdoctor
        >>> report = oomdoctor.check("fixtures/datasets/shapes", ram="8GiB", vram="4GiB")
        >>> report.verdict
        'fits'
        >>> report = oomdoctor.check("fixtures/scripts/sequence_naive.py")
        >>> [f.location.line for f in report.findings if f.rule == "OD901"]
        [20]

    Args:
        target: A folder, a file, an address such as `s3://bucket/train/`, a script, a list of them,
            a NumPy array or memory-map, a pandas DataFrame, a `tf.data.Dataset`, or the inventory
            of an earlier report.
        machine: A catalogue entry such as `colab-t4` to compare with; None is this machine.
        ram: System memory to compare with instead, such as `16GiB`.
        vram: GPU memory to compare with instead.
        image_size: Height, width and perhaps channels that images are resized to.
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
        state: A file that remembers what was read: files that have not changed are not opened
            again, and an interrupted scan continues.
        workers: Read with so many workers of a Dask cluster that is started on this machine.
        scheduler: Read with the Dask cluster at this address, such as `tcp://10.0.0.5:8786`.
        client: Read with the cluster of this `distributed.Client`.
        progress: Called with the number of files seen, now and then.
        keep_partial: On Ctrl-C report what was seen so far instead of raising.
    """
    if load not in LOADS:
        raise UsageError(f"{load!r} is not a way to load data: use one of {', '.join(LOADS)}.")
    must_be_positive(batch_size=batch_size, replicas=replicas, sample=sample, workers=workers)
    spread = {"state": state, "workers": workers, "scheduler": scheduler, "client": client}
    dtype = None if dtype is None else _dtype_name(dtype)
    scripts, target = look_at_scripts(target)
    choice: dict[str, Any] = {
        "select": select,
        "ignore": ignore,
        "rules": rules,
        "severities": severities,
    }
    inventory: Inventory | None = None
    stages: tuple[Stage, ...] = ()
    if target is not None:
        inventory, stages = _look(
            target, spread, sample=sample, progress=progress, keep_partial=keep_partial
        )
    if scripts is not None and (inventory is None or not is_data(inventory, scripts)):
        known_machine = probe_machine(machine=machine, ram=ram, vram=vram)
        facts = Facts(machine=known_machine, scripts=scripts, versions=installed())
        return conclude("check", facts, purpose=purpose, **choice)
    assert inventory is not None
    if not inventory.groups:
        raise InputError(_nothing_found(inventory))
    known_machine = probe_machine(machine=machine, ram=ram, vram=vram)
    batch_size = _batch_size_of(stages) or batch_size
    footprint = _measure(
        inventory,
        stages,
        known_machine,
        image_size=None if image_size is None else parse_image_size(image_size),
        dtype=dtype,
        batch_size=batch_size,
        load=load,
    )
    facts = Facts(
        machine=known_machine,
        inventory=inventory,
        footprint=footprint,
        workload=Workload(replicas=replicas, batch_size=batch_size),
        scripts=scripts,
        versions=installed(),
    )
    return conclude("check", facts, subject=_relative(inventory.root), purpose=purpose, **choice)


def _relative(root: str) -> str:
    """Return a path as every checkout of the same project has it."""
    try:
        inside = os.path.relpath(root) if os.path.isabs(root) else root
    except FileNotFoundError:  # the current folder was deleted
        return root
    return root if inside.startswith("..") else inside


def _look(
    target: Any,
    spread: Mapping[str, Any],
    *,
    sample: int | None,
    progress: Any,
    keep_partial: bool,
) -> tuple[Inventory, tuple[Stage, ...]]:
    if isinstance(target, Inventory):
        return target, ()  # scanned for another machine already
    paths = target if isinstance(target, (list, tuple)) else [target]
    if paths and all(isinstance(path, (str, os.PathLike)) for path in paths):
        from oomdoctor.inventory.scan import scan

        found = scan(
            paths,
            sample=sample,
            progress=progress,
            keep_partial=keep_partial,
            sources=_sources(**spread),
        )
        return found, ()
    for name, value in spread.items():
        if value is not None:
            raise UsageError(f"{name}= has no effect on data in memory: leave it out.")
    from oomdoctor.inventory.live import describe_live

    return describe_live(target)


def _sources(
    state: str | os.PathLike[str] | None, workers: int | None, scheduler: str | None, client: Any
) -> Sources | None:
    """Return who reads the files, or None where it is this process alone."""
    given = [value for value in (workers, scheduler, client) if value is not None]
    if len(given) > 1:
        raise UsageError("Give one of workers=, scheduler= and client=.")
    if given and state is not None:
        raise UsageError("state= works with a scan by this machine only: leave the cluster out.")
    if state is not None:
        from oomdoctor.inventory.sources import LocalSources
        from oomdoctor.inventory.state import ScanState

        return LocalSources(ScanState(state))
    if not given:
        return None
    from oomdoctor.inventory.cluster import Cluster

    if client is not None:
        return Cluster(client)
    return Cluster.at(scheduler) if scheduler is not None else Cluster.local(workers or 1)


def _measure(
    inventory: Inventory, stages: tuple[Stage, ...], machine: Machine, **how: Any
) -> Footprint:
    from oomdoctor.footprint.dataset import measure
    from oomdoctor.footprint.feeding import compare

    is_live = not inventory.files
    held = _held_already(inventory) if is_live and machine.ram.origin == "measured" else 0
    return compare(measure(inventory, stages=stages, **how), machine, held_bytes=held)


def _held_already(inventory: Inventory) -> int:
    """Return what this process holds of the data, and of TensorFlow: it is not needed again."""
    from oomdoctor.inventory.live import bytes_held

    return bytes_held(inventory) + ("tensorflow" in sys.modules) * TENSORFLOW_RAM_BYTES


def _dtype_name(dtype: Any) -> str:
    """Return the name of a dtype given as text, as NumPy's or as TensorFlow's."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    dtype_bytes(name)
    return str(name)


def _batch_size_of(stages: tuple[Stage, ...]) -> int | None:
    """Return what a live pipeline batches by; its own call outweighs the argument."""
    sizes = [stage.elements for stage in stages if stage.kind == "batch" and stage.elements]
    return sizes[-1] if sizes else None


def _nothing_found(inventory: Inventory) -> str:
    if not inventory.files:
        return f"{inventory.root} is empty: give a folder or a file with data."
    reasons = "; ".join(f"{skipped.files:,} {skipped.reason}" for skipped in inventory.skipped[:3])
    return (
        f"{inventory.root} holds no data that can be sized ({inventory.files:,} files: {reasons})."
        " Give a folder with images, arrays, records or tables."
    )
