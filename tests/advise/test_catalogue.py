"""What the catalogue as a whole says about data on machines: the right remedies, in order, and
nothing about data that fits."""

from pathlib import Path

import numpy as np
import pytest

import oomdoctor
from oomdoctor.advise.evaluate import advise
from oomdoctor.advise.load import load_rules
from oomdoctor.facts import Facts, Footprint, Machine, Memory, Stage
from oomdoctor.findings import Outcome

GIB = 2**30
SHAPES = Path(__file__).parent.parent.parent / "fixtures" / "datasets" / "shapes"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """16,283 pictures of 150×150×3 as float32, 4.09 GiB, in a file that takes no room."""
    return sparse_array(tmp_path_factory.mktemp("arrays") / "x_train.npy", (16_283, 150, 150, 3))


def sparse_array(path, shape, dtype="<f4"):
    with path.open("wb") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return path


def fired(findings):
    return [finding for finding in findings if finding.outcome is Outcome.FIRED]


def complaints(findings):
    return [finding.rule for finding in fired(findings) if finding.severity.value != "info"]


def remedies(findings):
    return list(dict.fromkeys(finding.remedy for finding in fired(findings)))


CANNOT_SHRINK_DATA = {
    "mixed_precision",
    "gradient_accumulation",
    "reduce_batch",
    "multi_gpu",
    "rematerialize",
    "lighter_optimizer",
    "smaller_model",
    "memory_growth",
    "fix_leak",
}
"""Remedies for a training step: none of them makes an array smaller."""


# --------------------------------------------------------------------------- it fits


@pytest.mark.parametrize("load", ["memory", "stream"])
def test_nothing_is_held_against_pictures_that_fit_with_room(load):
    report = oomdoctor.check(SHAPES, ram="16GiB", vram="8GiB", load=load)

    assert report.verdict == "fits"
    assert complaints(report.findings) == []


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "|u1"])
def test_nothing_is_held_against_an_array_that_fits_with_room(tmp_path, dtype):
    path = sparse_array(tmp_path / "x_train.npy", (1000, 100, 100, 3), dtype)

    report = oomdoctor.check(path, ram="16GiB", vram="8GiB")

    assert report.verdict == "fits"
    assert complaints(report.findings) == []


def test_an_array_over_2_gb_that_fits_is_only_pointed_out(pictures):
    report = oomdoctor.check(pictures, ram="64GiB", vram="24GiB")

    assert complaints(report.findings) == []
    assert "OD110" in {finding.rule for finding in fired(report.findings)}


# --------------------------------------------------------------------------- it does not


def test_arrays_too_large_for_ram_are_streamed_to_train_and_subset_to_prototype(pictures):
    def first(purpose):
        report = oomdoctor.check(pictures, ram="8GiB", vram="16GiB", purpose=purpose)
        return fired(report.findings)[0].remedy

    assert first(None) == "stream_dataset"
    assert first("train") == "stream_dataset"
    assert first("production") == "stream_dataset"
    assert first("prototype") == "subset"


def test_arrays_too_large_for_ram_get_remedies_that_shrink_them_and_no_others(pictures):
    report = oomdoctor.check(pictures, ram="8GiB", vram="16GiB")

    found = remedies(report.findings)
    assert {"stream_dataset", "mmap", "subset", "chunked_training", "store_intermediates"} <= {
        *found
    }
    assert not CANNOT_SHRINK_DATA & {*found}
    assert "cpu_fallback" not in found  # it would need more RAM, not less
    assert "keep_dataset_on_cpu" not in found


def test_arrays_too_large_for_the_gpu_stay_in_ram_before_anything_else(pictures):
    report = oomdoctor.check(pictures, ram="32GiB", vram="3GiB")

    found = remedies(report.findings)
    assert found[:2] == ["keep_dataset_on_cpu", "stream_dataset"]
    assert {"cpu_fallback", "mmap", "subset"} <= {*found}
    for finding in fired(report.findings):
        if finding.remedy in CANNOT_SHRINK_DATA:  # for the step that comes after, and says so
            assert (finding.makes_it_fit, finding.severity.value) == (False, "info")
        elif finding.severity.value != "info":
            assert finding.makes_it_fit


def test_where_neither_memory_holds_the_arrays_keeping_them_in_ram_is_not_enough(pictures):
    report = oomdoctor.check(pictures, ram="8GiB", vram="3GiB")

    enough = {finding.remedy: finding.makes_it_fit for finding in fired(report.findings)}
    assert fired(report.findings)[0].remedy == "stream_dataset"
    assert enough["keep_dataset_on_cpu"] is False
    assert "cpu_fallback" not in enough


