"""What the catalogue prescribes for a crash and for a step, and above all what it does not.

A remedy that cannot help costs a person a day, so each of these names the whole answer.
"""

from dataclasses import replace

import pytest

from oomdoctor.advise.evaluate import advise
from oomdoctor.advise.load import load_rules
from oomdoctor.facts import Diagnosis, Estimate, Facts, Gpu, Machine, Memory, Workload
from oomdoctor.findings import CAUSES, Outcome

GIB = 2**30
RULES = load_rules()


def prescribed(facts):
    """The remedies of the rules that fire, best first."""
    findings = advise(facts, RULES)
    return [finding.remedy for finding in findings if finding.outcome is Outcome.FIRED]


CURES = {
    "gpu_exhausted": ["reduce_batch", "gradient_accumulation", "mixed_precision"],
    "gpu_fragmented": ["cuda_malloc_async"],
    "gpu_held_by_other_process": ["free_gpu_process", "memory_growth", "cpu_fallback"],
    "cuda_library_allocation": ["memory_growth", "free_gpu_process", "reduce_batch"],
    "dataset_on_gpu": ["keep_dataset_on_cpu", "stream_dataset"],
    "xla_exhausted": ["reduce_batch", "gradient_accumulation", "mixed_precision"],
    "multi_gpu_exhausted": ["reduce_batch", "gradient_accumulation", "mixed_precision"],
    "host_array_too_large": ["stream_dataset", "mmap", "subset"],
    "host_killed": ["stream_dataset", "mmap", "smaller_shuffle_buffer", "cache_to_file", "subset"],
    "host_exhausted": ["stream_dataset", "smaller_shuffle_buffer"],
    "host_allocation_warning": ["none", "stream_dataset"],
    "pipeline_buffer": ["smaller_shuffle_buffer", "cache_to_file"],
    "leak": ["fix_leak"],
    "tensor_proto_too_large": ["stream_dataset"],
    "not_memory": [],
    "no_failure": [],
}


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_leads_to_its_cures_and_no_others(cause):
    diagnosis = Diagnosis(cause=cause, confidence=1.0)

    assert prescribed(Facts(diagnosis=diagnosis)) == CURES[cause]


@pytest.mark.parametrize("cause", ["gpu_exhausted", "host_exhausted"])
def test_a_smaller_batch_is_not_prescribed_for_a_weight_that_is_too_large(cause):
    diagnosis = Diagnosis(
        cause=cause,
        confidence=1.0,
        op="gradient_tape/sequential_1/dense_2/MatMul/MatMul",
        shape=(22436962, 512),
        requested_bytes=45950898176,
    )

    assert prescribed(Facts(diagnosis=diagnosis)) == ["smaller_model"]


def test_a_small_gradient_that_came_last_is_not_blamed():
    diagnosis = Diagnosis(
        cause="gpu_exhausted",
        confidence=1.0,
        op="gradient_tape/dense/MatMul/MatMul_1",
        shape=(4096, 512),
        requested_bytes=8388608,
    )

    assert prescribed(Facts(diagnosis=diagnosis))[0] == "reduce_batch"


def test_an_old_keras_is_blamed_for_a_product_that_only_it_makes():
    diagnosis = Diagnosis(
        cause="gpu_exhausted",
        confidence=1.0,
        op="gradient_tape/sequential_1/dense_1/MatMul/MatMul_1",
        shape=(256, 256, 256),
    )

    def fired(keras):
        facts = Facts(diagnosis=diagnosis, versions=(("keras", keras),))
        return [item.rule for item in advise(facts, RULES) if item.outcome is Outcome.FIRED]

    assert "OD604" in fired("3.14.1")
    assert "OD604" not in fired("3.15.0")
    assert "OD604" not in fired("2.15.0")


def training(*, weights, activations, usable, gpus=1, batch_size=32, ram=64):
    """A run with Adam in float32: gradients as large as the weights, state twice as large."""
    card = Gpu(
        index=0,
        name="T4",
        total_bytes=int(usable * GIB),
        free_bytes=int(usable * GIB),
        reserved_bytes=0,
        compute_capability=(7, 5),
        processes=(),
    )
    sizes = {
        "weights": int(weights * GIB),
        "gradients": int(weights * GIB),
        "optimizer": int(2 * weights * GIB),
        "activations": int(activations * GIB),
    }
    peak = sum(sizes.values())
    return Facts(
        machine=Machine(
            ram=Memory(total_bytes=ram * GIB, available_bytes=ram * GIB),
            gpus=tuple(replace(card, index=index) for index in range(gpus)),
        ),
        workload=Workload(
            model="a model",
            weights_bytes=sizes["weights"],
            trainable_bytes=sizes["weights"],
            optimizer="adam",
            optimizer_bytes=sizes["optimizer"],
            precision="float32",
            input_shape=(512, 512, 3),
            batch_size=batch_size,
        ),
        estimate=Estimate(
            batch_size=batch_size,
            peak_bytes=peak,
            low_bytes=peak,
            high_bytes=peak,
            parts=tuple(sizes.items()),
            largest_tensor_bytes=int(activations * GIB / 20),
        ),
        versions=(("tensorflow", "2.21.0"), ("keras", "3.15.1")),
    )


def test_activations_that_are_too_large_have_many_cures():
    remedies = prescribed(training(weights=0.1, activations=12, usable=8, gpus=2))

    assert set(remedies) == {
        "reduce_batch",
        "gradient_accumulation",
        "mixed_precision",
        "rematerialize",
        "smaller_input",
        "multi_gpu",
        "cpu_fallback",
    }


def test_weights_and_optimizer_that_fill_the_card_are_not_treated_with_batches_or_more_cards():
    remedies = prescribed(training(weights=3, activations=1, usable=8, gpus=4))

    assert set(remedies) == {"smaller_model", "lighter_optimizer", "cpu_fallback"}


def test_weights_that_do_not_fit_by_themselves_need_a_smaller_model_and_nothing_else():
    facts = training(weights=9, activations=1, usable=8, gpus=4, ram=16)
    fired = [item.rule for item in advise(facts, RULES) if item.outcome is Outcome.FIRED]

    assert prescribed(facts) == ["smaller_model"]
    # Not OD302, which would freeze the weights: they do not fit frozen either.
    assert fired == ["OD502"]


def test_a_step_that_fits_needs_nothing():
    assert prescribed(training(weights=0.1, activations=2, usable=8, gpus=2)) == []
