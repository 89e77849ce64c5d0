"""Real steps, recorded by TensorFlow's profiler and replayed: what held the memory."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from steps import run_steps

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.tensorflow

REQUESTS = {
    "conv": {"source": "conv", "batch_size": 32},
    "conv 64": {"source": "conv", "batch_size": 64},
    "sgd": {"source": "conv", "batch_size": 64, "optimizer": "sgd"},
    "mixed": {"source": "conv", "batch_size": 64, "precision": "mixed_float16"},
    "evaluate": {"source": "conv", "batch_size": 64, "kind": "evaluate"},
    "predict": {"source": "conv", "batch_size": 64, "kind": "predict"},
    "several inputs": {"source": "several_inputs", "batch_size": 16},
    "autoencoder": {"source": "autoencoder", "batch_size": 16},
    "uncompiled": {"source": "uncompiled", "batch_size": 16},
    "xla": {"source": "dense", "batch_size": 8, "jit_compile": True},
    "frozen": {"source": "frozen_layer", "batch_size": 4},
}


@pytest.fixture(scope="module")
def steps():
    """All steps, from one process."""
    whole = [
        {
            **request,
            "source": f"measured_models:{request['source']}",
            "sys_path": [str(TESTS / "worker")],
            "trace": True,
        }
        for request in REQUESTS.values()
    ]
    return dict(zip(REQUESTS, run_steps(*whole), strict=True))


@pytest.mark.parametrize("name", REQUESTS)
def test_the_replayed_trace_equals_the_peak_of_the_allocator(steps, name):
    trace = steps[name]["trace"]

    assert trace["peak_bytes"] == trace["allocator_peak_bytes"]
    assert sum(trace["parts"].values()) == sum(trace["layers"].values()) == trace["peak_bytes"]
    assert 0 <= trace["slack_bytes"] < trace["peak_bytes"]
    assert max(size for _, size in trace["curve"]) == trace["peak_bytes"]


def test_a_recorded_step_takes_what_others_take(steps):
    for step in steps.values():
        peak = step["trace"]["peak_bytes"] - step["left_bytes"]
        assert peak == pytest.approx(step["peak_bytes"], rel=0.05, abs=100_000)


def test_a_trace_names_layers_tensors_and_parts(steps):
    trace = steps["conv"]["trace"]
    # Parameters of 3·3·3·8+8, 3·3·8·8+8 and 12·12·8·10+10, four bytes each.
    weights = 4 * (224 + 584 + 11530)
    widest = next(t for t in trace["tensors"] if t["op"].endswith("Relu") and t["layer"] == "first")

    assert {"first", "second", "classes", "(inputs)"} <= set(trace["layers"])
    # By chance the peak falls while an update holds a weight and its copy.
    assert weights <= trace["parts"]["weights"] < 2 * weights + 16 * 256
    # Two slots for each weight; temporaries of the update may stand beside them at the peak.
    assert 2 * weights <= trace["parts"]["optimizer"] < 4 * weights + 64 * 256
    assert (widest["shape"], widest["dtype"]) == ([32, 14, 14, 8], "float32")
    assert widest["requested_bytes"] == 32 * 14 * 14 * 8 * 4


def test_layers_of_a_custom_train_step_are_named(steps):
    trace = steps["autoencoder"]["trace"]
    names = {name.rpartition("/")[2] for name in trace["layers"]}

    assert {"squeeze", "widen"} <= names or len({n for n in names if n.startswith("dense")}) == 2
    assert trace["parts"]["optimizer"] >= 4 * (32 * 8 + 8 + 8 * 32 + 32)


def test_an_optimizer_without_slots_holds_little(steps):
    adam, sgd = (steps[name]["trace"]["parts"]["optimizer"] for name in ("conv 64", "sgd"))

    assert sgd < adam / 10


def test_a_frozen_layer_has_no_slots(steps):
    parts = steps["frozen"]["trace"]["parts"]

    assert parts["weights"] > 512 * 512 * 4 > 20 * parts["optimizer"]


def test_mixed_precision_halves_what_the_layers_give(steps):
    tensors = steps["mixed"]["trace"]["tensors"]
    halves = [t for t in tensors if t["shape"] == [64, 14, 14, 8] and t["dtype"] == "float16"]

    assert {tensor["requested_bytes"] for tensor in halves} == {64 * 14 * 14 * 8 * 2}


def test_evaluating_and_predicting_hold_less_than_training(steps):
    train, evaluate, predict = (
        steps[name]["peak_bytes"] for name in ("conv 64", "evaluate", "predict")
    )

    assert max(predict, evaluate) < train / 2


def test_under_xla_the_whole_step_is_one_op(steps):
    assert not any("gradient_tape" in tensor["op"] for tensor in steps["xla"]["trace"]["tensors"])
