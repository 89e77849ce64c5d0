"""What is concluded from the facts: findings with remedies, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from oomdoctor._show import Readable
from oomdoctor.facts import Facts


class Severity(str, Enum):
    """How bad it is; `rank` orders them, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return ("error", "warning", "info").index(self.value)


class Outcome(str, Enum):
    """What became of a rule."""

    FIRED = "fired"
    PASSED = "passed"
    UNKNOWN = "unknown"
    """A fact it needs is missing."""
    SKIPPED = "skipped"
    """The user suppressed it."""


REMEDIES = (
    "subset",
    "cpu_fallback",
    "stream_dataset",
    "mixed_precision",
    "gradient_accumulation",
    "reduce_batch",
    "mmap",
    "keep_dataset_on_cpu",
    "chunked_training",
    "multi_gpu",
    "store_intermediates",
    "cache_to_file",
    "smaller_shuffle_buffer",
    "rematerialize",
    "jit_compile",
    "lighter_optimizer",
    "smaller_input",
    "smaller_model",
    "memory_growth",
    "free_gpu_process",
    "cuda_malloc_async",
    "fix_leak",
    "none",
)
"""The vocabulary of cures. Stable identifiers."""

CAUSES = (
    "gpu_exhausted",
    "gpu_fragmented",
    "gpu_held_by_other_process",
    "cuda_library_allocation",
    "dataset_on_gpu",
    "xla_exhausted",
    "multi_gpu_exhausted",
    "host_array_too_large",
    "host_killed",
    "host_exhausted",
    "host_allocation_warning",
    "pipeline_buffer",
    "leak",
    "tensor_proto_too_large",
    "not_memory",
    "no_failure",
)
"""The vocabulary of causes. Stable identifiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """The change to make, as code to paste."""

    title: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a remedy costs, in words a person decides by."""

    speed: str
    """What it does to the time of an epoch."""
    effort: str
    """`one line`, `a few lines` or `a rewrite`."""
    accuracy: str
    """What it may do to the result of training."""
    whole_dataset: bool
    """Whether all the data is still trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A place in source code."""

    file: str
    line: int
    column: int
    cell: int | None = None
    """The cell of a notebook, from 1; `line` and `column` are within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFact:
    """A fact a rule lacked, and how to give it."""

    name: str
    how_to_get: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule concluded."""

    rule: str
    name: str
    outcome: Outcome
    severity: Severity
    message: str
    remedy: str
    saves_bytes: int | None = None
    makes_it_fit: bool | None = None
    """Whether this remedy alone makes the run fit; None where that is not known."""
    fix: Fix | None = None
    cost: Cost | None = None
    location: Location | None = None
    missing: tuple[MissingFact, ...] = ()
    is_known: bool = False
    """Whether the baseline has it: it is shown, and fails nothing."""

    def fails(self, fail_on: str) -> bool:
        """Return whether it is new and at least as bad as `fail_on`, or `never`."""
        if fail_on == "never" or self.outcome is not Outcome.FIRED or self.is_known:
            return False
        return self.severity.rank <= Severity(fail_on).rank


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Readable):
    """Facts and what was concluded from them: the only thing a renderer can see."""

    command: str
    verdict: str
    """`fits`, `does_not_fit` or `unknown`."""
    facts: Facts
    findings: tuple[Finding, ...] = ()
    """Ranked: what makes it fit first."""
    notes: tuple[str, ...] = ()
    subject: str | None = None
    """What was examined, in a few words: `data/`, or `app:build, batch 32`."""
    target: str | None = None
    """What it was compared with: a machine's name, or the memory that was given."""
    parts: tuple[Report, ...] = ()
    """One report for each subject and target, where several were asked for at once."""
    is_survey: bool = False
    """Whether the parts are every machine of the catalogue, to choose one from."""

    @property
    def fired(self) -> tuple[Finding, ...]:
        """What was found, without the rules that passed or lacked a fact."""
        return tuple(finding for finding in self.findings if finding.outcome is Outcome.FIRED)

    def fails(self, fail_on: str) -> bool:
        """Return whether anything found is new and at least as bad as `fail_on`, or `never`."""
        found = [finding for part in (self.parts or (self,)) for finding in part.findings]
        return any(finding.fails(fail_on) for finding in found)
