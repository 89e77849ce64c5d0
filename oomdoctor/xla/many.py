"""One step and several cards → the step compiled for each, in as few compilations as are honest.

XLA decides by the compute capability how it lowers a program, and by a card's memory whether it
recomputes activations. The other facts of a card hardly matter: with memory to spare, cards of the
same compute capability differed by 0.3 % at most, for ResNet50 and MobileNetV2 in two precisions
(`tests/benchmarks/xla_sharing.py`). So the step is compiled for the card with the most memory, and
the result serves every card of that compute capability on which XLA would not recompute. The
others have a compilation of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

from oomdoctor.probe.machine import probe_machine
from oomdoctor.units import MIB
from oomdoctor.xla.cache import compile_or_recall
from oomdoctor.xla.cards import Card
from oomdoctor.xla.compiler import Compiled
from oomdoctor.xla.errors import XlaError
from oomdoctor.xla.plugin import Plugin, find_plugin

ROOMY = 0.65
"""Part of a card up to which XLA recomputes nothing. It does where temporaries exceed 95 % of what
arguments and results leave of 80 % of the card, by its own count of them. So it begins between 76 %
and 80 % of the card, less what that count is too high; in steps with much and with little beside
the temporaries it began at 73 % to 78 %."""

BASE_BYTES, BYTES_PER_BYTE = 600 * MIB, 128
"""RAM of one compiler: 570 MiB for a program of 0.2 MiB, 2,145 MiB for one of 16.6 MiB."""

AT_ONCE = 2

Answer = Compiled | XlaError


def compile_for_cards(
    hlo: bytes,
    cards: Sequence[Card],
    *,
    plugin: Plugin | None = None,
    watch: Callable[[Card], None] | None = None,
) -> dict[str, Answer]:
    """Return the step compiled for each card, by the card's name, or why XLA has no answer.

    Args:
        hlo: The step, as `lowering` returns it.
        cards: The cards; none need be there.
        plugin: The compiler; None takes the one that is installed.
        watch: Called with each card when it is about to be compiled for; not from the main thread.

    Raises:
        PluginMissing: If there is no compiler.
        PluginUnsupported: If its version was not tested.
    """
    plugin = plugin or find_plugin()
    groups: dict[tuple[int, int], list[Card]] = {}
    each = {card.name: card for card in cards}.values()  # two machines may have the same card
    for card in sorted(each, key=lambda card: -card.memory_bytes):
        groups.setdefault(card.compute_capability, []).append(card)
    cancelled = Event()

    def compile_one(card: Card) -> tuple[str, Answer]:
        if watch is not None and not cancelled.is_set():
            watch(card)
        try:
            found = compile_or_recall(hlo, card, plugin=plugin, cancelled=cancelled)
        except XlaError as error:
            return card.name, error
        return card.name, found

    with ThreadPoolExecutor(_at_once(len(hlo))) as pool:
        try:
            answers = dict(pool.map(compile_one, [group[0] for group in groups.values()]))
            alone = []
            for first, *others in groups.values():
                for card in others:
                    shared = _shared(answers[first.name], card)
                    if shared is None:
                        alone.append(card)
                    else:
                        answers[card.name] = shared
            answers.update(pool.map(compile_one, alone))
        except BaseException:
            cancelled.set()  # Ctrl-C: compilers that run end within a moment, others never start
            pool.shutdown(cancel_futures=True)
            raise
    return {card.name: answers[card.name] for card in cards}


def _shared(answer: Answer, card: Card) -> Answer | None:
    """Return the answer for a larger card where it serves this one too."""
    if isinstance(answer, XlaError):
        return answer  # a compiler that hangs would hang for each of them
    if answer.recomputes or answer.peak_bytes > ROOMY * card.memory_bytes:
        return None
    return replace(answer, card=card.name, seconds=0.0)


def _at_once(hlo_bytes: int) -> int:
    """Return how many compilers may run side by side on this machine."""
    machine = probe_machine(with_gpus=False)
    free = machine.ram.available_bytes
    room = AT_ONCE if free is None else free // (BASE_BYTES + BYTES_PER_BYTE * hlo_bytes)
    return max(1, min(AT_ONCE, machine.cpu_count or 1, room))
