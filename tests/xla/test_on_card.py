"""An estimate for a card: what is compiled, what is said of it, and what stands in for it."""

from __future__ import annotations

import dataclasses

import pytest

from oomdoctor.facts import Estimate, Gpu, Machine, Memory, OtherProgram
from oomdoctor.report.of_estimate import program_lines, tight_lines
from oomdoctor.units import GIB
from oomdoctor.xla.cards import find_card
from oomdoctor.xla.lowering import lowering
from oomdoctor.xla.on_card import INSTEAD, estimate_on_card
from oomdoctor.xla.plugin import find_plugin

T4 = find_card("t4")
EXECUTOR = Estimate(batch_size=4096, peak_bytes=200, low_bytes=190, high_bytes=220)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.tensorflow
def test_what_recomputing_saves_is_said():
    import keras
    from keras import layers

    wide = [layers.Dense(256, activation="gelu") for _ in range(12)]
    model = keras.Sequential([layers.Input((256,)), *wide])
    model.compile(optimizer="sgd", loss="mse")
    with lowering(model) as traced:
        step = traced.at(4096)
    small = dataclasses.replace(T4, memory_bytes=64 * 2**20)

    def on(card):
        return estimate_on_card(model, card, EXECUTOR, lower=lambda: step, plugin=find_plugin())

    found, roomy = on(small), on(T4)
    assert found.peak_bytes < 0.9 * found.without_recomputation_bytes
    assert found.notes[0].startswith("XLA recomputes activations to fit: ")
    assert found.notes[0].endswith("each step takes longer.")
    assert (roomy.without_recomputation_bytes, roomy.notes) == (None, ())
    assert [name for name, _ in found.allowances] == ["the next batch"]  # no convolution


@pytest.mark.tensorflow
def test_a_compiler_that_ends_leaves_the_executors_estimate(cnn, cnn_at_32, monkeypatch):
    monkeypatch.setattr("oomdoctor.xla.compiler.MEMORY_BYTES", 2**20)
    monkeypatch.setattr("oomdoctor.xla.compiler.MEMORY_PER_BYTE", 0)

    found = estimate_on_card(
        cnn, T4, EXECUTOR, lower=lambda: cnn_at_32, jit="on", plugin=find_plugin()
    )

    assert (found.program, found.peak_bytes) == ("executor", EXECUTOR.peak_bytes)
    assert found.notes[0].startswith("XLA's compiler ")
    assert found.notes[1] == INSTEAD


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (20.3, 22.0, "with XLA it fits the Tesla T4: 11.3 GiB of 13.4 GiB; "),
        (10.0, 12.0, None),
    ],
)
def test_two_programs_that_differ_in_what_fits_are_one_line(low, high, says):
    other = OtherProgram(
        program="executor",
        peak_bytes=int(20.9 * GIB),
        low_bytes=int(low * GIB),
        high_bytes=int(high * GIB),
    )
    estimate = Estimate(
        batch_size=12,
        peak_bytes=int(11.3 * GIB),
        low_bytes=11 * GIB,
        high_bytes=12 * GIB,
        program="xla",
        device="Tesla T4",
        other=other,
    )
    gpu = Gpu(index=0, name="Tesla T4", total_bytes=15 * GIB, free_bytes=int(13.4 * GIB))
    machine = Machine(ram=Memory(total_bytes=None, available_bytes=None), gpus=(gpu,))

    told = [line.text for line in program_lines(estimate, machine)]

    assert told == ([] if says is None else [f"{says}without it 20.9 GiB, which does not fit"])


def test_what_decides_is_said_where_it_is_too_close():
    estimate = Estimate(
        batch_size=12,
        peak_bytes=12 * GIB,
        low_bytes=12 * GIB,
        high_bytes=14 * GIB,
        program="xla",
        device="Tesla T4",
        allowances=(("cuDNN's scratch", GIB), ("the next batch", GIB // 2)),
    )
    gpu = Gpu(index=0, name="Tesla T4", total_bytes=15 * GIB, free_bytes=13 * GIB)
    machine = Machine(ram=Memory(total_bytes=None, available_bytes=None), gpus=(gpu,))

    (line,) = tight_lines(estimate, machine)

    assert line.text == (
        "the program leaves 1.00 GiB of the GPU free, and up to 2.00 GiB may be needed beside it: "
        "cuDNN's scratch and the next batch"
    )
    assert tight_lines(dataclasses.replace(estimate, high_bytes=12 * GIB), machine) == []


def test_the_line_is_the_same_if_xla_is_the_other_program():
    xla = OtherProgram(program="xla", peak_bytes=11 * GIB, low_bytes=10 * GIB, high_bytes=12 * GIB)
    estimate = Estimate(
        batch_size=12, peak_bytes=20 * GIB, low_bytes=19 * GIB, high_bytes=21 * GIB, other=xla
    )
    gpu = Gpu(index=0, name="Tesla T4", total_bytes=15 * GIB, free_bytes=13 * GIB)
    machine = Machine(ram=Memory(total_bytes=None, available_bytes=None), gpus=(gpu,))

    told = [line.text for line in program_lines(estimate, machine)]

    assert told == [
        "with XLA it fits this GPU: 11.0 GiB of 13.0 GiB; without it 20.0 GiB, which does not fit"
    ]


@pytest.mark.tensorflow
def test_what_xla_would_take_is_compiled_where_it_may_decide(cnn, cnn_at_32):
    """The user turned XLA off, and the executor's step may not fit."""
    tight = dataclasses.replace(EXECUTOR, batch_size=32, high_bytes=T4.memory_bytes)

    def on(executor, **how):
        return estimate_on_card(
            cnn, T4, executor, lower=lambda: cnn_at_32, plugin=find_plugin(), **how
        )

    found = on(tight, jit="off")
    assert (found.program, found.peak_bytes) == ("executor", EXECUTOR.peak_bytes)
    assert found.other.program == "xla"
    assert found.other.peak_bytes == on(tight).peak_bytes
    assert on(EXECUTOR, jit="off").other is None  # it fits as it is
    assert on(tight, jit="off", brief=True).other is None
