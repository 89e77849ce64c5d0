"""What changed between two runs, as values, in words, as JSON and on a page."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

import oomdoctor.report
from oomdoctor.api.run import compare_runs, report_on
from oomdoctor.cli import main
from oomdoctor.comparison import Change, compare
from oomdoctor.errors import InputError
from oomdoctor.facts import Facts
from oomdoctor.findings import Report
from oomdoctor.report import page

sys.path.insert(0, str(Path(__file__).parent / "profile"))
from recordings import MIB, write_example

SCHEMA = json.loads((Path(oomdoctor.report.__file__).parent / "schema.json").read_text())
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def runs(tmp_path):
    """A run that leaks and was killed, and the same one mended."""
    leaks = write_example(tmp_path / "leaks", epochs=6)
    mended = write_example(tmp_path / "mended", epochs=6, leak_per_step=0, killed=False)
    return leaks, mended


@pytest.fixture
def command(capsys):
    """A function that runs the command line and returns its exit code and both outputs."""

    def run(*words):
        with pytest.raises(SystemExit) as left:
            main(["profile", *map(str, words)])
        out, err = capsys.readouterr()
        return left.value.code, out, err

    return run


def by_name(changes):
    return {change.name: change for change in changes}


def test_a_mended_leak_is_told_with_its_figures(runs):
    comparison = compare_runs(*map(report_on, runs)).facts.comparison
    assert comparison.summary.startswith("A was killed, B ended well; B no longer leaks; B needs ")
    assert "less RAM than A" in comparison.summary
    changes = by_name(comparison.changes)
    assert changes["leak_bytes_per_step"].before == pytest.approx(2 * MIB, rel=0.05)
    assert changes["leak_bytes_per_step"].after is None
    assert changes["peak_rss_bytes"].difference < -400 * MIB
    assert changes["batch_size"].is_same
    assert {phase.label for phase in comparison.phases} >= {"import", "build", "epoch 6"}


def test_a_run_compared_with_itself_has_not_changed(runs):
    profile = report_on(runs[0]).facts.profile
    comparison = compare(profile, profile)
    assert all(change.is_same for change in comparison.changes)
    assert "B needs as much RAM as A" in comparison.summary
    assert "Both leak" in comparison.summary
    assert "What changed" in repr(comparison)
    assert len(comparison.to_frame()) == len(comparison.changes)


def test_what_is_not_measured_is_the_same_only_if_it_is_equal():
    figures = {"label": "", "before": 100, "after": 103}
    assert Change(name="peak_rss_bytes", unit="bytes", **figures).is_same
    assert not Change(name="batch_size", unit="count", **figures).is_same


def test_only_recorded_runs_can_be_compared(runs):
    other = Report(command="check", verdict="fits", facts=Facts())
    with pytest.raises(InputError, match="recorded runs"):
        compare_runs(report_on(runs[0]), other)


def test_the_command_shows_both_runs_and_writes_a_page(runs, tmp_path, command):
    code, out, err = command("--output", tmp_path / "out", "--compare", *runs)
    assert code == 0
    assert "B no longer leaks" in out
    assert "highest RAM" in out
    assert max(map(len, out.splitlines())) <= 80
    assert err == f"The page is {tmp_path / 'out' / 'comparison.html'}.\n"
    assert "B no longer leaks" in (tmp_path / "out" / "comparison.html").read_text()


def test_json_of_a_comparison_obeys_the_schema_and_holds_both_reports(runs, command):
    code, out, _ = command("--format", "json", "--compare", *runs)
    plain = json.loads(out)
    jsonschema.validate(plain, SCHEMA)
    assert (code, len(plain["reports"])) == (0, 2)
    assert (runs[1] / "comparison.html").exists()


@pytest.mark.parametrize("also", [["--ram", "1GiB"], ["--from", "x"], ["--timeline", "x.csv"]])
def test_comparing_runs_nothing_and_takes_nothing_else(runs, also, command):
    code, out, err = command(*also, "--compare", *runs)
    assert (code, out) == (2, "")
    assert "--compare A B does not run a script" in err


def test_a_folder_without_a_recording_is_named(runs, tmp_path, command):
    code, _, err = command("--compare", runs[0], tmp_path)
    assert code == 2
    assert "holds no recording" in err


def test_names_of_strangers_stay_text_on_the_page(runs, tmp_path):
    evil = write_example(tmp_path / "evil", name=EVIL)
    html = page.render(compare_runs(report_on(runs[0]), report_on(evil)))
    assert EVIL not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
