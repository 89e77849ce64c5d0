"""The text and tables on data: what is there, what it takes in memory, how to feed it."""

from __future__ import annotations

from oomdoctor.facts import Feeding, FileGroup, Footprint, Inventory
from oomdoctor.findings import Report
from oomdoctor.report.escape import printable, shorten
from oomdoctor.report.view import SYMBOLS, Line, Table, View
from oomdoctor.units import format_bytes

MAX_GROUPS = 12
MAX_NAME = 26
MISLEADING_EXPANSION = 5
"""Decoded over stored size from which the size on disk is called misleading."""


_WAYS_IN_WORDS = {
    "memory": "loaded into RAM",
    "device": "loaded into RAM and copied to the GPU by `fit`",
    "stream": "streamed in batches",
    "mixed": "with arrays and tables in RAM and the rest streamed",
}


def headline(report: Report) -> str:
    """Return whether the data fits, fed as it was asked for, in one sentence."""
    facts = report.facts
    footprint, machine, inventory = facts.footprint, facts.machine, facts.inventory
    assert footprint is not None
    assert footprint.chosen is not None
    assert machine is not None
    chosen = footprint.chosen
    how = _WAYS_IN_WORDS[chosen.way]
    if inventory is not None and not inventory.is_complete:
        how = f"scan interrupted; for the files seen so far, {how}"
    takes = f"the data and TensorFlow take {format_bytes(chosen.ram_bytes)} of RAM"
    if report.verdict == "fits":
        also = f" and {format_bytes(chosen.vram_bytes)} of GPU memory" if machine.gpus else ""
        return f"It fits: {how}, {takes}{also}."
    if chosen.ram_verdict == "does_not_fit":
        need, free = _apart(chosen.ram_bytes, machine.ram.available_bytes)
        return (
            f"It does not fit: {how}, the data and TensorFlow take {need} of RAM; "
            f"{free} is available."
        )
    if report.verdict == "does_not_fit":
        need, free = _apart(chosen.vram_bytes, machine.usable_vram_bytes)
        return f"It does not fit: {how}, the data takes {need} of GPU memory; {free} is free."
    if chosen.ram_bytes is None:
        return f"Cannot say whether it fits: {how}, its size in RAM is unknown."
    return f"Cannot say whether it fits: {how}, {takes}."


def _apart(one: int | None, other: int | None) -> tuple[str, str]:
    """Return two sizes as words that differ where the sizes do."""
    words = format_bytes(one), format_bytes(other)
    if one is None or other is None or one == other or words[0] != words[1]:
        return words
    return f"{one:,} bytes", f"{other:,} bytes"


def data_line(inventory: Inventory) -> Line:
    """Return how much there is."""
    about = "" if inventory.is_exact else "about "
    samples = "unknown" if inventory.samples is None else f"{inventory.samples:,}"
    classes = {name for group in inventory.groups for name, _ in group.classes}
    text = f"{about}{samples} sample{'' if inventory.samples == 1 else 's'}"
    if inventory.files:
        plural = "" if inventory.files == 1 else "s"
        stored = format_bytes(inventory.stored_bytes)
        text += f" in {inventory.files:,} file{plural}, {stored} on disk"
    if len(classes) > 1:
        text += f", {len(classes):,} classes"
    return Line(state="fits", category="Data", text=text)


def footprint_lines(footprint: Footprint, inventory: Inventory | None) -> list[Line]:
    """Return what it takes in memory, and where the size on disk misleads."""
    decoded = footprint.decoded_bytes
    text = f"{format_bytes(decoded)} in memory"
    if footprint.low_bytes != footprint.high_bytes:
        low, high = format_bytes(footprint.low_bytes), format_bytes(footprint.high_bytes)
        text += f" ({low} to {high})"
    text += (
        f"; {format_bytes(footprint.sample_bytes)} per sample, "
        f"{format_bytes(footprint.batch_bytes)} per batch of {footprint.batch_size}"
    )
    lines = [Line(state="unknown" if decoded is None else "info", category="Decoded", text=text)]
    stored = inventory.stored_bytes if inventory else 0
    if decoded and stored and decoded / stored >= MISLEADING_EXPANSION:
        ratio = f"{decoded / stored:,.0f}×"
        lines.append(
            Line(
                state="warning",
                category="On disk",
                text=f"misleading: {ratio} larger once decoded",
            )
        )
    if footprint.keras_loader_bytes is not None and footprint.native_bytes is not None:
        lines.append(
            Line(
                state="info",
                category="Sizes",
                text=f"{format_bytes(footprint.native_bytes)} at the images' native size; "
                f"{format_bytes(footprint.keras_loader_bytes)} as Keras loads them (256×256×3)",
            )
        )
    return lines


