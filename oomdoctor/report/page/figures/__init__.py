"""The figures of a report, drawn without a script: the same on a page and in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomdoctor.facts import Estimate, Inventory, Machine, Tuning
from oomdoctor.findings import Report
from oomdoctor.report.page.figures import batches, layers, memory_map, sizes, trials
from oomdoctor.report.page.markup import Safe, join

MAX_TREES = 6
"""Layers are drawn for so many models of one report; the others have a page of their own."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure under a title."""

    identity: str
    title: str
    drawn: Safe

    @property
    def kind(self) -> str:
        """What it shows: `layers`, also of the second model of a report."""
        return self.identity.partition("-")[0]


def figures_of(report: Report, *, moves: bool = True) -> list[Figure]:
    """Return all that can be drawn of a report, the most telling first.

    Args:
        report: What any command ends with.
        moves: Whether scripts run beside the figures, as they do not in a notebook.
    """
    facts = report.facts
    parts = report.parts or (report,)
    if report.is_survey:
        # The card with the most memory first: there XLA recomputes nothing.
        parts = parts[::-1]
    found: list[Figure | None] = []
    if facts.diagnosis is not None:
        drawn = memory_map.memory_map(facts.diagnosis)
        found.append(_figure("map", "The memory when it failed", drawn))
    if facts.tuning is not None:
        found.append(_figure("trials", "What was tried", trials.chart(facts.tuning)))
    found.append(_figure("batches", "Peak memory by batch size", _batches(parts, moves=moves)))
    found += _models(parts)
    seen: set[str] = set()
    for part in parts:
        inventory = part.facts.inventory
        if inventory is None or inventory.root in seen:
            continue
        seen.add(inventory.root)
        name = f" in {part.subject or inventory.root}" if report.parts else ""
        drawn = sizes.histogram(inventory, part.facts.footprint)
        found.append(_figure(f"sizes-{len(seen)}", f"Size of the samples{name}", drawn))
    return [figure for figure in found if figure is not None]


def figures_of_value(value: Any) -> list[Figure]:
    """Return what can be drawn of any value that oomdoctor hands out, without a script."""
    if isinstance(value, Report):
        return figures_of(value, moves=False)
    if isinstance(value, Estimate):
        drawn = batches.panel(value, (), moves=False)
        found = [_figure("batches", "Peak memory by batch size", drawn)]
        return [figure for figure in found if figure] + figures_of_estimate(value)
    if isinstance(value, Tuning):
        found = [_figure("trials", "What was tried", trials.chart(value))]
    elif isinstance(value, Inventory):
        found = [_figure("sizes", "Size of the samples", sizes.histogram(value, None))]
    else:
        found = []
    return [figure for figure in found if figure]


def figures_of_estimate(estimate: Estimate, machine: Machine | None = None) -> list[Figure]:
    """Return what can be drawn of one estimate."""
    budget = machine.usable_vram_bytes if machine is not None else None
    drawn = join(
        layers.parts_bar(estimate, budget),
        layers.layer_tree(
            ((layer.name, layer.bytes_at_peak) for layer in estimate.layers), estimate.peak_bytes
        ),
    )
    return [Figure("layers", "Where the memory goes", drawn)] if drawn else []


def _figure(identity: str, title: str, drawn: Safe | None) -> Figure | None:
    return None if drawn is None else Figure(identity, title, drawn)


def _batches(parts: tuple[Report, ...], *, moves: bool) -> Safe | None:
    """Return a panel for each way the models are trained that there are figures of."""
    ways: dict[str, list[Report]] = {}
    for part in parts:
        if part.facts.estimate is not None:
            ways.setdefault(_way(part), []).append(part)
    panels = []
    for label, reports in ways.items():
        estimate = reports[0].facts.estimate
        assert estimate is not None
        drawn = batches.panel(estimate, batches.cards_of(reports), moves=moves)
        if drawn is not None:
            panels.append((label, drawn))
    return batches.choice(panels) if panels else None


def _way(part: Report) -> str:
    """Return the model and how it is trained, without the batch size, which is the axis."""
    words = (part.subject or part.command).split(", ")
    return ", ".join(word for word in words if not word.startswith("batch "))


def _models(parts: tuple[Report, ...]) -> list[Figure | None]:
    """Return where the memory goes in each model, on the first machine it is compared with."""
    found: list[Figure | None] = []
    seen: set[str | None] = set()
    for part in parts:
        if part.facts.estimate is None or part.subject in seen or len(seen) >= MAX_TREES:
            continue
        seen.add(part.subject)
        for figure in figures_of_estimate(part.facts.estimate, part.facts.machine):
            name = f", {part.subject}" if len(parts) > 1 else ""
            where = f" on {part.target}" if len(parts) > 1 and part.target else ""
            found.append(
                Figure(f"layers-{len(seen)}", f"{figure.title}{name}{where}", figure.drawn)
            )
    return found
