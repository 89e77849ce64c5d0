"""What is known about a run: the machine, the data, the pipeline, the model, the crash.

Every stage adds one of these frozen values; `Facts` gathers them and is the only thing a rule
can see. Unknown is `None`, never zero. Sizes are whole bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable
from oomdoctor.comparison import Comparison
from oomdoctor.recording import Profile

# --------------------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    pid: int
    name: str | None
    """None where the process lives outside our container or belongs to someone else."""
    used_bytes: int | None
    """None where the driver does not tell, as inside containers and on WSL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or one MIG slice, that TensorFlow would see."""

    index: int
    """Position among the visible devices, as in TensorFlow's `GPU:0`."""
    name: str
    total_bytes: int | None
    free_bytes: int | None
    """Memory a new process can still take."""
    reserved_bytes: int = 0
    """What TensorFlow leaves of the free memory to CUDA and its libraries."""
    used_bytes: int | None = None
    uuid: str | None = None
    is_mig: bool = False
    compute_capability: tuple[int, int] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    """None means that the driver did not say who holds memory."""
    origin: str = "measured"
    """`measured`, `declared` (by --vram) or `catalogue` (by --machine)."""

    @property
    def usable_bytes(self) -> int | None:
        """What TensorFlow's allocator would get."""
        return None if self.free_bytes is None else max(0, self.free_bytes - self.reserved_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """System memory: what there is, what is free, and which limit binds."""

    total_bytes: int | None
    available_bytes: int | None
    """What can be taken now: the lowest of the system, the container and the other limits."""
    limit_bytes: int | None = None
    """The limit lower than the machine's own RAM, if any."""
    limit_source: str | None = None
    """Where that limit comes from, such as `cgroup memory.max` or `ulimit -v`."""
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    origin: str = "measured"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Machine(Readable):
    """The machine a run is compared with: this one, a declared one, or a catalogue entry."""

    ram: Memory
    gpus: tuple[Gpu, ...] = ()
    """Empty when none was seen, which does not prove that there is none: see `notes`."""
    name: str | None = None
    cpu_count: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def usable_vram_bytes(self) -> int | None:
        """What TensorFlow gets on the fullest GPU; None where no GPU is known."""
        usable = [gpu.usable_bytes for gpu in self.gpus]
        return min((size for size in usable if size is not None), default=None)


# --------------------------------------------------------------------------- the data


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSpread:
    """How the shapes of one group's samples are spread, ordered by number of elements."""

    smallest: tuple[int, ...]
    median: tuple[int, ...]
    largest: tuple[int, ...]
    most_common: tuple[int, ...]
    distinct: int
    is_exact: bool = True
    """False when there were too many distinct shapes to keep them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one format, one split and one kind of sample, as they lie on disk."""

    name: str
    """A path relative to the root, or the array's name inside its file."""
    format: str
    """`image`, `npy`, `npz`, `tfrecord`, `hdf5`, `csv`, `parquet`, `arrow`, `wav`, `text`,
    `jsonl`, `tfds`, `zarr`, or a live object's kind: `array`, `memmap`, `frame`, `dataset`."""
    kind: str
    """What a loader makes of it: `image`, `array`, `table`, `audio`, `text`, `record`."""
    files: int
    samples: int | None
    stored_bytes: int
    elements: int | None
    """Decoded elements of all samples together, at native size."""
    dtype: str | None
    """Of the decoded elements; None where they cannot be sized safely."""
    split: str | None = None
    """`train`, `validation` or `test` where a folder or file name says so."""
    role: str = "inputs"
    """`inputs`, or `targets` for labels that lie beside them and are not counted as samples."""
    classes: tuple[tuple[str, int], ...] = ()
    """Class folders with the samples in each, by name."""
    shapes: ShapeSpread | None = None
    largest_sample: str | None = None
    """Path of the sample with the most elements."""
    is_compressed: bool = False
    """True where the bytes on disk cannot be memory-mapped as they are."""
    is_exact: bool = True
    """False when counted from a sample of the files, or estimated from a part of one."""
    low_elements: int | None = None
    high_elements: int | None = None
    """The interval for `elements` when they are not exact."""
    memory_bytes: int | None = None
    """Bytes in memory where the element width does not give them (text columns, strings)."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Files that were passed over, and why."""

    reason: str
    files: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inventory(Readable):
    """What lies under the paths given, told from headers."""

    root: str
    groups: tuple[FileGroup, ...]
    files: int
    stored_bytes: int
    skipped: tuple[Skipped, ...] = ()
    is_exact: bool = True
    is_complete: bool = True
    """False when the scan was interrupted: the figures cover what was seen so far."""
    notes: tuple[str, ...] = ()

    @property
    def samples(self) -> int | None:
        """Samples of all groups; labels beside their inputs are not counted again."""
        counts = [group.samples for group in self.groups if group.role == "inputs"]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None


# --------------------------------------------------------------------------- the footprint


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFootprint:
    """What one group holds in memory once decoded."""

    name: str
    shape: tuple[int, ...] | None
    """Of one sample as it is loaded; None where samples differ."""
    dtype: str | None
    decoded_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    native_bytes: int | None
    largest_sample_bytes: int | None
    is_whole: bool
    """Whether this group is loaded whole, or streamed."""
    in_fit: bool
    """Whether `fit` is given it; the test split waits for `evaluate`."""
    split: str | None = None
    is_mapped: bool = False
    """Whether it lies in a memory-mapped file, whose pages need no RAM of their own."""
    can_stack: bool = True
    """False where samples differ in shape, so that they make no array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a tf.data pipeline and what it keeps in RAM."""

    kind: str
    """`tensors`, `generator`, `shuffle`, `cache`, `batch`, `map`, `prefetch`, `interleave` …"""
    label: str
    """The call as a person would write it, such as `shuffle(16283)`."""
    elements: int | None = None
    """Elements it keeps; None when unbounded or unknown."""
    element_bytes: int | None = None
    """One element as it enters this stage; a batch once batched."""
    held_bytes: int | None = None
    """What it keeps in RAM; filled in by `footprint.pipeline`."""
    is_batched: bool = False
    """True when its elements are batches already."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeding:
    """One way of giving the data to `fit`, and what it needs."""

    way: str
    """`memory` (arrays in RAM, trained on the CPU), `device` (arrays in RAM that `fit` copies
    to the GPU whole), `stream` (batch by batch), or `mixed` where groups are fed differently."""
    ram_bytes: int | None
    vram_bytes: int | None
    """For the data alone: the model comes on top."""
    ram_verdict: str
    """`fits`, `does_not_fit` or `unknown`."""
    vram_verdict: str
    """The same for the GPU; `unknown` where no GPU is known, `fits` where none is needed."""
    detail: str
    """How the bytes come about, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Footprint(Readable):
    """Bytes the data takes in memory, by the way it is fed."""

    decoded_bytes: int | None
    """All samples as they are loaded (after --image-size and --dtype)."""
    low_bytes: int | None
    high_bytes: int | None
    """The interval for `decoded_bytes`; both equal to it where it is exact."""
    native_bytes: int | None
    """All samples at their native size, in the same dtype."""
    keras_loader_bytes: int | None
    """Pictures as `image_dataset_from_directory` gives them by default: 256x256x3 float32.
    None where there are no pictures."""
    sample_bytes: int | None
    """One sample, on average."""
    largest_sample_bytes: int | None
    batch_bytes: int | None
    """One batch of the largest samples: the largest decides."""
    batch_size: int
    load: str
    """How the data is fed: `memory`, `stream`, or `mixed` where groups differ."""
    groups: tuple[GroupFootprint, ...] = ()
    feedings: tuple[Feeding, ...] = ()
    """The ways compared: memory, device, stream."""
    chosen: Feeding | None = None
    """The way asked for, compared with the machine."""
    recommended: str | None = None
    """The way that suits this machine best; None where none of them fits."""
    stages: tuple[Stage, ...] = ()
    """A live tf.data pipeline, stage by stage."""


# --------------------------------------------------------------------------- the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model and how it is trained, without any framework object."""

    model: str | None = None
    weights_bytes: int | None = None
    trainable_bytes: int | None = None
    optimizer: str | None = None
    optimizer_bytes: int | None = None
    precision: str | None = None
    """The dtype policy, such as `float32` or `mixed_float16`."""
    input_shape: tuple[int, ...] | None = None
    has_batch_norm: bool | None = None
    replicas: int = 1
    batch_size: int | None = None
    """The global batch, over all replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer holds at the peak of a step."""

    name: str
    bytes_at_peak: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Estimate(Readable):
    """The peak memory of one training step."""

    batch_size: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    parts: tuple[tuple[str, int], ...] = ()
    """Pairs of part and bytes: weights, gradients, optimizer, activations, workspace."""
    layers: tuple[LayerBytes, ...] = ()
    largest_tensor_bytes: int | None = None
    per_sample_bytes: int | None = None
    origin: str = "estimated"
    fixed_bytes: int | None = None
    """The peak at any batch is about `fixed_bytes + batch * per_sample_bytes`."""
    line_from_batch: int | None = None
    """The smallest batch at which that line was checked and holds."""
    kind: str = "train"
    """`train`, `evaluate` or `predict`."""
    jit: bool = False
    """Whether the step is one that XLA compiles."""
    unknown_ops: tuple[tuple[str, int], ...] = ()
    """Operations that are not understood, with the bytes at stake."""
    assumptions: tuple[str, ...] = ()

    def largest_batch(self, budget_bytes: int) -> int | None:
        """Return the largest batch whose upper bound stays within a budget, along the line.

        None where the line is unknown or no batch changes the peak; 0 where none fits.
        """
        if self.fixed_bytes is None or not self.per_sample_bytes or not self.peak_bytes:
            return None
        within = budget_bytes * self.peak_bytes // max(self.high_bytes, 1)
        return max(0, (within - self.fixed_bytes) // self.per_sample_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGrowth:
    """What one layer holds at the peak, then and now; None where it was not there."""

    name: str
    recorded_bytes: int | None
    bytes_at_peak: int | None

    @property
    def growth_bytes(self) -> int:
        """How much more it holds than it did."""
        return (self.bytes_at_peak or 0) - (self.recorded_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The peak of a step beside the one that a baseline has."""

    recorded_bytes: int
    peak_bytes: int
    tolerance: float
    """The part of the recorded peak that it may grow by: 0.05 is 5 %."""
    layers: tuple[LayerGrowth, ...] = ()
    """Layers that hold more or less than they did, the largest change first."""

    @property
    def growth_bytes(self) -> int:
        """How much higher the peak is; below zero where it is lower."""
        return self.peak_bytes - self.recorded_bytes

    @property
    def allowed_bytes(self) -> int:
        """How much higher it may be."""
        return int(self.recorded_bytes * self.tolerance)

    @property
    def is_over(self) -> bool:
        """Whether the peak grew by more than is allowed."""
        return self.growth_bytes > self.allowed_bytes


# --------------------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """One batch size that was run."""

    batch_size: int
    outcome: str
    """`fits`, `oom` or `died`; `fits` says that it ran, not that it stayed within the target."""
    peak_bytes: int | None
    seconds: float | None
    """What the trial took, starting and tracing included."""
    samples_per_second: float | None = None
    is_probe: bool = False
    """Whether it was run with memory to spare, to learn how memory grows."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tuning(Readable):
    """The largest batch that fits, and what was run to find it."""

    batch_size: int
    """Was run, under the budget."""
    peak_bytes: int
    budget_bytes: int
    target_bytes: int
    """The budget less the margin: what the peak may reach."""
    trials: tuple[SizeTrial, ...]
    """In the order they were run."""
    objective: str = "largest"
    limited_by: str = "memory"
    """`memory`, `max_batch_size`, `samples`, `host RAM` or, for the fastest, `speed`."""
    is_proved: bool = False
    """Whether the next larger size was run and did not fit."""
    replicas: int = 1
    device: str | None = None
    notes: tuple[str, ...] = ()


# --------------------------------------------------------------------------- the crash


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCause:
    """A cause that is also plausible, and the lines that speak for it."""

    cause: str
    confidence: float
    why: str
    evidence: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a run died, told from its log or its exception."""

    cause: str
    confidence: float
    requested_bytes: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    allocator: str | None = None
    op: str | None = None
    layer: str | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    evidence: tuple[tuple[int, str], ...] = ()
    """Pairs of line number and text."""
    summary: str = ""
    """What ran out and why, in one or two sentences."""
    is_fatal: bool = True
    """False for what did not end the run: a warning, a slow buffer, a healthy log."""
    alternatives: tuple[OtherCause, ...] = ()
    """What else it may have been, the likeliest first."""
    source_line: str | None = None
    """The user's own line that led there, such as `train.py:57`."""
    batch_dimension: int | None = None
    """Which dimension of `shape` is the batch, from 0; None where none is, or it is not known."""
    batch_size: int | None = None
    """The batch size that was given or inferred."""
    fitting_batch: int | None = None
    """The largest batch that could fit by arithmetic on what is known: an estimate."""
    holders: tuple[tuple[str, int], ...] = ()
    """Pairs of who holds the memory and bytes, the largest first."""
    notes: tuple[str, ...] = ()


# --------------------------------------------------------------------------- the code


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMatch:
    """A place in source code where a check found something."""

    check: str
    """Which check; a rule with the same word tells what it means."""
    file: str
    line: int
    """From 1; within the cell, in a notebook."""
    column: int
    """From 1, in characters."""
    cell: int | None = None
    """The cell of a notebook, from 1."""
    text: str = ""
    """The code itself, on one line, shortened."""
    name: str | None = None
    """The variable it is about, where there is one."""
    count: int | None = None
    """The number it is about, such as a size of a buffer."""
    parts: int | None = None
    """The number of replicas or parts it is about."""
    detail: str | None = None
    """A further word by which a rule can choose what to say."""
    is_fixable: bool = False
    """Whether `--fix` can change it safely."""
    ignored: tuple[str, ...] = ()
    """Rules that a comment beside it suppresses; `*` is all of them."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scripts(Readable):
    """What was found in source code."""

    files: int
    lines: int
    unchecked: int = 0
    """Files that could not be read, or not whole; the notes say why."""
    matches: tuple[CodeMatch, ...] = ()
    """By file, line and column."""
    notes: tuple[str, ...] = ()
    """Files that could not be read or are not Python."""


# --------------------------------------------------------------------------- all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a rule can see. What a command does not know is None."""

    machine: Machine | None = None
    inventory: Inventory | None = None
    footprint: Footprint | None = None
    workload: Workload | None = None
    estimate: Estimate | None = None
    growth: Growth | None = None
    tuning: Tuning | None = None
    diagnosis: Diagnosis | None = None
    profile: Profile | None = None
    comparison: Comparison | None = None
    scripts: Scripts | None = None
    versions: tuple[tuple[str, str], ...] = ()
    """Installed packages, such as ("tensorflow", "2.21.0"), read from their metadata."""
