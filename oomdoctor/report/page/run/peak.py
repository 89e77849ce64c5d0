"""What held the memory: the traced step by part, layer and tensor, and the pipeline's stages."""

from __future__ import annotations

from oomdoctor.facts import Diagnosis
from oomdoctor.recording import PeakBreakdown, Profile
from oomdoctor.report.page.markup import Safe, join, tag
from oomdoctor.report.page.parts import bars, folded, section, table
from oomdoctor.units import format_bytes

MAX_LAYERS = 15


def breakdown(profile: Profile, diagnosis: Diagnosis | None) -> Safe | None:
    """Return what held the peak, as far as it is known."""
    recording = profile.recording
    pieces = []
    if recording.breakdown is not None:
        pieces.append(_of_step(recording.breakdown))
    stages = [stage for stage in recording.pipeline if stage.held_bytes]
    if stages:
        rows = [(stage.label, stage.held_bytes or 0) for stage in stages]
        whole = sum(size for _, size in rows)
        pieces.append(
            join(
                tag("h3", "Memory of the tf.data pipeline once its buffers are full"),
                bars(rows, whole),
            )
        )
    if diagnosis is not None and diagnosis.holders:
        holders = list(diagnosis.holders)
        whole = sum(size for _, size in holders)
        pieces.append(join(tag("h3", "Memory in use, from the log"), bars(holders, whole)))
    if not pieces:
        return None
    if recording.breakdown is None and recording.steps:
        detail = "Run again with --trace-step 3 to see memory by layer and tensor."
        pieces.append(tag("p", detail, class_="hint"))
    return section("peak", "Memory at the peak", *pieces)


def _of_step(traced: PeakBreakdown) -> Safe:
    whole = traced.peak_bytes
    parts = [(name, size) for name, size in traced.parts if size]
    layers = list(traced.layers)
    shown, more = layers[:MAX_LAYERS], layers[MAX_LAYERS:]
    tensors = [
        (
            tag("code", tensor.name),
            tensor.layer or "–",
            tensor.part,
            "–" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "scalar",
            tensor.dtype or "–",
            format_bytes(tensor.size_bytes),
        )
        for tensor in traced.tensors
    ]
    headers = ("tensor", "layer", "part", "shape", "dtype", "size")
    title = f"Device memory at the peak of step {traced.step}: {format_bytes(whole)}"
    return join(
        tag("p", title, class_="lead"),
        tag(
            "div",
            tag("div", tag("h3", "By part"), bars(parts, whole)),
            tag(
                "div",
                tag("h3", "By layer"),
                bars(shown, whole),
                folded(f"{len(more)} more layers", bars(more, whole)) if more else None,
            ),
            class_="columns",
        ),
        tag("div", class_="chart small", data_chart="step") if len(traced.curve) > 1 else None,
        folded(f"The {len(tensors)} largest tensors", table(headers, tensors, "     n"))
        if tensors
        else None,
    )
