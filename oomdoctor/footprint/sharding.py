"""How many cards a model needs whose weights and optimizer state exceed any one card."""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.facts import Estimate
from oomdoctor.facts.estimate import FIXED_PARTS
from oomdoctor.facts.sharding import Sharding

HEADROOM = 0.9
"""Part of a card that is planned with: layouts never split evenly, and gathering a layer's weights
takes a buffer."""


def split_over_cards(
    estimate: Estimate | None, cards: Iterable[tuple[str, int | None]]
) -> Sharding | None:
    """Return how a model is split over the largest of some cards; one card if that holds it.

    What is split is what no batch size changes: weights, gradients and optimizer state. Activations
    are taken to be whole on each card, as with a mesh that has no batch dimension.

    Example:
        >>> parts = (("weights", 40), ("gradients", 40), ("optimizer", 80), ("activations", 5))
        >>> step = Estimate(batch_size=1, peak_bytes=165, low_bytes=0, high_bytes=0, parts=parts)
        >>> split = split_over_cards(step, [("small", 20), ("large", 80)])
        >>> split.card, split.cards, split.each_bytes
        ('large', 3, 59)

    Args:
        estimate: Of a step of the model.
        cards: Names, and the bytes that TensorFlow gets of each.
    """
    known = [(size, name) for name, size in cards if size]
    parts = dict(estimate.parts) if estimate is not None else {}
    if estimate is None or not known or "weights" not in parts:
        return None
    size, name = max(known)
    split = sum(parts.get(part, 0) for part in FIXED_PARTS)
    whole = max(0, estimate.peak_bytes - split)
    room = int(size * HEADROOM) - whole
    count = 1 if split <= size else -(-split // room) if room > 0 else None
    return Sharding(
        card=name,
        card_bytes=size,
        split_bytes=split,
        whole_bytes=whole,
        cards=count,
    )
