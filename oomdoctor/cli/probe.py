"""`oomdoctor probe`."""

from __future__ import annotations

import click

from oomdoctor.cli.options import machine_options, output_options
from oomdoctor.cli.output import show, write
from oomdoctor.units import format_bytes


@click.command()
@machine_options
@click.option("--list-machines", is_flag=True, help="List the machines for --machine.")
@output_options
def command(
    machine: str | None,
    ram: str | None,
    vram: str | None,
    list_machines: bool,
    format_: str,
    output: str | None,
    verbose: bool,
) -> None:
    """Show this machine's memory: RAM, limits, GPUs and the processes on them."""
    if list_machines:
        _list_machines(format_, output, verbose=verbose)
        return
    from oomdoctor.api import probe_machine

    found = probe_machine(machine=machine, ram=ram, vram=vram)
    show(found, format_=format_, output=output, verbose=verbose)


def _list_machines(format_: str, output: str | None, *, verbose: bool) -> None:
    from oomdoctor.probe.catalogue import list_machines

    entries = list_machines()
    if format_ == "json":
        import json
        from dataclasses import asdict

        listed = json.dumps([asdict(entry) for entry in entries], indent=2)
        write(f"{listed}\n", output, format_=format_)
        return
    import textwrap

    from oomdoctor.report import text
    from oomdoctor.report.view import Table, View

    rows = tuple(
        (
            entry.name,
            format_bytes(entry.ram_usable_bytes),
            " + ".join(format_bytes(gpu.usable_bytes) for gpu in entry.gpus) or "–",
            textwrap.shorten(entry.description, 29, placeholder="…"),
        )
        for entry in entries
    )
    table = Table(
        title="Memory available to a run", headers=("name", "RAM", "GPUs", "machine"), rows=rows
    )
    sources = tuple(f"{entry.name}: {'; '.join(entry.sources)}" for entry in entries)
    view = View(
        title="oomdoctor probe --list-machines",
        state="info",
        headline=f"{len(entries)} machines for --machine; -v shows the source of each figure",
        tables=(table,),
        notes=sources if verbose else (),
    )
    write(text.render(view), output)
