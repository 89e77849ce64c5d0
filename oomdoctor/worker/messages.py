"""What the calling process asks of the worker, and what the worker answers: one type for each.

A *trial* is one batch size trained for a few steps. Its *peak* is the most bytes the allocator had
handed out at once, in whole chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from oomdoctor.facts import Estimate, Workload
from oomdoctor.model.samples import Samples
from oomdoctor.model.spec import ModelSpec
from oomdoctor.xla.cards import Card
from oomdoctor.xla.plugin import Plugin
from oomdoctor.xla.program import Jit

Outcome = Literal["fits", "oom", "died"]


@dataclass(frozen=True)
class Trial:
    """What happened when one batch size was run."""

    batch_size: int
    outcome: Outcome
    peak_bytes: int | None = None
    """The highest peak of a step. After an `oom` it is what the step takes when it has more memory
    than the limit, where the worker has that to spare."""
    held_bytes: int | None = None
    """Held between steps, without the batch: weights and optimizer state."""
    batch_bytes: int | None = None
    step_peaks: tuple[int, ...] = ()
    seconds: float | None = None
    step_seconds: float | None = None
    """The fastest step with a whole batch, from the second on."""
    device: str | None = None
    message: str | None = None
    log: str | None = None
    """The end of what TensorFlow wrote, kept when the trial did not fit."""
    notes: tuple[str, ...] = ()
    was_killed: bool = False
    """Whether the kernel ended the process: the machine's own memory ran out."""
    is_hopeless: bool = False
    """Whether the model alone does not fit: then no batch size does."""
    timed_out: bool = False
    """Whether the trial was ended because it took too long: it says nothing about memory."""


class Load(msgspec.Struct, tag=True):
    """Comes first, and once."""

    spec: ModelSpec
    limit_bytes: int | None = None
    """What the device's allocator may hand out; None is TensorFlow's own limit."""
    spare_bytes: int = 0
    """How much larger than the limit a CPU's pool is made (`memory_limit.py`)."""
    ram_bytes: int | None = None
    """What the process may take beside the pool; None is no limit."""


class GuessSize(msgspec.Struct, tag=True):
    """Trace the step and simulate it near a limit."""

    limit_bytes: int


class DigestModel(msgspec.Struct, tag=True):
    """Name the model and the user's code behind it."""


class Fit(msgspec.Struct, tag=True):
    """Train with `model.fit`, as the user will."""

    batch_size: int
    """Over all replicas."""
    limit_bytes: int | None = None
    """Another limit for this trial alone, within `spare_bytes` above the usual one."""
    epochs: int = 1
    steps: int = 4
    """Whole batches in an epoch."""
    reorder: bool = True
    """Whether each epoch has the ops of a step in another order, as another process would."""
    last: int = 0
    """Samples in the last batch of an epoch; 0 if that is not known."""
    seconds: float | None = None
    """No step begins later than this after the request."""
    training_seconds: float | None = None
    """Nor later than this after the first step, which traces."""


class ReadData(msgspec.Struct, tag=True):
    """Call the user's function that returns what `fit` is given. Needs no `Load`."""

    name: str
    """`module:callable`."""
    sys_path: tuple[str, ...]


class EstimateStep(msgspec.Struct, tag=True):
    """Build a model, trace a step and simulate or compile it. Needs no `Load`."""

    spec: ModelSpec
    batch_size: int
    kind: str = "train"
    jit: Jit = "auto"
    threads: int | None = None
    ram_bytes: int | None = None
    """What the process may take to build the model; None is no limit."""
    card: Card | None = None
    """Where it will run; None is no GPU, or none that is known."""
    cards: tuple[Card, ...] = ()
    """All that will be asked about, so that they share compilations."""
    plugin: Plugin | None = None
    """XLA's compiler for cards."""
    missing: str = ""
    """Why there is none."""
    brief: bool = False
    """Compile once at most."""
    verify: bool = False
    """Run a step of a small batch and let its allocations take the simulation's place."""


Request = Load | GuessSize | DigestModel | Fit | ReadData | EstimateStep


class Loaded(msgspec.Struct, tag=True):
    """The model is built."""


class Guessed(msgspec.Struct, tag=True):
    """What the estimate says: bytes of any batch, and of each sample. None where it cannot."""

    fixed_bytes: int | None = None
    sample_bytes: int | None = None


class Digested(msgspec.Struct, tag=True):
    """The digest, or None where the model cannot be described."""

    digest: str | None


class Ran(msgspec.Struct, tag=True):
    """A trial that came to its end."""

    trial: Trial


class DataRead(msgspec.Struct, tag=True):
    """What the data says of its samples."""

    samples: Samples


class Estimated(msgspec.Struct, tag=True):
    """The peak of a step, and what is known of the model."""

    estimate: Estimate
    workload: Workload


class OutOfMemory(msgspec.Struct, tag=True):
    """Memory ran out before anything could be run, as when the model alone does not fit."""

    message: str


class Refused(msgspec.Struct, tag=True):
    """The request cannot be carried out: something is wrong with the model or an argument."""

    message: str
    is_usage: bool


Answer = Loaded | Guessed | Digested | Ran | DataRead | Estimated | OutOfMemory | Refused
