"""What a report says of an estimate: which device is meant, and what decides a tight one."""

from dataclasses import replace

import pytest

from oomdoctor import probe_machine
from oomdoctor.api.conclude import conclude
from oomdoctor.facts import Estimate, Facts, LayerBytes
from oomdoctor.report import text
from oomdoctor.report.views import view_of
from oomdoctor.units import GIB, MIB

LIKELY = Estimate(
    batch_size=8,
    peak_bytes=2 * GIB - 100 * MIB,
    low_bytes=2 * GIB - 200 * MIB,
    high_bytes=2 * GIB + 100 * MIB,
    target="gpu",
    layers=(
        LayerBytes(name="encoder/query", bytes_at_peak=GIB, backward_bytes=GIB // 4),
        LayerBytes(name="(inputs)", bytes_at_peak=GIB - 100 * MIB, backward_bytes=0),
    ),
)


def text_of(estimate, vram):
    facts = Facts(machine=probe_machine(ram="64GiB", vram=vram), estimate=estimate)
    return " ".join(text.render(view_of(conclude("estimate", facts, rules=()))).split())


@pytest.mark.parametrize(
    ("vram", "answer"),
    [("8GiB", "It fits"), ("3GiB", "It is tight"), ("1GiB", "It does not fit")],
)
def test_the_verdict_has_three_outcomes(vram, answer):
    around = replace(LIKELY, low_bytes=int(1.9 * GIB), high_bytes=int(3.5 * GIB))
    said = text_of(around, vram)
    assert answer in said
    assert ("Tight" in said) == (answer == "It is tight")


def test_what_decides_a_tight_verdict_is_named():
    wide = replace(LIKELY, high_bytes=4 * GIB, low_bytes=GIB)
    assert "the order in which operations run decides" in text_of(wide, "3GiB")
    scratch = replace(wide, allowances=(("cuDNN's scratch", 2 * GIB),))
    assert "cuDNN's scratch, at most 2.00 GiB, decides" in text_of(scratch, "3GiB")
    guessed = replace(wide, unknown_ops=(("NobodyKnows", 2 * GIB),))
    assert "NobodyKnows, at most 2.00 GiB, decides" in text_of(guessed, "3GiB")


@pytest.mark.parametrize(("target", "said"), [("gpu", "a GPU, without"), ("cpu", "a CPU, whose")])
def test_the_report_says_which_device_is_meant(target, said):
    assert said in text_of(replace(LIKELY, target=target), "8GiB")


def test_forward_and_backward_are_told_apart():
    said = text_of(LIKELY, "8GiB")
    assert "backward" in said
    assert "256 MiB" in said
    untold = tuple(replace(layer, backward_bytes=None) for layer in LIKELY.layers)
    assert "backward" not in text_of(replace(LIKELY, layers=untold), "8GiB")
