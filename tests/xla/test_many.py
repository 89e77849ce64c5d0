"""Several cards at once: how often it is compiled, and that the answers are each card's own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections import Counter

import psutil
import pytest

from oomdoctor.facts import Estimate
from oomdoctor.xla.cache import compile_or_recall
from oomdoctor.xla.cards import CARDS, find_card
from oomdoctor.xla.errors import NotCompilable
from oomdoctor.xla.lowering import lowering
from oomdoctor.xla.many import compile_for_cards
from oomdoctor.xla.on_card import INSTEAD, estimate_on_card, estimate_on_cards
from oomdoctor.xla.plugin import find_plugin

pytestmark = pytest.mark.tensorflow

T4 = find_card("t4")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def wide_step():
    """Dense layers whose activations take some 60 MiB."""
    import keras
    from keras import layers

    wide = [layers.Dense(256, activation="gelu") for _ in range(12)]
    model = keras.Sequential([layers.Input((256,)), *wide])
    model.compile(optimizer="sgd", loss="mse")
    with lowering(model) as traced:
        return traced.at(4096).hlo


def _compilers():
    found = []
    for child in psutil.Process().children(recursive=True):
        # One that has just ended has no command line any more.
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if "child.py" in " ".join(child.cmdline()) else []
    return found


def test_one_compilation_serves_all_cards_of_a_compute_capability(cnn_at_32):
    compiled_for = []

    found = compile_for_cards(cnn_at_32.hlo, [*CARDS, CARDS[0]], watch=compiled_for.append)

    assert list(found) == [card.name for card in CARDS]
    assert len(compiled_for) == len({card.compute_capability for card in CARDS})
    assert all(found[card.name].card == card.name for card in CARDS)
    # The largest card of each was compiled for, and a smaller one would have had the same.
    assert "a6000" in {card.name for card in compiled_for}
    own = compile_or_recall(cnn_at_32.hlo, find_card("rtx3060-laptop"))
    assert own.seconds > 0
    assert found["rtx3060-laptop"].peak_bytes == pytest.approx(own.peak_bytes, rel=0.005)


def test_a_card_that_is_short_of_memory_is_compiled_for_by_itself(wide_step):
    small = dataclasses.replace(T4, name="small", memory_bytes=64 * 2**20)
    compiled_for = Counter()

    found = compile_for_cards(
        wide_step, [small, T4], watch=lambda card: compiled_for.update([card.name])
    )

    assert compiled_for == {"t4": 1, "small": 1}
    assert (found["small"].recomputes, found["t4"].recomputes) == (True, False)
    assert found["small"].peak_bytes < 0.9 * found["t4"].peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("tenths", range(3, 10))
def test_no_card_shares_an_answer_that_it_would_not_have(wide_step, tenths):
    """From a card that the step fills to a third to one that it fills."""
    peak = compile_or_recall(wide_step, T4).peak_bytes
    small = dataclasses.replace(T4, name="small", memory_bytes=peak * 10 // tenths)

    found = compile_for_cards(wide_step, [small, T4])

    assert found["small"].memory == compile_or_recall(wide_step, small).memory


def test_a_program_that_cannot_be_compiled_is_tried_once_and_is_each_cards_error():
    tried = []

    found = compile_for_cards(b"no program", [T4, find_card("rtx2080ti")], watch=tried.append)

    assert len(tried) == 1
    assert [type(answer) for answer in found.values()] == [NotCompilable, NotCompilable]


def test_ctrl_c_ends_the_compilers_and_starts_no_more(wide_step):
    started = []

    def interrupt(card):
        started.append(card)
        if len(started) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        compile_for_cards(wide_step, CARDS, watch=interrupt)

    assert len(started) < len({card.compute_capability for card in CARDS})
    assert not _compilers()


def test_estimates_are_those_of_each_card(cnn, cnn_at_32):
    executor = Estimate(batch_size=32, peak_bytes=200, low_bytes=190, high_bytes=220)
    cards = [T4, find_card("a100-40gb")]

    def lower():
        return cnn_at_32

    found = estimate_on_cards(cnn, cards, executor, lower=lower, plugin=find_plugin())

    for card, estimate in zip(cards, found, strict=True):
        alone = estimate_on_card(cnn, card, executor, lower=lower, plugin=find_plugin())
        assert estimate == alone
    assert [estimate.device for estimate in found] == [card.title for card in cards]


def test_without_a_compiler_each_card_has_the_executors_estimate(cnn, cnn_at_32):
    executor = Estimate(batch_size=32, peak_bytes=200, low_bytes=190, high_bytes=220)

    found = estimate_on_cards(
        cnn, CARDS, executor, lower=lambda: cnn_at_32, missing="There is none."
    )

    assert {estimate.notes for estimate in found} == {("There is none.", INSTEAD)}
    assert len(found) == len(CARDS)