def groups_table(inventory: Inventory, footprint: Footprint | None, *, verbose: bool) -> Table:
    """Return a row for each group of files."""
    groups = inventory.groups if verbose else inventory.groups[:MAX_GROUPS]
    held = {} if footprint is None else dict(zip(inventory.groups, footprint.groups, strict=True))
    on_disk = inventory.files > 0
    rows = []
    for group in groups:
        measured = held.get(group)
        stored = (format_bytes(group.stored_bytes),) if on_disk else ()
        rows.append(
            (
                shorten(printable(group.name), MAX_NAME),
                "unknown" if group.samples is None else f"{group.samples:,}",
                _shape(group, measured.shape if measured else None),
                (measured.dtype if measured else group.dtype) or "unknown",
                *stored,
                format_bytes(measured.decoded_bytes if measured else None),
            )
        )
    hidden = len(inventory.groups) - len(groups)
    title = "What was found" + (f" ({hidden} more groups: -v)" if hidden else "")
    disk = ("on disk",) if on_disk else ()
    return Table(
        title=title,
        headers=("group", "samples", "shape", "dtype", *disk, "in memory"),
        rows=tuple(rows),
    )


def _shape(group: FileGroup, loaded: tuple[int, ...] | None) -> str:
    if loaded is not None:
        return "×".join(map(str, loaded)) or "scalar"
    if group.shapes is None:
        return "unknown"
    low, high = group.shapes.smallest, group.shapes.largest
    return f"{'×'.join(map(str, low))} … {'×'.join(map(str, high))}"


def feeding_table(footprint: Footprint, *, has_gpu: bool) -> Table:
    """Return the ways to feed the data and the memory each needs."""

    def row(feeding: Feeding) -> tuple[str, ...]:
        ram = f"{SYMBOLS[feeding.ram_verdict]} {format_bytes(feeding.ram_bytes)}"
        vram = f"{SYMBOLS[feeding.vram_verdict]} {format_bytes(feeding.vram_bytes)}"
        mark = "recommended" if feeding.way == footprint.recommended else ""
        vram = "–" if feeding.way == "memory" else vram
        return (_WAY_NAMES[feeding.way], ram, *((vram,) if has_gpu else ()), mark)

    feedings = [f for f in footprint.feedings if has_gpu or f.way != "device"]
    if footprint.chosen is not None and footprint.chosen.way == "mixed":
        feedings.append(footprint.chosen)
    return Table(
        title="Ways to feed it (RAM includes TensorFlow; the model comes on top)",
        headers=("way", "RAM", *(("GPU",) if has_gpu else ()), ""),
        rows=tuple(row(feeding) for feeding in feedings),
    )


_WAY_NAMES = {
    "memory": "arrays in RAM, training on the CPU",
    "device": "arrays in RAM, copied to the GPU by fit()",
    "stream": "streamed in batches",
    "mixed": "arrays and tables in RAM, the rest streamed",
}


def stages_table(footprint: Footprint) -> Table:
    """Return what each stage of a tf.data pipeline keeps in RAM."""
    return Table(
        title="Pipeline memory by stage",
        headers=("stage", "elements", "bytes each", "total"),
        rows=tuple(
            (
                printable(stage.label),
                "–" if stage.elements is None else f"{stage.elements:,}",
                format_bytes(stage.element_bytes),
                format_bytes(stage.held_bytes),
            )
            for stage in footprint.stages
        ),
    )


def view_inventory(inventory: Inventory, *, verbose: bool = False) -> View:
    """Return what was found, by group."""
    return View(
        title="Inventory",
        state="fits",
        headline=data_line(inventory).text,
        tables=(groups_table(inventory, None, verbose=verbose),),
        notes=tuple(printable(note) for note in inventory.notes),
    )


def view_footprint(footprint: Footprint, *, verbose: bool = False) -> View:
    """Return the bytes, by the way of feeding."""
    del verbose
    return View(
        title="Footprint",
        state="info",
        headline=f"{format_bytes(footprint.decoded_bytes)} in memory",
        tables=(feeding_table(footprint, has_gpu=True),) if footprint.feedings else (),
    )
