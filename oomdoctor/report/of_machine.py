"""The text and tables on a machine: RAM, limits, GPUs and which processes use them."""

from __future__ import annotations

from oomdoctor.facts import Feeding, Gpu, Machine
from oomdoctor.report.escape import printable
from oomdoctor.report.view import Line, Table, View
from oomdoctor.units import format_bytes

_ORIGINS = {"declared": " (as given)", "catalogue": " (from the catalogue)"}


def view_machine(machine: Machine, *, verbose: bool = False) -> View:
    """Return memory and GPUs, and who holds them."""
    del verbose
    return View(
        title="oomdoctor probe",
        state="info",
        headline=_headline(machine),
        lines=tuple(machine_lines(machine)),
        tables=_process_tables(machine),
        notes=tuple(printable(note) for note in machine.notes),
    )


def _headline(machine: Machine) -> str:
    name = f"{machine.name}: " if machine.name else ""
    ram = f"{format_bytes(machine.ram.available_bytes)} of RAM available"
    gpus = [f"{format_bytes(gpu.free_bytes)} free on {printable(gpu.name)}" for gpu in machine.gpus]
    return f"{name}{ram}; {', '.join(gpus) if gpus else 'no GPU found'}"


def machine_lines(machine: Machine, *, chosen: Feeding | None = None) -> list[Line]:
    """Return a line for RAM, for swap and for each GPU.

    Args:
        machine: What there is.
        chosen: The way the data is fed, whose verdicts then mark the lines.
    """
    ram = machine.ram
    text = f"{format_bytes(ram.available_bytes)} available of {format_bytes(ram.total_bytes)}"
    if ram.limit_bytes is not None:
        text += f"; {ram.limit_source} allows {format_bytes(ram.limit_bytes)}"
    state = "unknown" if ram.available_bytes is None else "fits"
    state = chosen.ram_verdict if chosen else state
    lines = [Line(state=state, category="RAM", text=text + _ORIGINS.get(ram.origin, ""))]
    if ram.swap_total_bytes:
        text = f"{format_bytes(ram.swap_free_bytes)} free of {format_bytes(ram.swap_total_bytes)}"
        lines.append(Line(state="info", category="Swap", text=text))
    lines += [_gpu_line(gpu, chosen) for gpu in machine.gpus]
    if not machine.gpus:
        text = "none found; pass --vram 6GiB or --machine colab-t4 to check one"
        lines.append(Line(state="unknown", category="GPU", text=text))
    return lines


def _gpu_line(gpu: Gpu, chosen: Feeding | None) -> Line:
    text = f"{format_bytes(gpu.free_bytes)} free"
    if gpu.total_bytes != gpu.free_bytes:
        text += f" of {format_bytes(gpu.total_bytes)}"
    if gpu.usable_bytes != gpu.free_bytes:
        text += f" ({format_bytes(gpu.usable_bytes)} for TensorFlow)"
    if gpu.origin != "declared":
        text += f", {printable(gpu.name)}" + (" (MIG slice)" if gpu.is_mig else "")
    state = "unknown" if gpu.free_bytes is None else "fits"
    state = chosen.vram_verdict if chosen else state
    text += _ORIGINS.get(gpu.origin, "")
    return Line(state=state, category=f"GPU {gpu.index}", text=text)


def _process_tables(machine: Machine) -> tuple[Table, ...]:
    rows = []
    for gpu in machine.gpus:
        if gpu.processes is None and gpu.origin == "measured":
            rows.append((str(gpu.index), "unknown", "unknown", "unknown"))
        for process in gpu.processes or ():
            name = printable(process.name) if process.name else "unknown"
            rows.append((str(gpu.index), str(process.pid), name, format_bytes(process.used_bytes)))
    headers = ("GPU", "pid", "program", "size")
    return (
        (Table(title="Processes that use GPU memory", headers=headers, rows=tuple(rows)),)
        if rows
        else ()
    )
