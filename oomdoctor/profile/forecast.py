"""When a limit is reached if growth goes on. Pure."""

from __future__ import annotations

from oomdoctor.profile.growth import steps_per_epoch
from oomdoctor.recording import Forecast, Growth, Limit, Recording
from oomdoctor.units import format_bytes


def forecasts_of(recording: Recording, growths: tuple[Growth, ...]) -> tuple[Forecast, ...]:
    """Return a forecast for each leak whose limit is known."""
    found = []
    for growth in growths:
        limit = recording.limit_of(growth.what)
        if growth.kind == "leak" and limit is not None:
            forecast = _forecast(recording, growth, limit)
            if forecast is not None:
                found.append(forecast)
    return tuple(found)


def _forecast(recording: Recording, growth: Growth, limit: Limit) -> Forecast | None:
    now = _now_bytes(recording, growth.what)
    rate = growth.bytes_per_second
    if now is None or not rate or rate <= 0:
        return None
    left = max(0, limit.limit_bytes - now)
    epoch, step = _place(recording, growth, left)
    return Forecast(
        what=growth.what,
        limit_bytes=limit.limit_bytes,
        limit_source=limit.source,
        now_bytes=now,
        bytes_per_second=rate,
        seconds_left=left / rate,
        epoch=epoch,
        step=step,
        text=_text(recording, growth, limit, epoch, step, left / rate),
    )


def _now_bytes(recording: Recording, what: str) -> int | None:
    if what == "device":
        return next(
            (s.allocator_bytes for s in reversed(recording.steps) if s.allocator_bytes), None
        )
    sizes = [one.rss_bytes for one in recording.samples[-20:] if one.rss_bytes]
    sizes += [one.rss_bytes for one in recording.steps[-20:] if one.rss_bytes]
    return max(sizes, default=None)


def _place(recording: Recording, growth: Growth, left: int) -> tuple[int | None, int | None]:
    """The epoch and the step at which the limit is reached."""
    if not growth.bytes_per_step or not recording.steps:
        return None, None
    last = recording.steps[-1]
    steps_left = left / growth.bytes_per_step
    per_epoch = steps_per_epoch(recording.steps)
    step = last.step + int(steps_left)
    if per_epoch is None:
        return None, step
    return last.epoch + int(steps_left / per_epoch), step


def _text(
    recording: Recording,
    growth: Growth,
    limit: Limit,
    epoch: int | None,
    step: int | None,
    seconds: float,
) -> str:
    line = f"the limit of {format_bytes(limit.limit_bytes)}"
    if epoch is not None and growth.bytes_per_epoch:
        grows = f"at +{format_bytes(int(growth.bytes_per_epoch))} per epoch"
        where = f"near epoch {epoch}"
    elif step is not None and growth.bytes_per_step:
        grows = f"at +{format_bytes(int(growth.bytes_per_step))} per step"
        where = f"near step {step}"
    else:
        grows = f"at +{format_bytes(int(growth.bytes_per_second or 0))} per second"
        where = f"in {_duration(seconds)}"
    if seconds <= 0:
        return f"{grows} {line} is reached"
    after = epoch is not None and recording.epochs is not None and epoch > recording.epochs
    told = f"{grows} {line} is reached {where}"
    epochs = "1 epoch" if recording.epochs == 1 else f"{recording.epochs} epochs"
    return f"{told}, after the {epochs} asked for" if after else told


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
