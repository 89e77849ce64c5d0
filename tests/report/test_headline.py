"""One answer: whatever the format, a report begins with the same symbol and sentence."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from oomdoctor import explain_error, probe_machine
from oomdoctor.api.conclude import conclude
from oomdoctor.api.gate import combined
from oomdoctor.api.run import compare_runs, report_of
from oomdoctor.facts import Estimate, Facts, SizeTrial, Tuning
from oomdoctor.profile.conclude import profile_of
from oomdoctor.profile.store import load
from oomdoctor.recording import End
from oomdoctor.report import github, html, junit, markdown, page, text
from oomdoctor.report.headline import headline_of
from oomdoctor.report.listing import list_problems
from oomdoctor.report.view import SYMBOLS
from oomdoctor.report.views import view_of

sys.path.insert(0, str(Path(__file__).parents[1] / "profile"))
from recordings import write_example

GIB = 2**30
ESTIMATE = Estimate(batch_size=8, peak_bytes=3 * GIB, low_bytes=3 * GIB, high_bytes=3 * GIB)
TUNING = Tuning(
    batch_size=4,
    peak_bytes=GIB,
    budget_bytes=2 * GIB,
    target_bytes=2 * GIB,
    trials=(SizeTrial(batch_size=4, outcome="fits", peak_bytes=GIB, seconds=1.0),),
)


def concluded(**facts):
    machine = probe_machine(ram="8GiB", vram="2GiB")
    return conclude("check", Facts(machine=machine, **facts), rules=())


@pytest.fixture
def leaking(tmp_path):
    """A run whose memory grew from step to step, and that ended well all the same."""
    recording = load(write_example(tmp_path / "run", epochs=6))
    ended_well = replace(recording, limits=(), end=End(seconds=recording.seconds, exit_code=0))
    return report_of(profile_of(ended_well))


def flat(rendered):
    return " ".join(rendered.replace("\\", "").split())


def test_every_format_begins_with_the_same_sentence():
    log = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating"
    for report in (
        concluded(estimate=ESTIMATE),
        concluded(estimate=ESTIMATE, tuning=TUNING),
        concluded(),
        explain_error(log),
        explain_error(""),
    ):
        head = headline_of(report)
        begins = f"{SYMBOLS[head.state]} {head.sentence}"
        for renderer in (text, html, markdown):
            assert begins in flat(renderer.render(view_of(report)))
        for renderer in (github, junit):
            assert head.sentence in flat(renderer.render(list_problems(report)))


def test_what_was_run_decides_over_what_was_estimated():
    assert concluded(estimate=ESTIMATE).verdict == "does_not_fit"
    report = concluded(estimate=ESTIMATE, tuning=TUNING)
    assert report.verdict == "fits"
    assert headline_of(report).sentence.startswith("Batch size 4:")


def test_a_search_accounts_for_all_of_its_memory():
    tuned = replace(TUNING, target_bytes=2 * GIB - 102 * 2**20)
    said = flat(text.render(view_of(tuned)))
    assert "Batch size 4: peak memory 1.00 GiB of 2.00 GiB." in said
    assert "limited to 1.90 GiB: 2.00 GiB less a margin of 102 MiB" in said
    assert "limited to 2.00 GiB, no margin" in flat(text.render(view_of(TUNING)))


def test_a_run_that_leaked_and_ended_well_is_a_warning_on_the_page_and_in_text(leaking):
    head = headline_of(leaking)
    assert (leaking.verdict, head.state) == ("fits", "warning")
    assert text.render(view_of(leaking)).startswith(f"! {head.sentence[:40]}")
    assert 'class="hero warning"' in page.render(leaking)


def test_a_comparison_begins_with_what_changed_and_not_with_what_fits(leaking):
    report = compare_runs(leaking, leaking)
    assert headline_of(report).sentence == report.facts.comparison.summary
    assert text.render(view_of(report))[2:].startswith(headline_of(report).sentence[:40])


def test_several_reports_begin_with_how_many_fit():
    good = replace(concluded(tuning=TUNING), target="a")
    bad = replace(concluded(estimate=ESTIMATE), target="b")
    head = headline_of(combined("check", (good, bad)))
    assert (head.state, head.sentence) == ("does_not_fit", "1 of 2 does not fit; 1 new error.")


def test_a_report_fails_by_what_its_parts_found():
    bad = replace(concluded(estimate=ESTIMATE), target="b")
    report = combined("check", (bad,))
    assert report.fails("error")
    assert not report.fails("never")
    known = tuple(replace(finding, is_known=True) for finding in report.parts[0].findings)
    assert not replace(report, parts=(replace(report.parts[0], findings=known),)).fails("info")
