"""What is known about a run: the machine, the data, the pipeline, the model, the crash.

Every stage adds one of these frozen values; `Facts` gathers them and is the only thing a rule
can see. Unknown is `None`, never zero. Sizes are whole bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.comparison import Comparison
from oomdoctor.facts.diagnosis import Diagnosis, MemoryMap, OtherCause
from oomdoctor.facts.estimate import Estimate, LayerBytes, OtherProgram, verdict_of
from oomdoctor.facts.footprint import Feeding, Footprint, GroupFootprint, Stage
from oomdoctor.facts.growth import Growth, LayerGrowth
from oomdoctor.facts.inventory import FileGroup, Inventory, ShapeSpread, Skipped
from oomdoctor.facts.machine import Gpu, GpuProcess, Machine, Memory
from oomdoctor.facts.scripts import CodeMatch, Scripts
from oomdoctor.facts.sharding import Sharding
from oomdoctor.facts.tuning import SizeTrial, Tuning
from oomdoctor.facts.workload import TENSORFLOW_RAM_BYTES, Workload
from oomdoctor.recording import Profile

__all__ = [
    "TENSORFLOW_RAM_BYTES",
    "CodeMatch",
    "Diagnosis",
    "Estimate",
    "Facts",
    "Feeding",
    "FileGroup",
    "Footprint",
    "Gpu",
    "GpuProcess",
    "GroupFootprint",
    "Growth",
    "Inventory",
    "LayerBytes",
    "LayerGrowth",
    "Machine",
    "Memory",
    "MemoryMap",
    "OtherCause",
    "OtherProgram",
    "Scripts",
    "ShapeSpread",
    "Sharding",
    "SizeTrial",
    "Skipped",
    "Stage",
    "Tuning",
    "Workload",
    "verdict_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything a rule can see. What a command does not know is None."""

    machine: Machine | None = None
    inventory: Inventory | None = None
    footprint: Footprint | None = None
    workload: Workload | None = None
    estimate: Estimate | None = None
    sharding: Sharding | None = None
    growth: Growth | None = None
    tuning: Tuning | None = None
    diagnosis: Diagnosis | None = None
    profile: Profile | None = None
    comparison: Comparison | None = None
    scripts: Scripts | None = None
    versions: tuple[tuple[str, str], ...] = ()
    """Installed packages, such as ("tensorflow", "2.21.0"), read from their metadata."""

    @property
    def deciding(self) -> Comparison | Diagnosis | Tuning | Estimate | Scripts | Footprint | None:
        """The fact that answers what was asked: the verdict and the headline are about it.

        What happened comes before what was measured, and that before what was estimated. Code
        decides where there is no data beside it, data where it is compared with a machine.
        """
        is_compared = self.footprint and self.footprint.chosen and self.machine
        candidates = (
            self.comparison,
            self.diagnosis,
            self.tuning,
            self.estimate,
            self.scripts if self.inventory is None else None,
            self.footprint if is_compared else None,
        )
        return next((fact for fact in candidates if fact is not None), None)
