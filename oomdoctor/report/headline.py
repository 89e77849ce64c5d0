"""How a report begins: the symbol and the sentence, the same in every format."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.comparison import Comparison
from oomdoctor.facts import Diagnosis, Estimate, Footprint, Scripts, Tuning
from oomdoctor.findings import Report
from oomdoctor.report import (
    of_data,
    of_diagnosis,
    of_estimate,
    of_gate,
    of_scripts,
    of_tuning,
)
from oomdoctor.report.escape import printable

_ANSWERS = {"fits": "It fits", "does_not_fit": "It does not fit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The answer, which comes first."""

    state: str
    """A key of `view.SYMBOLS`."""
    text: str
    topic: str | None = None
    """What the text is about, if it does not say so itself."""

    @property
    def sentence(self) -> str:
        """The whole of it, for one line."""
        return self.text if self.topic is None else f"{self.topic}: {self.text}"


def headline_of(report: Report) -> Headline:
    """Return how a report begins; `Facts.deciding` says which of the facts it is about."""
    deciding = report.facts.deciding
    if isinstance(deciding, Comparison):
        return Headline(state=report.verdict, text=printable(deciding.summary))
    if report.parts:
        return Headline(state=of_gate.state(report), text=of_gate.headline(report))
    if isinstance(deciding, Diagnosis):
        text = of_diagnosis.headline(deciding)
        return Headline(state=_state_of_run(report, deciding), text=text)
    if isinstance(deciding, Scripts):
        return Headline(state=of_scripts.state(report), text=of_scripts.headline(report))
    if isinstance(deciding, Tuning):
        text = of_tuning.headline(deciding)
    elif isinstance(deciding, Estimate):
        said = of_estimate.headline(deciding)
        answer = _ANSWERS.get(report.verdict, "It is tight")
        text = f"{answer}: {said[0].lower()}{said[1:]}"
    elif isinstance(deciding, Footprint):
        text = of_data.headline(report)
    else:
        text = f"{_ANSWERS.get(report.verdict, 'Not enough is known to say whether it fits')}."
    return Headline(state=report.verdict, text=text)


def _state_of_run(report: Report, diagnosis: Diagnosis) -> str:
    """The verdict; a recorded run that ended well though memory grew deserves a warning."""
    grew = report.facts.profile is not None and diagnosis.cause in ("leak", "pipeline_buffer")
    return "warning" if grew and report.verdict == "fits" else report.verdict
