"""`MemoryCallback`: memory of host and device while `fit` runs, and a warning before it ends.

The class can be imported without Keras. Making one gives a real `keras.callbacks.Callback`: the
base class is put in at that moment.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
from typing import Any

from oomdoctor.errors import MissingPackageError
from oomdoctor.profile import assemble
from oomdoctor.profile.census import Census
from oomdoctor.profile.conclude import profile_of
from oomdoctor.profile.live_file import LiveFile
from oomdoctor.profile.meter import Meter
from oomdoctor.recording import Limit, Phase, Profile, Recording, Step, Suspect
from oomdoctor.units import format_bytes, parse_size

FIRST_CHECK_AT = 40
"""Steps that must have been seen."""
SHARE_OF_TIME = 0.005
LEAST_SECONDS_BETWEEN_STEPS = 0.02
COUNTS_TO_TELL = 3
STOP_AT_SHARE = 0.92
"""Of the limit: saving the model needs some of the rest."""


class MemoryWarning(UserWarning):
    """Memory only grows, or comes near its limit."""


class MemoryCallback:
    """Records memory while a Keras model trains, finds leaks, and forecasts the end.

    Example:
        >>> import oomdoctor
        >>> memory = oomdoctor.MemoryCallback()  # doctest: +SKIP
        >>> model.fit(x, y, callbacks=[memory])  # doctest: +SKIP
        >>> memory.profile  # doctest: +SKIP

    Args:
        stop_before_oom: End training and save the model when memory comes near its limit.
        save_to: Where it is saved then.
        ram: The limit of system RAM, such as `12GiB`; found by itself when None.
        vram: The limit of device memory; found by itself when None.
        output: A folder to record in, for `oomdoctor profile --from`; None records in memory.
    """

    async_safe = True
    """Lets Keras go on with the next step while this is called."""

    def __new__(cls, *args: Any, **kwargs: Any) -> MemoryCallback:
        """Return an object that is a Keras callback too."""
        del args, kwargs
        try:
            from keras.callbacks import Callback
        except ImportError as error:
            raise MissingPackageError(
                'MemoryCallback needs Keras: pip install "oomdoctor[tensorflow]".'
            ) from error
        whole: Any = cls
        if not issubclass(cls, Callback):
            whole = type(cls.__name__, (cls, Callback), {"__module__": cls.__module__})
        made: MemoryCallback = object.__new__(whole)
        return made

    def __init__(
        self,
        stop_before_oom: bool = False,
        *,
        save_to: str | os.PathLike[str] = "stopped-before-oom.keras",
        ram: str | int | None = None,
        vram: str | int | None = None,
        output: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.stop_before_oom = stop_before_oom
        self.save_to = os.fspath(save_to)
        self.stopped_at: int | None = None
        """The step after which training was stopped; None where it was not."""
        self._limits = _limits(ram, vram)
        self._meter = Meter()
        self._steps: list[Step] = []
        self._count = self._epoch = self._seen = 0
        self._phases: list[Phase] = []
        self._suspects: dict[tuple[str, str], Suspect] = {}
        self._census = Census(ignored=(self._steps,))
        self._began, self._started_at = time.monotonic(), time.time()
        self._next_check, self._free_at = FIRST_CHECK_AT, 0.0
        self._found = self._told = 0
        self._is_saved = False
        self._lock = threading.Lock()
        self._file = None if output is None else LiveFile(output, self._started_at, self._limits)

    @property
    def profile(self) -> Profile:
        """What was recorded so far, and what it tells."""
        with self._lock:
            recording = Recording(
                command=("fit",),
                started_at=self._started_at,
                samples=(),
                steps=tuple(assemble.thin(self._steps, assemble.MOST_STEPS)),
                phases=tuple(self._phases),
                limits=self._limits,
                step_count=self._count,
                suspects=tuple(self._suspects.values()),
                epochs=(getattr(self, "params", None) or {}).get("epochs"),
            )
        return profile_of(recording)

    # ------------------------------------------------------------------ what Keras calls

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin an epoch."""
        self._epoch += 1
        held = self._meter.rss_bytes()
        label = f"epoch {epoch + 1}"
        self._phases.append(
            Phase(
                kind="epoch",
                label=label,
                start_seconds=self._now(),
                end_seconds=None,
                number=epoch + 1,
                start_bytes=held,
            )
        )
        if self._file is not None:
            self._file.begin(self._now(), label, epoch + 1)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Record a step; now and then, look whether memory leaks."""
        with self._lock:
            self._count += 1
            now = self._now()
            last = self._steps[-1].seconds if self._steps else -1.0
            if len(self._steps) > 30 and now - last < LEAST_SECONDS_BETWEEN_STEPS:
                return
            step = self._measure(now)
            is_due = self._seen >= self._next_check and now >= self._free_at
        if self.stop_before_oom and self.stopped_at is None:
            self._stop_if_near(step)
        if is_due:
            self._check()

    def on_test_begin(self, logs: Any = None) -> None:
        """Save first, if training is being stopped: validation needs memory too."""
        self._save()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End an epoch."""
        self._save()
        if self._phases:
            phase = self._phases[-1]
            inside = [
                step.rss_bytes
                for step in self._steps
                if step.epoch == self._epoch and step.rss_bytes is not None
            ]
            self._phases[-1] = Phase(
                kind=phase.kind,
                label=phase.label,
                start_seconds=phase.start_seconds,
                end_seconds=self._now(),
                number=phase.number,
                steps=len(inside) or None,
                start_bytes=phase.start_bytes,
                end_bytes=self._meter.rss_bytes(),
                peak_bytes=max(inside, default=None),
            )
        if self._file is not None:
            self._file.finish(self._now())

    def on_train_end(self, logs: Any = None) -> None:
        """Look a last time, and tell."""
        self._save()
        if self._seen >= FIRST_CHECK_AT:
            self._check(is_last=True)
        if self._file is not None:
            self._file.end(self._now(), self._suspects.values())

    # ------------------------------------------------------------------ what it does

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _measure(self, now: float) -> Step:
        held, peak = self._meter.allocator()
        step = Step(
            seconds=now,
            step=self._count,
            epoch=self._epoch,
            rss_bytes=self._meter.rss_bytes(),
            allocator_bytes=held,
            allocator_peak_bytes=peak,
        )
        self._steps.append(step)
        self._seen += 1
        if len(self._steps) > 2 * assemble.MOST_STEPS:
            self._steps[:] = assemble.thin(self._steps, assemble.MOST_STEPS)
        if self._file is not None:
            self._file.step(step)
        return step

    def _check(self, is_last: bool = False) -> None:
        """Judge what was seen.

        A first suspicion is put to the test by collecting garbage. What is kept is counted only
        while there is one, because counting is costly, and three counts tell what grows.
        """
        began = time.monotonic()
        profile = self.profile
        if profile.leak is None:
            self._found = 0
        else:
            self._found += 1
            if self._found == 1 and not is_last:
                gc.collect()
            self._count_kept()
            is_sure = self._found >= COUNTS_TO_TELL or is_last
            if is_sure and (not self._told or (profile.forecasts and _is_soon(profile))):
                self._warn(profile)
        took = time.monotonic() - began
        # Soon again while a suspicion is open, else at a fixed share of the time.
        is_open = 0 < self._found < COUNTS_TO_TELL
        self._next_check = int(self._seen * (1.1 if is_open else 1.25)) + 1
        self._free_at = self._now() + (0.0 if is_open else took / SHARE_OF_TIME)

    def _count_kept(self) -> None:
        with self._lock:
            for line in self._census.take(self._count):
                self._suspects[line.kind, line.what] = assemble.suspect(line)

    def _warn(self, profile: Profile) -> None:
        leak = profile.leak
        assert leak is not None
        if self._told >= 3:
            return
        self._told += 1
        place = "device memory" if leak.what == "device" else "memory"
        text = f"{place} leaks: +{format_bytes(leak.bytes_per_step)} in each step"
        for forecast in profile.forecasts[:1]:
            text += f"; {forecast.text}"
        suspect = max(self._suspects.values(), key=lambda one: one.weight, default=None)
        if suspect is not None:
            text += f". Suspect: {suspect.what}, {suspect.count:,} by now; {suspect.advice}"
        warnings.warn(f"oomdoctor: {text}.", MemoryWarning, stacklevel=2)

    def _stop_if_near(self, step: Step) -> None:
        for what, size in (("host", step.rss_bytes), ("device", step.allocator_bytes)):
            limit = min((one.limit_bytes for one in self._limits if one.what == what), default=None)
            if limit is None or size is None or size < STOP_AT_SHARE * limit:
                continue
            self.stopped_at = step.step
            model: Any = self.model  # type: ignore[attr-defined]
            model.stop_training = True
            warnings.warn(
                f"oomdoctor: training is stopped after step {step.step}: {format_bytes(size)} of "
                f"{format_bytes(limit)} in use ({what}); the model goes to {self.save_to}.",
                MemoryWarning,
                stacklevel=2,
            )
            return

    def _save(self) -> None:
        if self.stopped_at is None or self._is_saved:
            return
        self._is_saved = True
        model: Any = self.model  # type: ignore[attr-defined]
        model.save(self.save_to)


