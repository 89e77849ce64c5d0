"""Which machine a run is compared with."""

from __future__ import annotations

from oomdoctor.errors import UsageError
from oomdoctor.facts import Machine
from oomdoctor.units import MIB, parse_size

Size = str | int
"""Such as `2.7GiB`, or plain bytes."""


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
    elif isinstance(machine, str):
        base = find_machine(machine)
    elif machine is not None:
        raise UsageError(f"{machine!r} is not a machine: give a name such as 'colab-t4'.")
    else:
        base = probe(with_gpus=vram is None)
    return declare_machine(
        base,
        ram=None if ram is None else _meant_size(ram),
        vram=None if vram is None else _meant_size(vram),
    )


def _meant_size(size: Size) -> int:
    size_bytes = parse_size(size)
    if size_bytes < MIB and str(size).strip().isdigit():
        raise UsageError(f"{size} means {size} bytes: write {size}GiB if that is meant.")
    return size_bytes
