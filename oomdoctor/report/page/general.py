"""The page of what any command found: the verdict, the figures, what to change, the tables."""

from __future__ import annotations

from oomdoctor._version import __version__
from oomdoctor.facts import Diagnosis, Estimate, Footprint, Tuning
from oomdoctor.findings import Report
from oomdoctor.report import text
from oomdoctor.report.escape import cut
from oomdoctor.report.of_machine import view_machine
from oomdoctor.report.of_report import part_views, view_report
from oomdoctor.report.page import frame, remedies
from oomdoctor.report.page.figures import Figure, figures_of
from oomdoctor.report.page.markup import Child, Safe, join, tag, with_code
from oomdoctor.report.page.parts import banner, bar, code_block, folded, section, table, tile
from oomdoctor.report.view import SYMBOLS, Line, Table, View
from oomdoctor.units import format_bytes

MAX_SUBJECT = 120
MAX_PARTS = 200
"""Of a gate, whose details are on the page; the table above has all."""


def render(report: Report, *, verbose: bool) -> str:
    """Return a report as an HTML page."""
    view = _view(report, verbose=verbose)
    figures = figures_of(report)
    body = join(
        _header(report),
        _banner(report, view),
        _tiles(report),
        _lines(view.lines),
        _tables("targets", _not_drawn(view, figures)) if report.parts else None,
        *(section(figure.identity, figure.title, figure.drawn) for figure in figures),
        _places(view),
        remedies.section_of(report),
        None if report.parts else _tables("tables", _not_drawn(view, figures)),
        _details(report),
        section("notes", "Notes", tag("ul", *(tag("li", with_code(note)) for note in view.notes)))
        if view.notes
        else None,
        folded(
            "The report as text, to paste into an issue", code_block(text.render(view).rstrip())
        ),
        tag("footer", f"oomdoctor {__version__}. This page needs no network."),
    )
    title = " · ".join(filter(None, (report.subject and cut(report.subject, 80), view.title)))
    scripts = ("slider.js",) if any(figure.identity == "batches" for figure in figures) else ()
    return frame.document(title, body, scripts=scripts)


def _view(report: Report, *, verbose: bool) -> View:
    if report.command == "probe" and report.facts.machine is not None:
        return view_machine(report.facts.machine, verbose=verbose)
    return view_report(report, verbose=verbose)


def _banner(report: Report, view: View) -> Safe:
    if report.command == "probe":
        return banner(view.state, "This machine", view.headline)
    return remedies.hero(report)


def _not_drawn(view: View, figures: list[Figure]) -> tuple[Table, ...]:
    """Return the tables that no figure stands for."""
    drawn = {figure.kind for figure in figures}
    return tuple(one for one in view.tables if one.figure not in drawn)


def _as_text(view: View) -> Safe:
    return code_block(text.render(view).rstrip())


def _header(report: Report) -> Safe:
    on = f"on {report.target}" if report.target else None
    versions = dict(report.facts.versions)
    known = [f"{name} {versions[name]}" for name in ("tensorflow", "keras") if name in versions]
    subject = cut(report.subject, MAX_SUBJECT) if report.subject else None
    return tag(
        "header",
        tag("span", f"oomdoctor {report.command}", class_="brand"),
        tag("code", subject, class_="command", title=report.subject) if subject else None,
        tag("span", " · ".join(filter(None, (on, *known)))) if on or known else None,
    )


def _tiles(report: Report) -> Safe | None:
    """Return the few figures that matter, by what was asked."""
    deciding = report.facts.deciding
    tiles: list[Child] = []
    if isinstance(deciding, Tuning):
        tiles = _of_tuning(deciding)
    elif isinstance(deciding, Estimate):
        tiles = _of_estimate(deciding, report)
    elif isinstance(deciding, Diagnosis):
        tiles = _of_diagnosis(deciding)
    elif isinstance(deciding, Footprint):
        tiles = _of_footprint(deciding, report)
    return tag("div", *tiles, class_="tiles") if tiles else None


def _of_estimate(estimate: Estimate, report: Report) -> list[Child]:
    low, high = format_bytes(estimate.low_bytes), format_bytes(estimate.high_bytes)
    machine = report.facts.machine
    budget = machine.usable_vram_bytes if machine is not None else None
    detail = f"between {low} and {high}, {estimate.origin}"
    tiles: list[Child] = [
        _used("Peak memory", estimate.peak_bytes, budget, detail),
        tile("Batch size", f"{estimate.batch_size:,}", f"{estimate.kind} step"),
    ]
    line = estimate.line()
    if line is not None:
        detail = f"on top of {format_bytes(line[0])}, whatever the batch"
        tiles.append(tile("Each sample", format_bytes(line[1]), detail))
    largest = None if budget is None else estimate.predicted_batch(budget)
    if largest is not None:
        tiles.append(tile("Largest batch", f"{largest:,}", "predicted from the line below"))
    return tiles