def _is_soon(profile: Profile) -> bool:
    """Whether the forecast lies within the epochs asked for and nearer than half the way."""
    first = profile.forecasts[0]
    return first.now_bytes > 0.7 * first.limit_bytes


def _limits(ram: str | int | None, vram: str | int | None) -> tuple[Limit, ...]:
    """What was given; else what this machine and its container say."""
    from oomdoctor.probe.machine import probe_machine

    found = []
    machine = probe_machine(with_gpus=vram is None)
    if ram is not None:
        found.append(Limit(what="host", limit_bytes=parse_size(ram), source="ram="))
    elif machine.ram.limit_bytes is not None:
        source = machine.ram.limit_source or "a limit"
        found.append(Limit(what="host", limit_bytes=machine.ram.limit_bytes, source=source))
    elif machine.ram.total_bytes is not None:
        total = machine.ram.total_bytes
        found.append(Limit(what="host", limit_bytes=total, source="RAM of this machine"))
    if vram is not None:
        found.append(Limit(what="device", limit_bytes=parse_size(vram), source="vram="))
    elif machine.gpus and machine.gpus[0].total_bytes is not None:
        gpu = machine.gpus[0]
        found.append(Limit(what="device", limit_bytes=gpu.total_bytes or 0, source=gpu.name))
    return tuple(found)