def test_float64_is_named_where_it_costs_ram(tmp_path):
    path = sparse_array(tmp_path / "x_train.npy", (4000, 150, 150, 3), "<f8")

    report = oomdoctor.check(path, ram="4GiB", vram="16GiB", select=["OD106"])

    (finding,) = fired(report.findings)
    assert "2.01 GiB as float64" in finding.message
    assert finding.makes_it_fit


def test_large_pictures_loaded_whole_are_to_be_resized_or_kept_as_bytes():
    report = oomdoctor.check(SHAPES, ram="1500MiB", load="memory", batch_size=4)

    by_rule = {finding.rule: finding for finding in fired(report.findings)}
    assert by_rule["OD108"].makes_it_fit
    assert by_rule["OD107"].remedy == "stream_dataset"
    assert "chunked_training" in remedies(report.findings)


def test_without_a_known_gpu_rules_about_it_are_unknown(pictures):
    machine = Machine(ram=Memory(total_bytes=64 * GIB, available_bytes=64 * GIB))

    report = oomdoctor.check(pictures, machine=machine)

    outcomes = {finding.rule: finding.outcome for finding in report.findings}
    assert outcomes["OD103"] is Outcome.UNKNOWN
    assert outcomes["OD101"] is Outcome.PASSED


# --------------------------------------------------------------------------- host and pipeline


def limited(limit=None, swap=8 * GIB):
    ram = Memory(
        total_bytes=64 * GIB,
        available_bytes=limit or 60 * GIB,
        limit_bytes=limit,
        limit_source="cgroup memory.max" if limit else None,
        swap_total_bytes=swap,
    )
    return Machine(ram=ram)


def test_a_container_that_is_smaller_than_the_machine_is_named(pictures):
    inside = oomdoctor.check(pictures, machine=limited(4 * GIB), select=["OD151"])
    outside = oomdoctor.check(pictures, machine=limited(), select=["OD151"])

    assert "cgroup memory.max allows 4.00 GiB" in fired(inside.findings)[0].message
    assert [finding.outcome.value for finding in outside.findings if finding.rule == "OD151"] == [
        "passed"
    ]


def pipeline(*stages, ram=16 * GIB):
    facts = Facts(
        machine=Machine(ram=Memory(total_bytes=ram, available_bytes=ram)),
        footprint=Footprint(
            decoded_bytes=None,
            low_bytes=None,
            high_bytes=None,
            native_bytes=None,
            keras_loader_bytes=None,
            sample_bytes=None,
            largest_sample_bytes=None,
            batch_bytes=None,
            batch_size=32,
            load="stream",
            stages=stages,
        ),
    )
    return fired(advise(facts, load_rules(), select=["OD2"]))


def stage(kind, label, gib, *, elements=100, is_batched=False):
    held = int(gib * GIB)
    return Stage(kind=kind, label=label, elements=elements, held_bytes=held, is_batched=is_batched)


def test_a_cache_after_batch_is_said_to_fill_memory_in_the_first_epoch():
    findings = pipeline(
        stage("batch", "batch(32)", 0.01),
        stage("prefetch", "prefetch(1)", 0.01, elements=1, is_batched=True),
        stage("cache", "cache()", 20, is_batched=True),
    )

    assert [finding.rule for finding in findings] == ["OD203", "OD204"]
    assert {finding.remedy for finding in findings} == {"cache_to_file"}
    assert "20.0 GiB during the first epoch" in findings[0].message


def test_a_cache_in_a_file_and_a_small_buffer_are_left_alone():
    findings = pipeline(
        stage("shuffle", "shuffle(1000)", 0.2, elements=1000),
        stage("cache", "cache('cache/train')", 0, elements=0),
        stage("batch", "batch(32)", 0.01),
        stage("prefetch", "prefetch(2)", 0.02, elements=2, is_batched=True),
    )

    assert findings == []


def test_a_buffer_that_fits_once_is_warned_about_because_it_grows():
    findings = pipeline(stage("shuffle", "shuffle(10000)", 8, elements=10000))

    assert [finding.rule for finding in findings] == ["OD210"]
    assert "22.4 GiB" in findings[0].message


def test_a_shuffle_of_batches_is_told_to_shuffle_samples():
    findings = pipeline(stage("shuffle", "shuffle(1000)", 20, elements=1000, is_batched=True))

    assert {finding.rule for finding in findings} == {"OD201", "OD202"}
    assert {finding.remedy for finding in findings} == {"smaller_shuffle_buffer"}
