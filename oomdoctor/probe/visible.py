"""Which of the machine's GPUs CUDA, and so TensorFlow, would see, and in which order.

NVML lists every card by its place on the PCI bus and knows nothing of `CUDA_VISIBLE_DEVICES`.
The rules follow NVIDIA's CUDA programming guide (environment variables) and MIG user guide
(device enumeration), except that no published source was found for lists of mixed kinds and for
cards named twice; those two follow what CUDA is known to do:

- Unset, every card is visible; empty, none. Entries are indices, `GPU-` UUIDs or `MIG-` ids,
  where the beginning of an id is enough if it is unique.
- The list ends before the first entry that is not valid, such as -1. An entry of another kind
  than the first is not valid. A card that is named twice leaves no card visible.
- Indices follow `CUDA_DEVICE_ORDER`. By default the fastest card comes first, by a rule that
  NVIDIA does not publish; with equal cards, or with `PCI_BUS_ID`, the order is NVML's.
- A card in MIG mode is used through its slices. A process sees a single slice, the first one,
  and then no whole card beside it.

The last rule may be relaxed by future drivers; this module then shows too few slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One MIG slice of a card."""

    handle: Any
    uuid: str | None
    gpu_instance: int | None
    compute_instance: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One physical GPU."""

    index: int
    """Its number in NVML and in `nvidia-smi`."""
    handle: Any
    name: str
    uuid: str | None
    is_split: bool = False
    """True in MIG mode, where only the slices can be used."""
    slices: tuple[Slice, ...] = ()


Visible = tuple[Card, "Slice | None"]
"""A whole card, or a card and the slice of it that is seen."""


def choose_visible(
    cards: Sequence[Card], environ: Mapping[str, str]
) -> tuple[tuple[Visible, ...], tuple[str, ...]]:
    """Return the devices that CUDA would see, in its order, and notes on what was left out."""
    text = environ.get("CUDA_VISIBLE_DEVICES")
    notes: list[str] = []
    if text is None:
        chosen: list[Visible] = [(card, None) for card in cards]
    else:
        chosen = _follow_list(text, cards, notes)
    if chosen and _is_order_a_guess(text, cards, environ):
        notes.append(
            "The GPUs are of different models and CUDA puts the fastest first, so their order "
            "here is a guess; set CUDA_DEVICE_ORDER=PCI_BUS_ID to fix it."
        )
    return tuple(_apply_mig(chosen, notes)), tuple(notes)


def _follow_list(text: str, cards: Sequence[Card], notes: list[str]) -> list[Visible]:
    if not text.strip():
        notes.append(f"CUDA_VISIBLE_DEVICES is empty, which hides {_count(len(cards))}.")
        return []
    chosen: list[Visible] = []
    entries = [entry.strip() for entry in text.split(",")]
    for entry in entries:
        device = None
        if _kind(entry) == _kind(entries[0]):
            device = _find(entry, cards)
        if device is None:
            hidden = len(cards) - len({card.index for card, _ in chosen})
            notes.append(
                f"CUDA_VISIBLE_DEVICES={text!r} ends at {entry!r}, which names no GPU here, "
                f"and so hides {_count(hidden)}."
            )
            break
        if any(_is_same(device, other) for other in chosen):
            notes.append(f"CUDA_VISIBLE_DEVICES={text!r} names a GPU twice, so CUDA shows none.")
            return []
        chosen.append(device)
    return chosen


def _kind(entry: str) -> str:
    upper = entry.upper()
    return "MIG" if upper.startswith("MIG-") else "GPU" if upper.startswith("GPU-") else "index"


def _find(entry: str, cards: Sequence[Card]) -> Visible | None:
    kind = _kind(entry)
    if kind == "index":
        is_number = entry.isascii() and entry.isdigit() and len(entry) < 10
        # Entries count NVML's cards, also one that does not answer and is missing from the list.
        found: list[Visible] = [
            (card, None) for card in cards if is_number and card.index == int(entry)
        ]
    elif kind == "GPU":
        found = [(card, None) for card in cards if _starts(card.uuid, entry)]
    else:
        found = [
            (card, part) for card in cards for part in card.slices if _names(entry, card, part)
        ]
    return found[0] if len(found) == 1 else None


def _names(entry: str, card: Card, part: Slice) -> bool:
    """Say whether a `MIG-` entry names a slice, by its UUID or as card/instance/instance."""
    owner, slash, instances = entry[len("MIG-") :].partition("/")
    if not slash:
        return _starts(part.uuid, entry)
    return _starts(card.uuid, owner) and instances == f"{part.gpu_instance}/{part.compute_instance}"


def _starts(uuid: str | None, entry: str) -> bool:
    return uuid is not None and uuid.lower().startswith(entry.lower())


def _is_same(one: Visible, other: Visible) -> bool:
    return one[0].index == other[0].index and one[1] is other[1]


def _is_order_a_guess(text: str | None, cards: Sequence[Card], environ: Mapping[str, str]) -> bool:
    if environ.get("CUDA_DEVICE_ORDER", "").strip() == "PCI_BUS_ID":
        return False
    is_by_number = text is None or _kind(text.split(",")[0].strip()) == "index"
    return is_by_number and len({card.name for card in cards}) > 1


def _apply_mig(chosen: list[Visible], notes: list[str]) -> list[Visible]:
    usable: list[Visible] = []
    for card, part in chosen:
        if part is not None or not card.is_split:
            usable.append((card, part))
        elif card.slices:
            usable += [(card, one) for one in card.slices]
        else:
            notes.append(f"GPU {card.index} ({card.name}) is in MIG mode but has no slices.")
    first = next((one for one in usable if one[1] is not None), None)
    if first is None:
        return usable
    if len(usable) > 1:
        notes.append(
            f"A process sees one MIG slice at a time: of {len(usable)} devices only the first "
            "slice is shown. Name another one in CUDA_VISIBLE_DEVICES."
        )
    return [first]


def _count(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"
