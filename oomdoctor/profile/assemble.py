"""The lines of a recording, put together: phases closed, long runs thinned."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from oomdoctor.profile import records
from oomdoctor.profile.records import AnyLine
from oomdoctor.recording import (
    PHASES,
    End,
    GpuUse,
    Holding,
    Limit,
    PeakBreakdown,
    Phase,
    Recording,
    Sample,
    Step,
    Suspect,
    TensorAtPeak,
)

MOST_SAMPLES = 20_000
MOST_STEPS = 20_000
MOST_PHASES = 5_000
MOST_SUSPECTS = 1_000
MOST_NOTES = 100
MOST_GPU_USES = 500_000
"""Of all samples together: eight GPUs with eight processes each, in 8,000 samples."""

Item = TypeVar("Item", Sample, Step)


class _Fit:
    """What became known of `fit`, from one line to the next."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.batch_size: int | None = None
        self.epochs: int | None = None
        self.pipeline: Sequence[records.HoldingLine] = ()

    def add(self, line: records.Fit) -> None:
        """Take what a line says; what it does not say stays."""
        self.seconds = line.t if self.seconds is None else self.seconds
        self.batch_size = line.batch_size or self.batch_size
        self.epochs = line.epochs or self.epochs
        self.pipeline = line.pipeline or self.pipeline


class Assembly:
    """Takes lines in any order and gives the recording."""

    def __init__(self) -> None:
        self.run: records.Run | None = None
        self._samples: list[Sample] = []
        self._steps: list[Step] = []
        self._counts = {Sample: 0, Step: 0}
        self._phases: list[Phase] = []
        self._latest: dict[str, int] = {}
        """Where the latest phase of each kind is."""
        self._fit = _Fit()
        self._gpu_uses = 0
        self._suspicions: dict[tuple[str, str], records.Suspicion] = {}
        self._peak: PeakBreakdown | None = None
        self._error: str | None = None
        self._end: End | None = None
        self._notes: dict[str, None] = {}
        self._broken = 0

    def add(self, line: AnyLine | None) -> None:
        """Take one line."""
        if line is None:
            self._broken += 1
        elif isinstance(line, records.S):
            self._samples = self._kept(self._samples, self._sample(line), MOST_SAMPLES)
        elif isinstance(line, records.B):
            self._steps = self._kept(self._steps, _step(line), MOST_STEPS)
        elif isinstance(line, records.Begin):
            self._begin(line)
        elif isinstance(line, records.Finish):
            self._finish(line)
        else:
            self._add_rare(line)

    def _add_rare(self, line: AnyLine) -> None:
        if isinstance(line, records.Run):
            self.run = self.run or line
        elif isinstance(line, records.Fit):
            self._fit.add(line)
        elif isinstance(line, records.Suspicion):
            if len(self._suspicions) < MOST_SUSPECTS or (line.kind, line.what) in self._suspicions:
                self._suspicions[line.kind, line.what] = line
        elif isinstance(line, records.Peak):
            self._peak = _breakdown(line)
        elif isinstance(line, records.Failure):
            self._error = line.text
        elif isinstance(line, records.Note):
            if len(self._notes) < MOST_NOTES:
                self._notes[line.text] = None
        elif isinstance(line, records.Stop):
            self._end = End(
                seconds=line.t,
                exit_code=line.exit_code,
                signal=line.signal,
                killed_by=line.killed_by,
                peak_rss_bytes=line.peak_rss,
                oom_kills=line.oom_kills,
            )

    def _sample(self, line: records.S) -> Sample:
        self._gpu_uses += len(line.gpus)
        return _sample(line, with_gpus=self._gpu_uses <= MOST_GPU_USES)

    def _kept(self, items: list[Item], item: Item, most: int) -> list[Item]:
        self._counts[type(item)] += 1
        items.append(item)
        return list(thin(items, most)) if len(items) > 2 * most else items

    def _begin(self, line: records.Begin) -> None:
        if line.phase not in PHASES or len(self._phases) >= MOST_PHASES:
            return
        index = self._latest.get(line.phase)
        if index is not None:
            # Two phases of a kind do not overlap: the clock of a recording never goes back.
            former = self._phases[index]
            if line.t < (former.end_seconds or former.start_seconds):
                self._broken += 1
                return
            if former.end_seconds is None:
                self._phases[index] = replace(former, end_seconds=line.t)
        self._latest[line.phase] = len(self._phases)
        self._phases.append(
            Phase(
                kind=line.phase,
                label=line.label,
                start_seconds=line.t,
                end_seconds=None,
                number=line.number,
            )
        )

    def _finish(self, line: records.Finish) -> None:
        index = self._latest.get(line.phase)
        if index is None:
            return
        phase = self._phases[index]
        if phase.end_seconds is None and line.t >= phase.start_seconds:
            self._phases[index] = replace(phase, end_seconds=line.t)

    def recording(self) -> Recording:
        """Return everything that was taken."""
        run, fit = self.run, self._fit
        assert run is not None
        steps = tuple(thin(sorted(self._steps, key=_seconds), MOST_STEPS))
        samples = tuple(thin(sorted(self._samples, key=_seconds), MOST_SAMPLES))
        phases = tuple(_measured(phase, samples, steps) for phase in self._phases)
        notes = list(self._notes)
        if self._gpu_uses > MOST_GPU_USES:
            notes.append("GPU memory by process is shown for the beginning of the run only.")
        if self._broken:
            notes.append(f"{self._broken:,} lines of the recording could not be read.")
        if self._end is None:
            notes.append("The recording was cut off: how the run ended was not seen.")
        return Recording(
            command=tuple(run.command),
            started_at=run.started_at,
            samples=_placed(samples, steps, phases),
            steps=steps,
            phases=phases,
            limits=tuple(
                Limit(what=limit.what, limit_bytes=limit.limit_bytes, source=limit.source)
                for limit in run.limits
            ),
            end=self._end,
            sample_count=self._counts[Sample],
            step_count=self._counts[Step],
            rate_hz=run.rate_hz,
            error=self._error,
            suspects=_suspects(self._suspicions.values(), has_steps=bool(steps)),
            breakdown=self._peak,
            pipeline=_pipeline(fit.pipeline),
            fit_seconds=fit.seconds,
            batch_size=fit.batch_size,
            epochs=fit.epochs,
            versions=tuple(sorted(run.versions.items())),
            notes=tuple(notes),
        )


