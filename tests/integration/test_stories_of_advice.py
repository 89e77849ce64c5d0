"""Each story's remedies are among the findings, and none that cannot help it."""

import io

import numpy as np
import pytest
from PIL import Image

import oomdoctor
from oomdoctor.advise.evaluate import advise
from oomdoctor.advise.load import load_rules
from oomdoctor.facts import Estimate, Facts, Workload

GIB = 1024**3

ABOUT_THE_STEP = {
    "reduce_batch",
    "rematerialize",
    "lighter_optimizer",
    "smaller_model",
    "cuda_malloc_async",
    "fix_leak",
    "free_gpu_process",
    "memory_growth",
    "multi_gpu",
}
"""Remedies that leave a dataset exactly as large as it is."""


def fired(report):
    return [finding for finding in report.findings if finding.outcome.value == "fired"]


def remedies(report):
    return {finding.remedy for finding in fired(report)}


def finding(report, remedy):
    return next(found for found in fired(report) if found.remedy == remedy)


@pytest.fixture(scope="module")
def array(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu-guide") / "x_train.npy"
    shape = (16_283, 150, 150, 3)
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 4 * int(np.prod(shape)))
    return path


def pictures(folder, *, count, side, mode):
    buffer = io.BytesIO()
    Image.new(mode, (side, side)).save(buffer, "PNG")
    (folder / "all").mkdir()
    for number in range(count):
        (folder / "all" / f"{number:05}.png").write_bytes(buffer.getvalue())
    return folder


def test_1_a_card_too_small_for_the_arrays(array):
    report = oomdoctor.check(array, vram="2.7GiB", ram="16GiB")

    assert report.verdict == "does_not_fit"
    assert remedies(report) >= {
        "subset",
        "cpu_fallback",
        "stream_dataset",
        "mixed_precision",
        "gradient_accumulation",
        "mmap",
    }
    assert not remedies(report) & ABOUT_THE_STEP
    # A mapped array that is handed to `fit` whole still goes to the GPU whole.
    mapped = finding(report, "mmap").fix.code
    assert "mmap_mode" in mapped
    assert "model.fit(x" not in mapped
    # These two make room for the step once the arrays are gone, and say so.
    for remedy in ("mixed_precision", "gradient_accumulation"):
        assert "must leave the GPU first" in finding(report, remedy).message
        assert finding(report, remedy).severity.value == "info"
        assert not finding(report, remedy).makes_it_fit


def test_1_the_purpose_ranks_the_remedies(array):
    first = {
        purpose: fired(oomdoctor.check(array, vram="2.7GiB", ram="16GiB", purpose=purpose))[0]
        for purpose in ("prototype", "train", "production")
    }
    assert first["prototype"].remedy == "subset"
    assert first["production"].remedy in ("stream_dataset", "keep_dataset_on_cpu")


def test_2_small_files_that_decode_to_more_than_ram(tmp_path):
    folder = pictures(tmp_path, count=4000, side=1536, mode="L")

    report = oomdoctor.check(folder, load="memory", dtype="uint8", ram="8GiB")

    assert report.verdict == "does_not_fit"
    assert remedies(report) >= {"chunked_training", "stream_dataset", "subset"}
    assert not remedies(report) & (ABOUT_THE_STEP | {"mixed_precision", "gradient_accumulation"})
    chunked = finding(report, "chunked_training").fix.code
    assert "save" in chunked
    assert "load" in chunked
    assert any("disk" in found.message.lower() for found in fired(report))


def test_3_ten_thousand_pictures_on_colab(tmp_path):
    folder = pictures(tmp_path, count=10_000, side=512, mode="RGB")

    report = oomdoctor.check(folder, load="memory", machine="colab-t4")

    assert report.verdict == "does_not_fit"
    assert "stream_dataset" in remedies(report)
    # Neither RAM nor the card holds them, and pictures cannot be mapped.
    assert not remedies(report) & (ABOUT_THE_STEP | {"cpu_fallback", "mmap"})
    streamed = oomdoctor.check(folder, load="stream", machine="colab-t4")
    assert streamed.verdict == "fits"
    assert not [found for found in fired(streamed) if found.severity.value == "error"]


def test_4_a_generator_instead_of_arrays(array):
    report = oomdoctor.check(array, vram="2.7GiB", ram="16GiB")

    codes = [found.fix.code for found in fired(report) if found.remedy == "stream_dataset"]
    generator = next(code for code in codes if "from_generator" in code)
    assert ".shuffle(" in generator
    assert ".batch(" in generator


@pytest.mark.tensorflow
def test_5_a_cache_after_the_batches():
    import tensorflow as tf

    x = np.zeros((2000, 64, 64, 3), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, np.zeros(2000, "int32")))
    dataset = dataset.map(lambda x, y: (x / 255, y)).batch(32).prefetch(1).cache()

    report = oomdoctor.check(dataset, ram="900MiB")

    assert finding(report, "cache_to_file").rule == "OD204"
    assert "after `batch()`" in finding(report, "cache_to_file").message
    assert not remedies(report) & ABOUT_THE_STEP
    streamed = tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature=(tf.TensorSpec((64, 64, 3)), tf.TensorSpec(()))
    )
    clean = oomdoctor.check(streamed.batch(32).prefetch(1), ram="8GiB")
    assert not [found for found in fired(clean) if found.severity.value != "info"]


def test_6_a_batch_that_does_not_divide_by_the_gpus(tmp_path):
    np.save(tmp_path / "x_train.npy", np.zeros((1000, 8, 8), "float32"))

    report = oomdoctor.check(tmp_path, machine="kaggle-t4x2", replicas=2, batch_size=33)

    found = finding(report, "multi_gpu")
    assert found.rule == "OD701"
    assert "32" in found.message
    assert "34" in found.message
    even = oomdoctor.check(tmp_path, machine="kaggle-t4x2", replicas=2, batch_size=40)
    assert "multi_gpu" not in remedies(even)


def test_6_several_gpus_do_not_help_weights_that_are_too_large():
    facts = Facts(
        machine=oomdoctor.probe_machine(machine="kaggle-t4x2"),
        workload=Workload(
            model="large",
            replicas=2,
            batch_size=2,
            weights_bytes=6 * GIB,
            trainable_bytes=6 * GIB,
            optimizer="adam",
            optimizer_bytes=12 * GIB,
        ),
        estimate=Estimate(
            batch_size=2,
            peak_bytes=25 * GIB,
            low_bytes=24 * GIB,
            high_bytes=26 * GIB,
            parts=(
                ("weights", 6 * GIB),
                ("gradients", 6 * GIB),
                ("optimizer", 12 * GIB),
                ("activations", GIB),
            ),
        ),
    )
    found = [f for f in advise(facts, load_rules()) if f.outcome.value == "fired"]
    assert "smaller_model" in {finding.remedy for finding in found}
    assert not {"multi_gpu", "reduce_batch"} & {finding.remedy for finding in found}
    assert any("More GPUs do not help" in finding.message for finding in found)


def test_7_results_that_are_kept_on_disk(tmp_path):
    folder = pictures(tmp_path, count=300, side=1024, mode="RGB")

    report = oomdoctor.check(folder, load="memory", ram="3GiB")

    stored = finding(report, "store_intermediates").fix.code
    assert "model" in stored
    assert not remedies(report) & ABOUT_THE_STEP
