"""Peak memory against the batch size, with a line for each card, and a slider for the size.

Everything is drawn without a script; `slider.js` then moves the mark and rewrites the cells of
the table from the figures that stand in its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from oomdoctor.facts import Estimate, Machine, verdict_of
from oomdoctor.findings import Report
from oomdoctor.report.escape import cut
from oomdoctor.report.page.figures.scale import (
    LogScale,
    Plot,
    circle,
    label,
    line,
    short,
    spread,
    whole,
)
from oomdoctor.report.page.markup import Safe, join, tag
from oomdoctor.report.view import SYMBOLS
from oomdoctor.units import format_bytes

WIDE, LEFT, RIGHT = 900.0, 66.0, 690.0
TOP, APART = 14.0, 15.0
LEAST_HIGH = 300.0
MOST_BATCH = 2**16
_PROGRAMS = {"xla": "XLA", "executor": "executor"}
_SAID = {"fits": "fits", "does_not_fit": "does not fit", "unknown": "may fit"}


@dataclass(frozen=True, slots=True)
class Card:
    """A card, and what the step takes there."""

    name: str
    usable_bytes: int
    estimate: Estimate

    @property
    def largest(self) -> int | None:
        """The largest batch that fits, by the line of the estimate."""
        return self.estimate.predicted_batch(self.usable_bytes)

    @property
    def verdict(self) -> str:
        """Whether the batch that was asked for fits."""
        low, high = self.estimate.low_bytes, self.estimate.high_bytes
        return verdict_of(low, high, self.usable_bytes)


def cards_of(reports: Sequence[Report]) -> list[Card]:
    """Return the cards of reports on one model, those with the least memory first."""
    cards: dict[tuple[str, int], Card] = {}
    for report in reports:
        estimate, machine = report.facts.estimate, report.facts.machine
        if estimate is None or machine is None or machine.usable_vram_bytes is None:
            continue
        name = report.target or _card_name(machine)
        cards.setdefault(
            (name, machine.usable_vram_bytes), Card(name, machine.usable_vram_bytes, estimate)
        )
    return sorted(cards.values(), key=lambda card: (card.usable_bytes, card.name))


def _card_name(machine: Machine) -> str:
    return machine.name or (machine.gpus[0].name if machine.gpus else "GPU")


def panel(estimate: Estimate, cards: Sequence[Card], *, moves: bool = True) -> Safe | None:
    """Return the chart, the slider and the table of cards; None where no line is known.

    Args:
        estimate: What is drawn where there is no card.
        cards: The cards, each with its own estimate.
        moves: Whether a script will move the mark.
    """
    if not _has_line(estimate) or not all(_has_line(card.estimate) for card in cards):
        return None
    sizes = _sizes(estimate, cards)
    asked = min(sizes, key=lambda size: abs(size - estimate.batch_size))
    return tag(
        "div",
        _slider(sizes, sizes.index(asked), estimate) if moves else None,
        tag("div", _chart(estimate, cards, sizes, asked), class_="wide"),
        _table(cards, estimate.batch_size) if cards else None,
        class_="batches",
        data_sizes=",".join(map(str, sizes)),
        **_line(estimate),
    )


def _has_line(estimate: Estimate) -> bool:
    return estimate.line() is not None


def _line(estimate: Estimate) -> dict[str, str]:
    """The figures that the script needs: the line, and the interval around it."""
    peak = max(1, estimate.peak_bytes)
    fixed, each = estimate.line() or (peak, 0)
    return {
        "data_fixed": str(fixed),
        "data_each": str(each),
        "data_low": f"{estimate.low_bytes / peak:.6f}",
        "data_high": f"{estimate.high_bytes / peak:.6f}",
    }


def _sizes(estimate: Estimate, cards: Sequence[Card]) -> list[int]:
    """Return the batch sizes of the slider: round ones, from where the line holds."""
    most = max([4 * estimate.batch_size, *(2 * (card.largest or 0) for card in cards)])
    most = min(max(most, 8), MOST_BATCH)
    first = estimate.line_from_batch or 1
    sizes = {estimate.batch_size}
    for power in range(int(math.log2(most)) + 1):
        sizes |= {2**power, 3 * 2**power // 2}
    return sorted(size for size in sizes if first <= size <= most) or [estimate.batch_size]


def _at(estimate: Estimate, batch: float) -> float:
    fixed, each = estimate.line() or (estimate.peak_bytes, 0)
    return fixed + batch * each


def _slider(sizes: Sequence[int], place: int, estimate: Estimate) -> Safe:
    low, high = format_bytes(estimate.low_bytes), format_bytes(estimate.high_bytes)
    detail = f"peak {format_bytes(estimate.peak_bytes)}, between {low} and {high}"
    return tag(
        "p",
        tag(
            "label",
            "Batch size ",
            tag("b", str(sizes[place]), class_="at"),
            " ",
            tag(
                "input",
                type="range",
                min="0",
                max=str(len(sizes) - 1),
                value=str(place),
                step="1",
                aria_valuetext=str(sizes[place]),
            ),
        ),
        " ",
        tag("output", detail, class_="detail"),
        class_="slider",
    )


def _chart(estimate: Estimate, cards: Sequence[Card], sizes: Sequence[int], asked: int) -> Safe:
    curves = _curves(estimate, cards)
    plot = _plot(curves, cards, sizes, asked)
    detail = f", with {len(cards)} cards" if cards else ""
    x, y = plot.x, plot.y
    return tag(
        "svg",
        plot.axes(),
        _interval(estimate, plot),
        *(
            tag("polyline", points=" ".join(plot.points(partial(_at, one))), class_="curve")
            for one in curves
        ),
        *_card_lines(cards, plot),
        tag(
            "g",
            line(0, TOP, 0, plot.bottom),
            circle(0, y(_at(estimate, asked)), 4.5),
            class_="mark",
            transform=f"translate({short(x(asked))},0)",
        ),
        viewBox=f"0 0 {WIDE:.0f} {plot.bottom + 40:.0f}",
        role="img",
        aria_label=f"Peak memory against batch size{detail}. The table below has the figures.",
        data_x=f"{x.low},{x.high},{x.start},{x.end}",
        data_y=f"{y.low},{y.high},{y.start},{y.end}",
    )


def _plot(
    curves: Sequence[Estimate], cards: Sequence[Card], sizes: Sequence[int], asked: int
) -> Plot:
    bottom = TOP + max(LEAST_HIGH, APART * (len(cards) + 1))
    usable = [card.usable_bytes for card in cards]
    low = min([*usable, *(_at(curve, sizes[0]) for curve in curves)])
    high = max(usable) if cards else max(_at(curve, sizes[-1]) for curve in curves)
    return Plot(
        LogScale(max(1, sizes[0]), max(2, sizes[-1], sizes[0] + 1), LEFT, RIGHT),
        LogScale(max(1.0, 0.7 * low), 1.25 * max(high, _at(curves[0], asked)), bottom, TOP),
    )


def _curves(estimate: Estimate, cards: Sequence[Card]) -> list[Estimate]:
    """Return the estimates whose lines differ; the one that was asked for comes first."""
    distinct = {e.line(): e for e in (card.estimate for card in cards)}
    distinct.pop(estimate.line(), None)
    return [estimate, *distinct.values()]


def _interval(estimate: Estimate, plot: Plot) -> Safe:
    peak = max(1, estimate.peak_bytes)
    high, low = estimate.high_bytes / peak, estimate.low_bytes / peak
    upper = plot.points(lambda batch: high * _at(estimate, batch))
    lower = plot.points(lambda batch: low * _at(estimate, batch))
    return tag("polygon", points=" ".join([*upper, *reversed(lower)]), class_="interval")


def _card_lines(cards: Sequence[Card], plot: Plot) -> list[Safe]:
    """Return what each card has, as a line, with a dot where the step fills it."""
    x, y = plot.x, plot.y
    names = spread([y(card.usable_bytes) for card in cards], APART, TOP + 4, plot.bottom)
    drawn = []
    for card, name_at in zip(cards, names, strict=True):
        at, largest = y(card.usable_bytes), card.largest
        detail = "" if largest is None else f": up to {largest:,}" if largest else ": none fits"
        said = f"{cut(card.name, 80)}, {whole(card.usable_bytes)}{detail}"
        name = cut(card.name.partition(" (")[0], 24)
        drawn.append(
            tag(
                "g",
                tag("title", said),
                line(LEFT, at, RIGHT, at),
                line(RIGHT, at, RIGHT + 10, name_at, "lead"),
                circle(x(largest), at, 3.5) if largest and x.low <= largest <= x.high else None,
                label(f"{name}{detail}", RIGHT + 14, name_at + 4),
                class_=f"card {card.verdict}",
            )
        )
    return drawn


def _table(cards: Sequence[Card], batch: int) -> Safe:
    head = tag(
        "tr",
        tag("th", "machine"),
        tag("th", "memory", class_="n"),
        tag("th", "at batch ", tag("span", f"{batch:,}", class_="at")),
        tag("th", "peak", class_="n"),
        tag("th", "left", class_="n"),
        tag("th", "max batch (predicted)", class_="n"),
        tag("th", "program"),
    )
    body = tag("tbody", *(_row(card) for card in cards))
    return tag("div", tag("table", tag("thead", head), body, class_="cards"), class_="scroll")


def _row(card: Card) -> Safe:
    estimate, largest = card.estimate, card.largest
    said = f"{SYMBOLS[card.verdict]} {_SAID[card.verdict]}"
    left = max(0, card.usable_bytes - estimate.peak_bytes)
    return tag(
        "tr",
        tag("th", card.name, scope="row"),
        tag("td", format_bytes(card.usable_bytes), class_="n"),
        tag("td", said, class_=f"verdict {card.verdict}"),
        tag("td", format_bytes(estimate.peak_bytes), class_="n peak"),
        tag("td", format_bytes(left) if left else "–", class_="n left"),
        tag("td", "–" if largest is None else f"{largest:,}", class_="n"),
        tag("td", _PROGRAMS.get(estimate.program, estimate.program)),
        data_usable=str(card.usable_bytes),
        **_line(estimate),
    )


def choice(panels: Sequence[tuple[str, Safe]]) -> Safe:
    """Return several panels of which one is seen at a time; all of them without a script."""
    if len(panels) == 1:
        return panels[0][1]
    picks = [
        tag(
            "label",
            tag("input", type="radio", name="variant", value=str(number), checked=number == 0),
            f" {label}",
        )
        for number, (label, _) in enumerate(panels)
    ]
    shown = [
        tag("div", tag("h3", label), drawn, class_="variant", data_variant=str(number))
        for number, (label, drawn) in enumerate(panels)
    ]
    return join(
        tag("fieldset", tag("legend", "Trained with"), *picks, class_="picks"),
        *shown,
    )