def thin(items: Sequence[Item], most: int) -> Sequence[Item]:
    """Return at most so many items, with the highest and the lowest of each stretch kept.

    Args:
        items: Samples or steps, in order.
        most: How many may be left, from 4 on.
    """
    if len(items) <= most:
        return items
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(items) - 1}

    def by_size(index: int) -> int:
        return items[index].rss_bytes or 0

    for number in range(stretches):
        stretch = range(number * len(items) // stretches, (number + 1) * len(items) // stretches)
        kept |= {max(stretch, key=by_size), min(stretch, key=by_size)}
    return [items[index] for index in sorted(kept)]


def _suspects(lines: Iterable[records.Suspicion], *, has_steps: bool) -> tuple[Suspect, ...]:
    """The suspects, the largest first. What grew before the first step was being built."""
    known = [line for line in lines if line.step or not has_steps]
    return tuple(sorted(map(suspect, known), key=lambda one: one.weight, reverse=True))


def suspect(line: records.Suspicion) -> Suspect:
    """Return a suspect as a value, from its line in the recording."""
    return Suspect(
        kind=line.kind,
        what=line.what,
        count=line.count,
        per_step=line.per_step,
        held_bytes=line.held_bytes,
        advice=line.advice,
    )


def _pipeline(stages: Sequence[records.HoldingLine]) -> tuple[Holding, ...]:
    return tuple(
        Holding(
            kind=stage.kind,
            label=stage.label,
            held_bytes=stage.held_bytes,
            is_batched=stage.is_batched,
        )
        for stage in stages
    )


def _seconds(item: Sample | Step) -> float:
    return item.seconds


def _sample(line: records.S, *, with_gpus: bool) -> Sample:
    return Sample(
        seconds=line.t,
        rss_bytes=line.rss,
        uss_bytes=line.uss,
        swap_bytes=line.swap,
        container_bytes=line.box,
        gpus=tuple(
            GpuUse(gpu=gpu, pid=pid, used_bytes=used)
            for gpu, pid, used in (line.gpus if with_gpus else ())
        ),
        processes=line.n,
    )


def _step(line: records.B) -> Step:
    return Step(
        seconds=line.t,
        step=line.step,
        epoch=line.epoch,
        rss_bytes=line.rss,
        allocator_bytes=line.now,
        allocator_peak_bytes=line.peak,
    )


def _breakdown(line: records.Peak) -> PeakBreakdown:
    return PeakBreakdown(
        step=line.step,
        peak_bytes=line.peak_bytes,
        parts=tuple(line.parts),
        layers=tuple(line.layers),
        tensors=tuple(
            TensorAtPeak(
                name=tensor.name,
                layer=tensor.layer,
                part=tensor.part,
                shape=None if tensor.shape is None else tuple(tensor.shape),
                dtype=tensor.dtype,
                size_bytes=tensor.size_bytes,
            )
            for tensor in line.tensors
        ),
        curve=tuple(line.curve),
    )


def _measured(phase: Phase, samples: Sequence[Sample], steps: Sequence[Step]) -> Phase:
    """The phase with the memory at its ends and its highest, from the samples inside it."""
    inside = [
        sample.rss_bytes for sample in _within(samples, phase) if sample.rss_bytes is not None
    ]
    count = len({step.step for step in _within(steps, phase)})
    if not inside:
        return replace(phase, steps=count or None)
    return replace(
        phase,
        steps=count or None,
        start_bytes=inside[0],
        end_bytes=inside[-1],
        peak_bytes=max(inside),
    )


def _within(items: Sequence[Item], phase: Phase) -> Sequence[Item]:
    first = bisect_right(items, phase.start_seconds, key=_seconds)
    if phase.end_seconds is None:
        return items[first:]
    return items[first : bisect_right(items, phase.end_seconds, key=_seconds)]


_INNER = ("epoch", "first_step", "validation", "checkpoint")


def _innermost(phases: Sequence[Phase]) -> str | None:
    """The label of the phase that says most about a moment."""
    if not phases:
        return None
    rank = {kind: number for number, kind in enumerate(_INNER, 1)}
    return max(phases, key=lambda phase: (rank.get(phase.kind, 0), phase.start_seconds)).label


def _placed(
    samples: Sequence[Sample], steps: Sequence[Step], phases: Sequence[Phase]
) -> tuple[Sample, ...]:
    """The samples with their phase and the allocator's figures at that moment."""
    placed = []
    open_: list[Phase] = []
    coming = sorted(phases, key=lambda phase: phase.start_seconds, reverse=True)
    for sample in samples:
        at = sample.seconds
        while coming and coming[-1].start_seconds <= at:
            open_.append(coming.pop())
        open_ = [phase for phase in open_ if phase.end_seconds is None or phase.end_seconds >= at]
        index = bisect_right(steps, at, key=_seconds) - 1
        step = steps[index] if index >= 0 else None
        placed.append(
            replace(
                sample,
                phase=_innermost(open_),
                allocator_bytes=step.allocator_bytes if step else None,
                allocator_peak_bytes=step.allocator_peak_bytes if step else None,
            )
        )
    return tuple(placed)
