"""Small programs under the real command: the right cause and the right remedy for each."""

import json
from pathlib import Path

import jsonschema
import pytest

import oomdoctor.report

SCRIPTS = Path(__file__).parents[2] / "fixtures" / "scripts_profile"
SCHEMA = json.loads((Path(oomdoctor.report.__file__).parent / "schema.json").read_text())

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def remedies(report):
    return [one["remedy"] for one in report["findings"] if one["outcome"] == "fired"]


def test_a_leak_is_found_and_what_is_kept_is_named(profile):
    run = profile(SCRIPTS / "leaks.py")
    jsonschema.validate(run.report, SCHEMA)
    assert (run.code, run.out) == (0, "kept 200\n")
    assert run.report["diagnosis"]["cause"] == "leak"
    assert remedies(run.report) == ["fix_leak"]
    growth = run.report["profile"]["growths"][0]
    assert growth["bytes_per_step"] == pytest.approx(2_000_000, rel=0.2)
    assert run.report["profile"]["suspects"][0]["what"] == "kept (list)"
    assert "per epoch the limit of" in run.report["profile"]["forecasts"][0]["text"]


def test_a_compiled_loop_of_the_program_s_own_has_steps_too(profile):
    run = profile(SCRIPTS / "own_loop.py")
    jsonschema.validate(run.report, SCHEMA)
    assert (run.code, run.out) == (0, "kept 200\n")
    assert run.report["diagnosis"]["cause"] == "leak"
    growth = run.report["profile"]["growths"][0]
    assert growth["bytes_per_step"] == pytest.approx(2_000_000, rel=0.2)
    assert run.report["profile"]["suspects"][0]["what"] == "kept (list)"


def test_a_model_that_is_built_anew_in_a_loop_is_named_before_what_follows_from_it(profile):
    run = profile(SCRIPTS / "rebuilds_model.py")
    jsonschema.validate(run.report, SCHEMA)
    assert (run.code, run.out) == (0, "done\n")
    assert run.report["diagnosis"]["cause"] == "leak"
    assert run.report["profile"]["suspects"][0]["kind"] == "models_rebuilt"
    (finding,) = (one for one in run.report["findings"] if one["outcome"] == "fired")
    assert "clear_session" in finding["fix"]["code"]


def test_a_cache_that_fills_is_no_leak_and_can_go_to_a_file(profile):
    run = profile("--ram", "1500MB", SCRIPTS / "fills_cache.py")
    jsonschema.validate(run.report, SCHEMA)
    assert (run.code, run.out) == (0, "done\n")
    assert run.report["diagnosis"]["cause"] == "pipeline_buffer"
    assert run.report["diagnosis"]["is_fatal"] is False
    assert remedies(run.report) == ["cache_to_file"]
    growth = run.report["profile"]["growths"][0]
    assert growth["kind"] == "cache"
    assert growth["grown_bytes"] == pytest.approx(480 * 1024**2, rel=0.2)


def test_a_huge_shuffle_buffer_is_told_though_no_step_ever_ran(profile):
    run = profile("--ram", "1200MB", SCRIPTS / "huge_shuffle.py")
    jsonschema.validate(run.report, SCHEMA)
    assert (run.code, run.out) == (137, "")
    assert run.report["diagnosis"]["cause"] == "pipeline_buffer"
    assert run.report["profile"]["growths"][0]["phase"] == "first step"
    assert remedies(run.report) == ["smaller_shuffle_buffer"]
    assert "shuffle(1500)" in run.err


def test_a_big_first_step_is_no_leak_and_needs_no_remedy(profile):
    run = profile(SCRIPTS / "big_first_step.py")
    jsonschema.validate(run.report, SCHEMA)
    assert run.code == 0
    assert run.report["diagnosis"]["cause"] == "no_failure"
    assert run.report["profile"]["growths"][0]["kind"] == "first_step"
    assert remedies(run.report) == []


def test_a_program_killed_by_its_cap_leaves_a_report(profile):
    run = profile("--ram", "400MB", SCRIPTS / "loads_everything.py")
    jsonschema.validate(run.report, SCHEMA)
    end = run.report["profile"]["end"]
    assert (run.code, run.out) == (137, "")
    assert (end["exit_code"], end["signal"], end["killed_by"]) == (137, "SIGKILL", "cap")
    assert run.report["diagnosis"]["cause"] == "host_killed"
    assert remedies(run.report)[0] == "stream_dataset"
    # A program that writes 2 GB/s passes the cap by what it writes in a hundredth of a second.
    assert end["peak_rss_bytes"] < 1.2 * 400_000_000


def test_an_oom_under_a_card_emulated_on_the_cpu_is_told_and_traced_to_the_batch(profile):
    run = profile("--vram", "72MiB", SCRIPTS / "large_batch.py", "64")
    jsonschema.validate(run.report, SCHEMA)
    assert run.code == 1
    assert "ResourceExhaustedError" in run.err
    diagnosis = run.report["diagnosis"]
    assert diagnosis["cause"] == "gpu_exhausted"
    assert diagnosis["limit_bytes"] == 72 * 1024**2
    assert remedies(run.report)[0] == "reduce_batch"


def test_the_smaller_batch_that_is_prescribed_fits_the_same_card(profile):
    run = profile("--vram", "72MiB", "--trace-step", "2", SCRIPTS / "large_batch.py", "8")
    jsonschema.validate(run.report, SCHEMA)
    assert (run.code, run.out) == (0, "done\n")
    breakdown = run.report["profile"]["breakdown"]
    assert breakdown["step"] == 2
    assert sum(breakdown["parts"].values()) == breakdown["peak_bytes"]
    assert sum(layer["bytes_at_peak"] for layer in breakdown["layers"]) == breakdown["peak_bytes"]
    assert breakdown["layers"][0]["name"].startswith("conv2d")
