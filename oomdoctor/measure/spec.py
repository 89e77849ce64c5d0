"""The values that cross the border between a caller and the process that runs TensorFlow.

A *trial* is one batch size run for a few steps. Its *peak* is the most bytes the allocator had
handed out at once, counted in whole chunks as the allocator counts them (a chunk can be up to
twice the tensor in it). A *part* says what a byte is for:

- `weights`: variables of the model and of its metrics;
- `gradients`: gradients of trainable variables;
- `optimizer`: slots of the optimizer and the temporaries of its update;
- `activations`: the batch, the outputs of layers, and the gradients that flow back through them;
- `workspace`: scratch memory of kernels, and what no op could be found for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
MAX_BATCH_SIZE = 2**20
"""No larger one is looked for."""

KINDS = ("train", "evaluate", "predict")

Shape = tuple[int, ...]
Outcome = Literal["fits", "oom", "died"]


@dataclass(frozen=True)
class ModelSpec:
    """A model as another process can rebuild it. Values of weights are left out on purpose."""

    source: str
    """A `.keras` file, `module:callable`, or the name of a live model (then `config` is set)."""
    sys_path: tuple[str, ...] = ()
    """Put before the worker's own import path, so that the user's modules are found."""
    config: str | None = None
    """A live model's configuration as JSON, from `live.spec_of_model`."""
    objects: str | None = None
    """A live model's own classes and functions, pickled, in base64."""
    trainable: tuple[bool, ...] | None = None
    """Which layers of a live model are trainable, in the order Keras lists them."""
    vocabularies: tuple[int | None, ...] | None = None
    """How many words each layer of a live model looks up, in the same order; None for others."""
    policy: str | None = None
    """The global dtype policy of a live model's process, which inner layers are built with."""
    parameters: int | None = None
    trainable_parameters: int | None = None
    """Counts of a live model, to check the rebuilt one by."""
    input_shape: Shape | dict[str, Shape] | None = None
    """One sample, without the batch; by input name where there are several inputs."""
    input_dtype: str | None = None
    optimizer: str | None = None
    """Overrides the model's own; an uncompiled model without one gets `adam`."""
    loss: str | None = None
    precision: str | None = None
    """A Keras dtype policy, such as `mixed_float16`."""
    jit_compile: bool | None = None
    """None leaves it to Keras: XLA on a GPU, plain graph on a CPU."""
    replicas: int = 1
    """Devices a batch is split over; one of them is measured."""
    samples: str | None = None
    """The largest samples of the user's data, as JSON from `samples.read_samples`."""
    data: str | None = None
    """`module:callable` that takes a batch size and returns the batch; None synthesises it."""


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that was alive at the peak."""

    op: str
    layer: str | None
    part: str
    shape: Shape | None
    dtype: str | None
    requested_bytes: int
    allocated_bytes: int
    """The chunk it sat in."""


@dataclass(frozen=True)
class AllocationTrace:
    """What held the memory when a step was at its peak: the highest of the steps traced."""

    peak_bytes: int
    allocator_peak_bytes: int
    """The allocator's own figure for the same step: the replay must equal it."""
    start_bytes: int
    """Held when the step began: variables and the batch."""
    requested_bytes: int
    """What the tensors alive at the peak asked for; the rest is rounding and chunk slack."""
    parts: dict[str, int]
    """Bytes at the peak by part; they add up to `peak_bytes`."""
    layers: dict[str, int]
    """The same bytes by Keras layer, largest first. Names in brackets are not layers."""
    tensors: tuple[HeldTensor, ...]
    """The largest tensors at the peak."""
    curve: tuple[tuple[float, int], ...]
    """(milliseconds since the first event, bytes in use), thinned, with the peak kept."""
    events: int
    needed_bytes: int | None = None
    """The least limit, in whole MiB, under which every step of the trial should succeed: the
    highest peak and what fragmentation adds. None where the layout of memory is not known (a
    GPU)."""
    needed_low_bytes: int | None = None
    """The same for the traced step that needed least: below it no order of ops is known to fit."""
    extent_bytes: int | None = None
    """How far into its memory the allocator went, holes included."""
    simulated_extent_bytes: int | None = None
    """The same in the model that `needed_bytes` comes from: as good as they agree."""

    @property
    def slack_bytes(self) -> int:
        """Bytes of chunks at the peak that no tensor had asked for."""
        return self.peak_bytes - self.requested_bytes


@dataclass(frozen=True)
class Trial:
    """What happened when one batch size was run."""

    batch_size: int
    outcome: Outcome
    kind: str = "train"
    peak_bytes: int | None = None
    """The highest peak from the second step on."""
    first_step_peak_bytes: int | None = None
    current_bytes: int | None = None
    """Held between steps: variables and the batch."""
    batch_bytes: int | None = None
    """The batch alone."""
    step_peaks: tuple[int, ...] = ()
    """The peak of each step from the second on."""
    seconds: float | None = None
    step_seconds: float | None = None
    """The fastest step from the second on."""
    device: str | None = None
    message: str | None = None
    log: str | None = None
    """The end of what TensorFlow wrote, kept when the trial did not fit."""
    notes: tuple[str, ...] = ()
    trace: AllocationTrace | None = None
