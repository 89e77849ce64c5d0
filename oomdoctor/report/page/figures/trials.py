"""The batch sizes that a search ran: their peaks beside what the card has."""

from __future__ import annotations

from oomdoctor.facts import Tuning
from oomdoctor.report.of_tuning import trials_table
from oomdoctor.report.page.figures.scale import LogScale, Plot, circle, label, line
from oomdoctor.report.page.markup import Safe, tag
from oomdoctor.units import format_bytes

WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 900.0, 300.0, 66.0, 880.0, 22.0, 250.0


def chart(tuning: Tuning) -> Safe | None:
    """Return each trial as a point: batch size across, peak upwards; failures at the limit."""
    peaks = [trial.peak_bytes for trial in tuning.trials if trial.peak_bytes]
    if not peaks:
        return None
    sizes = [trial.batch_size for trial in tuning.trials]
    plot = Plot(
        LogScale(min(sizes) / 1.25, max(sizes) * 1.25, LEFT, RIGHT),
        LogScale(0.8 * min(peaks), 1.3 * max(tuning.budget_bytes, *peaks), BOTTOM, TOP),
    )
    drawn = [_trial(number, tuning, plot) for number in range(len(tuning.trials))]
    ran = sum(trial.outcome == "fits" for trial in tuning.trials)
    detail = f"{len(sizes)} trials, {ran} of which fit; the largest is {tuning.batch_size:,}."
    return tag(
        "div",
        tag(
            "svg",
            plot.axes(),
            _limit(plot, tuning.budget_bytes),
            *drawn,
            viewBox=f"0 0 {WIDE:.0f} {HIGH:.0f}",
            role="img",
            aria_label=f"{detail} The table below has the figures.",
        ),
        tag(
            "p",
            "Numbered in the order they were tried. Blue: fits; green: the answer; red, above the "
            "line: out of memory.",
            class_="hint",
        ),
        class_="wide",
    )


def _trial(number: int, tuning: Tuning, plot: Plot) -> Safe:
    trial, words = tuning.trials[number], trials_table(tuning).rows[number]
    fits = trial.outcome == "fits"
    x = plot.x(trial.batch_size)
    y = plot.y(trial.peak_bytes if fits and trial.peak_bytes else tuning.budget_bytes * 1.08)
    kind = "chosen" if fits and trial.batch_size == tuning.batch_size else trial.outcome
    return tag(
        "g",
        tag("title", f"{number + 1}. batch {words[0]}: {words[1][2:]}, peak {words[2]}"),
        circle(x, y, 9),
        label(str(number + 1), x, y + 4, "middle"),
        class_=f"trial {kind}",
    )


def _limit(plot: Plot, size: int) -> Safe:
    at = plot.y(size)
    return tag(
        "g",
        line(LEFT, at, RIGHT, at),
        label(f"{format_bytes(size)} available", LEFT + 8, at - 6),
        class_="budget",
    )
