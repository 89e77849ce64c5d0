"""A recorded run as plain values: the `profile` section of the envelope, and its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from oomdoctor.comparison import Comparison
from oomdoctor.recording import Profile, Recording, Sample

MOST_SAMPLES = 500
"""In the envelope; the recording itself has them all, and `to_frame` gives them."""


def plain_profile(profile: Profile) -> dict[str, Any]:
    """Return a profile as plain values, with a thinned timeline."""
    recording = profile.recording
    return {
        "folder": profile.folder,
        **plain_recording(recording),
        "growths": [
            {**asdict(growth), "grown_bytes": growth.grown_bytes} for growth in profile.growths
        ],
        "forecasts": [asdict(forecast) for forecast in profile.forecasts],
        "timeline": timeline(_thinned(recording.samples)),
    }


def plain_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return what changed between two runs as plain values."""
    return {
        "names": list(comparison.names),
        "summary": comparison.summary,
        **{
            kind: [
                {**asdict(change), "difference": change.difference, "same": change.is_same}
                for change in getattr(comparison, kind)
            ]
            for kind in ("changes", "phases", "layers")
        },
    }


def plain_recording(recording: Recording) -> dict[str, Any]:
    """Return what was seen of a run as plain values, without its timeline."""
    breakdown = recording.breakdown
    return {
        "command": list(recording.command),
        "started_at": recording.started_at,
        "seconds": recording.seconds,
        "rate_hz": recording.rate_hz,
        "sample_count": recording.sample_count,
        "step_count": recording.step_count,
        "peak_rss_bytes": recording.peak_rss_bytes,
        "end": None if recording.end is None else asdict(recording.end),
        "limits": [asdict(limit) for limit in recording.limits],
        "phases": [asdict(phase) for phase in recording.phases],
        "pipeline": [asdict(stage) for stage in recording.pipeline],
        "suspects": [asdict(suspect) for suspect in recording.suspects],
        "breakdown": None
        if breakdown is None
        else {
            **asdict(breakdown),
            "parts": dict(breakdown.parts),
            "layers": [{"name": name, "bytes_at_peak": size} for name, size in breakdown.layers],
        },
        "batch_size": recording.batch_size,
        "epochs": recording.epochs,
    }


def timeline(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Return one row for each sample; all processes of a GPU are summed up."""
    return [
        {
            "seconds": sample.seconds,
            "rss_bytes": sample.rss_bytes,
            "uss_bytes": sample.uss_bytes,
            "swap_bytes": sample.swap_bytes,
            "container_bytes": sample.container_bytes,
            "gpu_bytes": sum(use.used_bytes for use in sample.gpus) if sample.gpus else None,
            "allocator_bytes": sample.allocator_bytes,
            "allocator_peak_bytes": sample.allocator_peak_bytes,
            "processes": sample.processes,
            "phase": sample.phase,
        }
        for sample in samples
    ]


def _thinned(samples: Sequence[Sample]) -> list[Sample]:
    """The highest sample of each stretch, with the first and the last."""
    if len(samples) <= MOST_SAMPLES:
        return list(samples)
    stretches = MOST_SAMPLES - 2
    kept = {0, len(samples) - 1}
    for number in range(stretches):
        stretch = range(
            number * len(samples) // stretches, (number + 1) * len(samples) // stretches
        )
        kept.add(max(stretch, key=lambda index: samples[index].rss_bytes or 0))
    return [samples[index] for index in sorted(kept)]
