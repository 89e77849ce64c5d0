"""The peak of a stream of allocations, and what was alive at it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.estimate.scopes import Scopes, layer_of
from oomdoctor.trace.explain import Holder, StepNames, explain, place_of
from oomdoctor.trace.replay import CURVE_POINTS, Event, find_peak, in_order, scratch_as_temp


def stream(*changes, start=0):
    """Return events from (op, size) pairs; a size below zero releases that op's buffer."""
    in_use, events, addresses = start, [], {}
    for position, (op, size) in enumerate(changes):
        in_use += size
        address = addresses.setdefault(op, len(addresses) + 1)
        events.append(
            Event(
                at_ps=position * 1000,
                thread=1,
                address=address,
                allocated_bytes=abs(size),
                requested_bytes=abs(size),
                in_use_bytes=in_use,
                is_release=size < 0,
                op=op if size > 0 else None,
                kind="output",
            )
        )
    return events


def test_peak_holds_what_was_not_yet_released():
    peak = find_peak(stream(("a", 512), ("b", 256), ("a", -512), ("c", 256)), start_bytes=100)

    assert peak.peak_bytes == 868
    assert [event.op for event in peak.held] == ["a", "b"]


def test_release_of_something_older_lowers_what_was_there_before():
    events = stream(("old", -256), ("new", 1024), start=512)

    peak = find_peak(events, start_bytes=512)

    assert (peak.peak_bytes, peak.freed_bytes) == (1280, 256)


def test_a_step_that_only_releases_peaks_at_its_start():
    peak = find_peak(stream(("old", -256), start=512), start_bytes=512)

    assert (peak.peak_bytes, peak.held) == (512, ())


def test_events_of_one_moment_are_put_in_the_order_of_the_running_total():
    first, second, third = stream(("a", 256), ("b", 512), ("a", -256))
    same_time = [replace(event, at_ps=5) for event in (first, third, second)]

    assert [event.in_use_bytes for event in in_order(same_time)] == [256, 768, 512]


def test_scratch_is_told_from_an_output_that_was_asked_for_as_a_temporary():
    scratch, handed_on, other = stream(("conv", 256), ("mean", 256), ("next", 256))
    scratch = replace(scratch, kind="temp")
    handed_on = replace(handed_on, kind="temp")
    released = stream(("conv", -256))[0]

    events = scratch_as_temp([scratch, released, handed_on, other])

    assert [event.kind for event in events if not event.is_release] == ["temp", "output", "output"]


def test_scratch_asked_for_before_the_output_of_the_same_op_stays_scratch():
    scratch, output = stream(("conv", 256), ("conv2", 256))
    events = [
        replace(scratch, kind="temp"),
        replace(output, op="conv"),
        stream(("conv", -256))[0],
    ]

    assert scratch_as_temp(events)[0].kind == "temp"


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 2000)), max_size=60),
    st.integers(0, 5000),
)
def test_parts_and_layers_add_up_to_the_highest_total(choices, start):
    alive, changes, total, highest = {}, [], start, start
    for name, size in choices:
        change = -alive.pop(name) if name in alive else size
        if change > 0:
            alive[name] = size
        changes.append((f"op{name}", change))
        total += change
        highest = max(highest, total)
    names = StepNames(holders=(Holder("w", "weights", "l", (8,), "float32", 32),))

    trace = explain(
        stream(*changes, start=start), names, start_bytes=start, allocator_peak_bytes=highest
    )

    assert trace.peak_bytes == highest
    assert sum(trace.parts.values()) == sum(trace.layers.values()) == highest
    assert max((size for _, size in trace.curve), default=start) == max(
        [highest] if highest > start else [size for _, size in trace.curve] or [start]
    )


def test_a_long_curve_is_thinned_and_keeps_its_peak():
    changes = [change for i in range(3000) for change in ((f"{i}", 256 + i), (f"{i}", -256 - i))]

    trace = explain(stream(*changes), StepNames(), start_bytes=0, allocator_peak_bytes=0)

    assert len(trace.curve) <= CURVE_POINTS
    assert max(size for _, size in trace.curve) == trace.peak_bytes == 256 + 2999


KERNEL = Holder("conv/kernel", "weights", "conv", (3, 3), "float32", 36, trainable=True)
NAMES = StepNames(
    scopes=Scopes({"model_1/conv_2": "conv", "model_1": "model"}, {"adam"}, "model"),
    writes={"adam/AssignSubVariableOp": 0},
    holders=(KERNEL,),
)
SHAPES = {None: frozenset({(3, 3)}), "conv": frozenset({(3, 3)})}


@pytest.mark.parametrize(
    ("op", "kind", "shape", "part", "layer"),
    [
        ("model_1/conv_2/Relu", "output", "[8,4]", "activations", "conv"),
        ("gradient_tape/model_1/conv_2/Mul", "output", "[8,4]", "activations", "conv"),
        ("gradient_tape/model_1/conv_2/Filter", "output", "[3,3]", "gradients", "conv"),
        ("gradient_tape/model_1/conv_2/Filter", "temp", "[99]", "workspace", "conv"),
        ("while/body/_9/model_1/conv_2/MatMul", "output", "[8]", "activations", "conv"),
        ("adam/Mul_3", "output", "[3,3]", "optimizer", "(optimizer)"),
        ("adam/AssignSubVariableOp", "temp", "[3,3]", "weights", "conv"),
        ("compile_loss/mse/Mean", "output", "[]", "activations", "(loss and metrics)"),
        (None, None, None, "workspace", None),
    ],
)
def test_an_allocation_belongs_to_a_part_and_a_layer(op, kind, shape, part, layer):
    event = replace(stream(("x", 256))[0], op=op, kind=kind, shape=shape)

    place = place_of(event, NAMES, SHAPES)

    assert (place.part, place.layer) == (part, layer)


def test_the_deepest_scope_names_the_layer():
    assert layer_of(["model_1", "conv_2", "Relu"], NAMES.scopes.layers) == "conv"
    assert layer_of(["model_1", "add"], NAMES.scopes.layers) == "model"
    assert layer_of(["conv_2", "Relu"], NAMES.scopes.layers) is None


def test_a_variable_that_an_update_replaced_is_counted_once():
    events = stream(("adam/AssignSubVariableOp", 256), ("old", -256), ("x", 512), start=256)

    trace = explain(events, NAMES, start_bytes=256, allocator_peak_bytes=768)

    assert trace.parts["weights"] == 256
    assert sum(trace.parts.values()) == trace.peak_bytes == 768
