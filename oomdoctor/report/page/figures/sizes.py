"""How large the samples of a dataset are, as a histogram, and what Keras's resize makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oomdoctor.facts import FileGroup, Footprint, Inventory
from oomdoctor.report.page.markup import Safe, tag
from oomdoctor.report.page.parts import bar
from oomdoctor.units import dtype_bytes, element_count, format_bytes

KERAS_SIDE = 256
"""`image_dataset_from_directory` resizes to 256×256 by default."""
MAX_BINS = 40


def histogram(inventory: Inventory, footprint: Footprint | None) -> Safe | None:
    """Return how many samples there are of each size; None where all that is known is one size."""
    groups = [
        group for group in inventory.groups if group.role == "inputs" and group.shapes is not None
    ]
    images = [group for group in groups if group.kind == "image"]
    shown = images or groups
    sizes = _added(shown)
    distinct = max((group.shapes.distinct for group in shown if group.shapes), default=0)
    if not sizes or (not images and distinct < 2):
        return None
    channels = _channels(shown) if images else None
    width = _width(shown, footprint)
    only = _only_shape(shown)
    largest = max(sizes.values()) or 1
    whole = sum(sizes.values()) or 1
    rows = [
        tag(
            "li",
            tag(
                "div",
                tag("span", only or _label(low, channels, width), class_="name"),
                bar(count / largest),
                tag("span", f"{count:,}", class_="size"),
                tag("span", f"{count / whole:.0%}" if count / whole >= 0.005 else "<1%",
                    class_="share"),
                class_="row",
            ),
        )
        for low, count in _joined(sorted(sizes.items()))
    ]  # fmt: skip
    return tag(
        "div",
        tag("ul", *rows),
        _resized(sizes, channels, footprint) if images else None,
        _not_all(shown),
        class_="tree sizes",
    )


def _only_shape(groups: Sequence[FileGroup]) -> str | None:
    """Return the shape of every sample, where all have the same."""
    spreads = [group.shapes for group in groups if group.shapes is not None]
    shapes = {spread.most_common for spread in spreads}
    if len(shapes) > 1 or any(spread.distinct > 1 for spread in spreads):
        return None
    return "×".join(map(str, *shapes))


def _added(groups: Sequence[FileGroup]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for group in groups:
        assert group.shapes is not None
        for low, count in group.shapes.sizes:
            sizes[low] = sizes.get(low, 0) + count
    return sizes


def _joined(sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return at most so many bins: small ones at the start become one."""
    if len(sizes) <= MAX_BINS:
        return sizes
    cut = len(sizes) - MAX_BINS
    return [(sizes[0][0], sum(count for _, count in sizes[: cut + 1])), *sizes[cut + 1 :]]


def _channels(images: Sequence[FileGroup]) -> int:
    shapes = [group.shapes.most_common for group in images if group.shapes]
    return next((shape[-1] for shape in shapes if len(shape) == 3), 1)


def _width(groups: Sequence[FileGroup], footprint: Footprint | None) -> int:
    """Return the bytes of one element as it is loaded."""
    names = {group.name for group in groups}
    loaded = [g.dtype for g in footprint.groups if g.name in names] if footprint else []
    dtype = next((name for name in [*loaded, *(g.dtype for g in groups)] if name), None)
    return dtype_bytes(dtype) if dtype else 4


def _label(low: int, channels: int | None, width: int) -> str:
    high = low * math.sqrt(2)
    if channels is None:
        return f"{format_bytes(low * width)} to {format_bytes(int(high * width))}"
    start, end = (round(math.sqrt(elements / channels)) for elements in (low, high))
    return f"{start}×{start} to {end}×{end}, {format_bytes(low * width)} and up"


def _resized(sizes: dict[int, int], channels: int | None, footprint: Footprint | None) -> Safe:
    """Return what the loader of Keras makes of images of any size."""
    shape = (KERAS_SIDE, KERAS_SIDE, channels or 3)
    loaded = element_count(shape)
    whole = sum(sizes.values()) or 1
    smaller = sum(count for low, count in sizes.items() if low * math.sqrt(2) <= loaded)
    each = format_bytes(loaded * 4)
    detail = (
        f"image_dataset_from_directory resizes every image to {KERAS_SIDE}×{KERAS_SIDE} unless "
        f"image_size says otherwise: {each} each as float32"
    )
    if footprint is not None and footprint.keras_loader_bytes is not None:
        detail += f", {format_bytes(footprint.keras_loader_bytes)} in all"
        if footprint.native_bytes is not None:
            detail += f" instead of {format_bytes(footprint.native_bytes)} at their own size"
    detail += "."
    if smaller:
        detail += f" {smaller / whole:.0%} of the images are smaller than that and are enlarged."
    return tag("p", detail, class_="hint")


def _not_all(groups: Sequence[FileGroup]) -> Safe | None:
    if all(group.is_exact for group in groups):
        return None
    return tag("p", "Counted over the files that were read: a sample of all.", class_="hint")
