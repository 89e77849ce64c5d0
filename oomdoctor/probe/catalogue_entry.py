"""What the catalogue knows about one machine, and how that becomes a `Machine`."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.facts import Gpu, Machine, Memory

_NO_RAM = "{} is a card alone, so RAM is not checked; pass --ram to check it too."
_NO_GPU = "{} has no GPU."


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueGpu:
    """One card of a catalogue entry."""

    name: str
    total_bytes: int
    usable_bytes: int
    compute_capability: tuple[int, int]
    total_source: str
    usable_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One machine of the catalogue, with where its figures come from."""

    name: str
    description: str
    ram_total_bytes: int | None = None
    """None where the entry is a card and the host is not given."""
    ram_usable_bytes: int | None = None
    ram_source: str
    cpu_count: int | None = None
    gpus: tuple[CatalogueGpu, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The source of every figure, one sentence each."""
        cards = [
            f"{label}: {source}"
            for gpu in dict.fromkeys(self.gpus)
            for label, source in (
                (f"{gpu.name} total", gpu.total_source),
                (f"{gpu.name} usable", gpu.usable_source),
            )
        ]
        return (f"RAM: {self.ram_source}", *cards)

    def to_machine(self) -> Machine:
        """Return the entry as a machine to compare with."""
        return Machine(
            name=self.name,
            ram=Memory(
                total_bytes=self.ram_total_bytes,
                available_bytes=self.ram_usable_bytes,
                origin="catalogue",
            ),
            gpus=tuple(
                Gpu(
                    index=index,
                    name=gpu.name,
                    total_bytes=gpu.total_bytes,
                    free_bytes=gpu.usable_bytes,
                    compute_capability=gpu.compute_capability,
                    origin="catalogue",
                )
                for index, gpu in enumerate(self.gpus)
            ),
            cpu_count=self.cpu_count,
            notes=tuple(
                note.format(self.name)
                for note, applies in (
                    (_NO_RAM, self.ram_total_bytes is None),
                    (_NO_GPU, not self.gpus),
                )
                if applies
            ),
        )