def _of_tuning(tuning: Tuning) -> list[Child]:
    detail = f"of {format_bytes(tuning.budget_bytes)}"
    return [
        tile("Batch size", f"{tuning.batch_size:,}", "the largest that fits"),
        _used("Peak memory", tuning.peak_bytes, tuning.budget_bytes, detail),
        tile("Trials", f"{len(tuning.trials):,}", tuning.compiled_by or "trained with model.fit"),
    ]


def _of_diagnosis(diagnosis: Diagnosis) -> list[Child]:
    tiles: list[Child] = []
    if diagnosis.requested_bytes is not None:
        shape = "×".join(map(str, diagnosis.shape)) if diagnosis.shape else "in one piece"
        detail = f"{shape} {diagnosis.dtype or ''}".strip()
        tiles.append(tile("Requested", format_bytes(diagnosis.requested_bytes), detail))
    if diagnosis.in_use_bytes is not None:
        limit = diagnosis.limit_bytes
        detail = "" if limit is None else f"of {format_bytes(limit)}"
        tiles.append(_used("In use", diagnosis.in_use_bytes, limit, detail))
    elif diagnosis.limit_bytes is not None:
        tiles.append(tile("Limit", format_bytes(diagnosis.limit_bytes), ""))
    if diagnosis.layer:
        tiles.append(tile("Layer", cut(diagnosis.layer, 60), diagnosis.op or ""))
    if diagnosis.fitting_batch is not None:
        detail = f"instead of {diagnosis.batch_size}; an upper bound"
        tiles.append(tile("Batch size at most", f"{diagnosis.fitting_batch:,}", detail))
    return tiles


def _of_footprint(footprint: Footprint, report: Report) -> list[Child]:
    inventory, machine = report.facts.inventory, report.facts.machine
    tiles: list[Child] = []
    if inventory is not None:
        samples = "unknown" if inventory.samples is None else f"{inventory.samples:,}"
        detail = f"in {inventory.files:,} files, {format_bytes(inventory.stored_bytes)} on disk"
        tiles.append(tile("Samples", samples, detail if inventory.files else ""))
    batch = f"{format_bytes(footprint.batch_bytes)} a batch of {footprint.batch_size}"
    tiles.append(tile("In memory", format_bytes(footprint.decoded_bytes), batch))
    chosen = footprint.chosen
    if chosen is not None and machine is not None:
        available = machine.ram.available_bytes
        detail = f"of {format_bytes(available)} available, with TensorFlow itself"
        tiles.append(_used("RAM", chosen.ram_bytes, available, detail))
        if machine.gpus:
            usable = machine.usable_vram_bytes
            detail = f"of {format_bytes(usable)}, without the model"
            tiles.append(_used("GPU memory", chosen.vram_bytes, usable, detail))
    return tiles


def _used(label: str, size: int | None, limit: int | None, detail: str) -> Safe:
    """Return a tile with a bar, where it is known what there is."""
    if size is None or not limit:
        return tile(label, format_bytes(size), detail)
    share = size / limit
    kind = "bad" if share > 1 else "near" if share > 0.9 else ""
    return tile(label, format_bytes(size), detail, bar(share, f"meter {kind}".strip()))


def _lines(lines: tuple[Line, ...]) -> Safe | None:
    if not lines:
        return None
    rows = [
        tag(
            "tr",
            tag("td", SYMBOLS[line.state], class_=f"state {line.state}"),
            tag("th", line.category, scope="row"),
            tag("td", with_code(line.text)),
        )
        for line in lines
    ]
    return tag("section", tag("table", tag("tbody", *rows), class_="lines"))


def _tables(identity: str | None, tables: tuple[Table, ...]) -> Safe | None:
    if not tables:
        return None
    drawn = [join(tag("h3", one.title), drawn_table(one)) for one in tables]
    return tag("section", *drawn, id=identity)


def drawn_table(one: Table) -> Safe:
    """Return a table of a view; numbers line up on the right."""
    numbers = "".join("n" if header in text.NUMBERS else " " for header in one.headers)
    return table(one.headers, one.rows, numbers)


def _places(view: View) -> Safe | None:
    if not view.places:
        return None
    items = [
        tag(
            "li",
            tag("span", SYMBOLS[place.state], class_=f"state {place.state}"),
            " ",
            tag("code", place.where),
            " ",
            tag("span", place.rule, class_="rule"),
            tag("p", with_code(place.message)),
        )
        for place in view.places
    ]
    more = tag("p", f"{view.more_places} more with -v.") if view.more_places else None
    return section("places", "In the code", tag("ul", *items, class_="places"), more)


def _details(report: Report) -> Safe | None:
    """Return each part of a gate, folded."""
    views = () if report.is_survey else part_views(report, with_good=True)
    if not views:
        return None
    drawn = []
    for view in views[:MAX_PARTS]:
        title = f"{SYMBOLS[view.state]} {view.title}"
        inner = join(
            tag("p", with_code(view.headline)), _lines(view.lines), _tables("", view.tables)
        )
        drawn.append(folded(title, inner))
    more = len(views) - len(drawn)
    note = tag("p", f"{more} more are in the tables above.", class_="hint") if more > 0 else None
    return section("parts", "Each of them", *drawn, note)
