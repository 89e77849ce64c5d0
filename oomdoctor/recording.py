"""A recorded run: memory over time, its phases, how it ended, and what that tells.

`Recording` is what was seen, `Profile` what is concluded from it. Both are frozen values;
unknown is None, never zero. Sizes are whole bytes, times are seconds since the run started.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oomdoctor._show import Readable

PHASES = (
    "start",
    "import",
    "build",
    "first_step",
    "epoch",
    "validation",
    "checkpoint",
    "evaluate",
    "predict",
)
"""The kinds of phase. `validation` and `checkpoint` may lie inside an `epoch`."""

GROWTHS = ("leak", "cache", "buffer", "first_step", "flat", "unclear")
"""What a growth is: `leak` goes on for ever, `cache` ends with the first epoch, `buffer` comes
before the first step, `first_step` in it; `flat` is none worth the name."""

SUSPECTS = ("retracing", "tensors_kept", "objects_kept", "models_rebuilt", "iterators_made")
"""What may be kept, as seen from inside the program."""
EXPLAINS = {"models_rebuilt": 2, "retracing": 1}
"""A new model is traced anew and makes new iterators: the cause goes before what follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What one process of the run holds on one GPU."""

    gpu: int
    pid: int
    used_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Memory at one moment, seen from outside; all processes of the run together."""

    seconds: float
    rss_bytes: int | None
    """Resident: what the kernel counts when it looks for a process to kill."""
    uss_bytes: int | None = None
    """What would be free again without them; read rarely, because reading it is costly."""
    swap_bytes: int | None = None
    """Of these processes, where the system tells it for each; else of the machine."""
    container_bytes: int | None = None
    """In use in the container, without the page cache that can be dropped."""
    gpus: tuple[GpuUse, ...] = ()
    """Empty where there is no GPU, or the driver does not say who holds it."""
    processes: int | None = None
    allocator_bytes: int | None = None
    """TensorFlow's allocator, the last figure known at this moment."""
    allocator_peak_bytes: int | None = None
    phase: str | None = None
    """The innermost phase it falls into, as `Phase.label`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Memory after one batch, seen from inside."""

    seconds: float
    step: int
    """Counted over the whole run, from 1."""
    epoch: int
    """From 1."""
    rss_bytes: int | None
    allocator_bytes: int | None = None
    allocator_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the run."""

    kind: str
    """One of `PHASES`."""
    label: str
    """As a person would say it, such as `epoch 3`."""
    start_seconds: float
    end_seconds: float | None
    """None where the run ended in it."""
    number: int | None = None
    """Of an epoch, from 1."""
    steps: int | None = None
    start_bytes: int | None = None
    """Resident memory when it began, and when it ended."""
    end_bytes: int | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A line that memory must not cross."""

    what: str
    """`host` or `device`."""
    limit_bytes: int
    source: str
    """Such as `--ram, by a watchdog`, `cgroup memory.max` or `RAM of this machine`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the run ended."""

    seconds: float
    exit_code: int | None
    """As a shell gives it: 137 for a process killed by SIGKILL. None where nobody saw the end."""
    signal: str | None = None
    """Such as `SIGKILL`."""
    killed_by: str | None = None
    """`cap` (our --ram cap), `kernel` (the oom_kill counter rose), `user` (Ctrl-C, SIGTERM), or
    `unknown`; None where it was not killed."""
    peak_rss_bytes: int | None = None
    """The kernel's own figure for the main process, between samples too."""
    oom_kills: int | None = None
    """How far the container's oom_kill counter rose during the run; None where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A stage of a tf.data pipeline that keeps elements in RAM."""

    kind: str
    """`cache`, `shuffle`, `prefetch`, `tensors` …"""
    label: str
    """The call as a person would write it, such as `shuffle(100000)`."""
    held_bytes: int | None
    """What it keeps once it is full; None where that cannot be told."""
    is_batched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Recording(Readable):
    """What was seen of one run."""

    command: tuple[str, ...]
    started_at: float
    """Seconds since 1970, UTC."""
    samples: tuple[Sample, ...]
    """In order of time. A long run is thinned when it is loaded; highs and lows are kept."""
    steps: tuple[Step, ...] = ()
    """The same from inside; empty where the program did not call Keras's `fit`."""
    phases: tuple[Phase, ...] = ()
    limits: tuple[Limit, ...] = ()
    end: End | None = None
    """None where the recording itself was cut off."""
    sample_count: int = 0
    """How many samples were taken, before thinning."""
    step_count: int = 0
    rate_hz: float | None = None
    error: str | None = None
    """The text of the exception that ended it, or of TensorFlow's own out-of-memory message."""
    suspects: tuple[Suspect, ...] = ()
    breakdown: PeakBreakdown | None = None
    pipeline: tuple[Holding, ...] = ()
    """What the tf.data pipeline given to `fit` holds in RAM, from its source to its end."""
    fit_seconds: float | None = None
    """When `fit` first asked for data; None where it never did."""
    batch_size: int | None = None
    epochs: int | None = None
    """How many epochs `fit` was asked for."""
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it ran, as far as it is known."""
        if self.end is not None:
            return self.end.seconds
        return self.samples[-1].seconds if self.samples else 0.0

    @property
    def peak_rss_bytes(self) -> int | None:
        """The highest resident memory."""
        return max(_known(sample.rss_bytes for sample in self.samples), default=None)

    def limit_of(self, what: str) -> Limit | None:
        """Return the lowest limit of `host` or `device`."""
        fitting = [limit for limit in self.limits if limit.what == what]
        return min(fitting, key=lambda limit: limit.limit_bytes, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """What may be kept, counted from inside the program."""

    kind: str
    """One of `SUSPECTS`."""
    what: str
    """Its name, such as `train_step` or `losses (list)`."""
    count: int
    """How many there were at last."""
    per_step: float | None = None
    """How many were added in each step."""
    held_bytes: int | None = None
    advice: str = ""

    @property
    def weight(self) -> tuple[int, int]:
        """How much it explains: what it holds, and where that is not known, what follows of it."""
        return self.held_bytes or 0, EXPLAINS.get(self.kind, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How one series grew, and what that means."""

    what: str
    """`host` or `device`."""
    kind: str
    """One of `GROWTHS`."""
    start_seconds: float
    end_seconds: float
    start_bytes: int
    end_bytes: int
    bytes_per_step: float | None = None
    bytes_per_epoch: float | None = None
    bytes_per_second: float | None = None
    phase: str | None = None
    """Where it grew, as `Phase.label`."""
    confidence: float = 0.0
    evidence: tuple[str, ...] = ()
    """Short sentences: why this is taken for a leak, or why not."""

    @property
    def grown_bytes(self) -> int:
        """From its start to its end."""
        return self.end_bytes - self.start_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a limit is reached if it goes on like this."""

    what: str
    limit_bytes: int
    limit_source: str
    now_bytes: int
    bytes_per_second: float
    seconds_left: float
    """From the last sample on; 0 where the limit has been reached."""
    epoch: int | None = None
    step: int | None = None
    """Where the limit is reached, counted as in `Step`."""
    text: str = ""
    """Such as `at +41 MB per epoch the limit is reached near epoch 37`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorAtPeak:
    """A tensor that was alive at the peak of the traced step."""

    name: str
    layer: str | None
    part: str
    shape: tuple[int, ...] | None
    dtype: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakBreakdown:
    """What held the memory at the peak of one traced step."""

    step: int
    peak_bytes: int
    parts: tuple[tuple[str, int], ...]
    """Pairs of part and bytes: weights, gradients, optimizer, activations, workspace."""
    layers: tuple[tuple[str, int], ...]
    """Pairs of layer and bytes, the largest first. Names in brackets are not layers."""
    tensors: tuple[TensorAtPeak, ...] = ()
    """The largest, at most twenty."""
    curve: tuple[tuple[float, int], ...] = ()
    """Pairs of milliseconds since the step began and bytes in use."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Profile(Readable):
    """A recording and what is concluded from it."""

    recording: Recording
    growths: tuple[Growth, ...] = ()
    """At most one of the host and one of the device, the host first."""
    forecasts: tuple[Forecast, ...] = ()
    folder: str | None = None
    """Where the recording lies."""

    @property
    def leak(self) -> Growth | None:
        """The growth that is a leak, if any."""
        return next((growth for growth in self.growths if growth.kind == "leak"), None)


def _known(sizes: Iterator[int | None]) -> Iterator[int]:
    return (size for size in sizes if size is not None)
