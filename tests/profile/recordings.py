"""Recordings made by hand: small ones for tests, and their lines on disk."""

from __future__ import annotations

from pathlib import Path

from oomdoctor.profile import records
from oomdoctor.profile.store import INSIDE, OUTSIDE, Appender

GIB = 1 << 30
MIB = 1 << 20


def write_example(
    folder: Path,
    *,
    epochs: int = 3,
    steps_per_epoch: int = 40,
    leak_per_step: int = 2 * MIB,
    base_bytes: int = GIB,
    limit_bytes: int = 2 * GIB,
    killed: bool = True,
    name: str = "train.py",
    rate_hz: float = 10.0,
    step_seconds: float = 0.05,
) -> Path:
    """Write a recording of a run that leaks, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    outside, inside = Appender(folder / OUTSIDE), Appender(folder / INSIDE)
    outside.write(
        records.Run(
            version=records.VERSION,
            command=["python", name],
            started_at=1_700_000_000.0,
            rate_hz=rate_hz,
            limits=[records.LimitLine("host", limit_bytes, "--ram, by a watchdog")],
            versions={"tensorflow": "2.21.0", "keras": "3.12.0"},
        )
    )
    inside.write(records.Begin(t=0.1, phase="import", label="import"))
    inside.write(records.Finish(t=2.0, phase="import"))
    inside.write(records.Begin(t=2.0, phase="build", label="build"))
    inside.write(records.Finish(t=3.0, phase="build"))
    shuffle = records.HoldingLine(kind="shuffle", label="shuffle(1000)", held_bytes=60 * MIB)
    inside.write(records.Fit(t=3.0, epochs=epochs, batch_size=32, pipeline=[shuffle]))
    step, at = 0, 3.0
    for epoch in range(1, epochs + 1):
        inside.write(records.Begin(t=at, phase="epoch", label=f"epoch {epoch}", number=epoch))
        for _ in range(steps_per_epoch):
            step, at = step + 1, at + step_seconds
            held = base_bytes + step * leak_per_step
            inside.write(
                records.B(t=at, step=step, epoch=epoch, rss=held, now=300 * MIB, peak=450 * MIB)
            )
        inside.write(records.Finish(t=at, phase="epoch"))
    for number in range(int(at * rate_hz)):
        t = number / rate_hz
        grown = max(0.0, t - 3.0) / step_seconds * leak_per_step
        rss = int(base_bytes * min(1.0, 0.2 + t / 3.0) + grown)
        outside.write(records.S(t=t, rss=rss, swap=0, box=rss + 50 * MIB, n=1))
    inside.write(
        records.Suspicion(
            kind="tensors_kept",
            what="losses (list)",
            count=step,
            per_step=1.0,
            held_bytes=step * leak_per_step,
            advice="keep float(loss), not the tensor",
            step=step,
        )
    )
    inside.write(
        records.Peak(
            step=2,
            peak_bytes=450 * MIB,
            parts=[("weights", 100 * MIB), ("activations", 350 * MIB)],
            layers=[("conv2d", 300 * MIB), ("dense", 150 * MIB)],
            tensors=[
                records.TensorLine(
                    name="conv2d/Relu",
                    layer="conv2d",
                    part="activations",
                    shape=[32, 150, 150, 64],
                    dtype="float32",
                    size_bytes=184_320_000,
                )
            ],
            curve=[(0.0, 100 * MIB), (4.0, 450 * MIB), (9.0, 100 * MIB)],
        )
    )
    if killed:
        outside.write(
            records.Stop(t=at, exit_code=137, signal="SIGKILL", killed_by="cap", oom_kills=0)
        )
    else:
        outside.write(records.Stop(t=at, exit_code=0))
    outside.close()
    inside.close()
    return folder
