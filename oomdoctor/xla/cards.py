"""Cards as XLA's compiler needs to know them, with where each figure comes from.

The compiler decides by these facts what to fuse and how much memory a program may take before it
recomputes values. *Memory* is what CUDA calls the card's total, which lies some percent below
what nvidia-smi shows.

"XLA" is openxla/xla, `xla/backends/gpu/target_config/specs/`: what XLA read from such a card.
"TF log" is the line "Found device 0 with properties" that TensorFlow printed up to 2.6, found in
public. "Data sheet" is NVIDIA's, as is what a source does not cover.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import NamedTuple

from oomdoctor.errors import UsageError
from oomdoctor.facts import Gpu
from oomdoctor.units import GIB, MIB, format_bytes


class _Chip(NamedTuple):
    fpus: int
    threads: int
    shared_bytes: int
    shared_optin_bytes: int


_CHIPS = {
    (6, 0): _Chip(64, 2048, 65536, 49152),
    (7, 0): _Chip(64, 2048, 98304, 98304),
    (7, 5): _Chip(64, 1024, 65536, 65536),
    (8, 0): _Chip(64, 2048, 167936, 166912),
    (8, 6): _Chip(128, 1536, 102400, 101376),
    (8, 9): _Chip(128, 1536, 102400, 101376),
    (9, 0): _Chip(128, 2048, 233472, 232448),
}
"""By compute capability, for one multiprocessor: the technical specifications in the CUDA C++
Programming Guide."""

_CONFIG = """\
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {chip.shared_bytes}
  shared_memory_per_block_optin: {chip.shared_optin_bytes}
  threads_per_core_limit: {chip.threads}
  core_count: {card.core_count}
  fpus_per_core: {chip.fpus}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {card.bandwidth}
  l2_cache_size: {card.l2_bytes}
  clock_rate_ghz: {card.clock_ghz}
  device_memory_size: {card.memory_bytes}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "{card.title}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card."""

    name: str
    """As `--machine` names it."""
    title: str
    """As the driver names it."""
    class_gib: int
    """The memory it is sold with."""
    compute_capability: tuple[int, int]
    core_count: int
    clock_ghz: float
    l2_bytes: int
    bandwidth: int
    """Bytes per second."""
    memory_bytes: int
    source: str

    def target_config(self) -> str:
        """Return what the compiler is told, a `GpuTargetConfigProto` in text.

        Unknown fields are an error to the compiler, so it holds only what every version knows.
        """
        major, minor = self.compute_capability
        chip = _CHIPS[self.compute_capability]
        return _CONFIG.format(card=self, chip=chip, major=major, minor=minor)


def _card(
    name: str,
    title: str,
    class_gib: int,
    capability: tuple[int, int],
    cores: int,
    clock_ghz: float,
    l2_kib: int,
    gigabytes_per_second: float,
    memory_bytes: float,
    source: str,
) -> Card:
    return Card(
        name=name,
        title=title,
        class_gib=class_gib,
        compute_capability=capability,
        core_count=cores,
        clock_ghz=clock_ghz,
        l2_bytes=l2_kib * 1024,
        bandwidth=round(gigabytes_per_second * 10**9),
        memory_bytes=int(memory_bytes),
        source=source,
    )


_AS_T4 = "memory: assumption, 98 % of what nvidia-smi shows, as on other cards"

CARDS = (
    _card("rtx3060-laptop", "NVIDIA GeForce RTX 3060 Laptop GPU", 6, (8, 6), 30, 1.425, 3072,
          336.05, 5.81 * GIB, "TF logs 2021 and 2022"),
    _card("rtx3070", "NVIDIA GeForce RTX 3070", 8, (8, 6), 46, 1.725, 4096, 448.06,
          7.79 * GIB, "TF log 2022; clock: data sheet"),
    _card("rtx3080", "NVIDIA GeForce RTX 3080", 10, (8, 6), 68, 1.71, 5120, 760.08,
          9.77 * GIB, "TF logs 2021 and 2022"),
    _card("rtx2080ti", "NVIDIA GeForce RTX 2080 Ti", 11, (7, 5), 68, 1.545, 5632, 616.0,
          10.76 * GIB, "TF logs 2020 and 2021"),
    _card("rtx3060", "NVIDIA GeForce RTX 3060", 12, (8, 6), 28, 1.777, 2304, 360.048,
          11931 * MIB, "data sheet; memory: PyTorch's device properties, 2024"),
    _card("rtx4070", "NVIDIA GeForce RTX 4070", 12, (8, 9), 46, 2.475, 36864, 504.2,
          11903 * MIB, "data sheet; memory: llama.cpp log 2026"),
    _card("t4", "Tesla T4", 16, (7, 5), 40, 1.59, 4096, 320.064,
          15_642_329_088, "TF logs 2020 and 2021; memory: newer drivers leave less, PyTorch's "
          "device properties say 14,930 MiB in 2025 and 15,079 in 2020"),
    _card("p100", "Tesla P100-PCIE-16GB", 16, (6, 0), 56, 1.3285, 4096, 732.16,
          17_066_885_120, "XLA (p100.txtpb); clock: TF logs 2020 to 2023"),
    _card("v100-16gb", "Tesla V100-SXM2-16GB", 16, (7, 0), 80, 1.53, 6144, 898.048,
          16_935_682_048, "XLA (v100.txtpb)"),
    _card("a4000", "NVIDIA RTX A4000", 16, (8, 6), 48, 1.56, 4096, 448.0,
          16376 * MIB * 0.98, f"data sheet; {_AS_T4}"),
    _card("rtx4080", "NVIDIA GeForce RTX 4080", 16, (8, 9), 76, 2.505, 65536, 716.8,
          16049 * MIB, "data sheet; memory: PyTorch's device properties, 2023"),
    _card("rtx3090", "NVIDIA GeForce RTX 3090", 24, (8, 6), 82, 1.695, 6144, 936.1,
          23.70 * GIB, "TF logs 2021 and 2022"),
    _card("l4", "NVIDIA L4", 24, (8, 9), 58, 2.04, 49152, 300.0,
          23034 * MIB * 0.98, f"data sheet; {_AS_T4}"),
    _card("a10g", "NVIDIA A10G", 24, (8, 6), 80, 1.71, 6144, 600.0,
          22587 * MIB, "data sheet; memory and cores: PyTorch's device properties, 2026"),
    _card("rtx4090", "NVIDIA GeForce RTX 4090", 24, (8, 9), 128, 2.52, 73728, 1008.096,
          24210 * MIB, "data sheet; memory: llama.cpp logs 2026"),
    _card("v100-32gb", "Tesla V100-SXM2-32GB", 32, (7, 0), 80, 1.53, 6144, 898.048,
          31.75 * GIB, "TF logs 2021 to 2023"),
    _card("a100-40gb", "NVIDIA A100-SXM4-40GB", 40, (8, 0), 108, 1.41, 40960, 1555.2,
          42_331_013_120, "XLA (a100_sxm_40.txtpb)"),
    _card("a6000", "NVIDIA RTX A6000", 48, (8, 6), 84, 1.8, 6144, 768.096,
          51_041_271_808, "XLA (a6000.txtpb)"),
    _card("a100-80gb", "NVIDIA A100-SXM4-80GB", 80, (8, 0), 108, 1.41, 40960, 2039.04,
          85_100_068_864, "XLA (a100_sxm_80.txtpb)"),
    _card("h100-80gb", "NVIDIA H100 80GB HBM3", 80, (9, 0), 132, 1.98, 51200, 3352.32,
          84_942_979_072, "XLA (h100_sxm.txtpb)"),
)  # fmt: skip
"""By memory; of those with the same, the one that most people have comes first."""


def find_card(name: str) -> Card:
    """Return a card by the name that `--machine` has for it.

    Example:
        >>> find_card("a100-40gb").title
        'NVIDIA A100-SXM4-40GB'
    """
    known = {card.name: card for card in CARDS}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]!r}?" if near else "."
    raise UsageError(f"{name!r} is not a card that oomdoctor knows{hint}")


def nearest_card(vram_bytes: int) -> tuple[Card, str]:
    """Return a card for so much free memory, and a sentence that says which and why.

    Free memory cannot exceed the card's, so it is the smallest class that could have it.

    Example:
        >>> nearest_card(6 * 2**30)[0].name
        'rtx3060-laptop'
    """
    fitting = [card for card in CARDS if card.class_gib * GIB >= vram_bytes]
    card = fitting[0] if fitting else CARDS[-1]
    return card, (
        f"Compiled for the {card.title} ({card.class_gib} GiB), the nearest class to "
        f"{format_bytes(vram_bytes)}; name yours with --machine."
    )


def card_of(gpu: Gpu) -> tuple[Card, str | None]:
    """Return the card that a GPU is, or the most similar one and a sentence that says so."""
    wanted = _plain(gpu.name)
    for card in sorted(CARDS, key=lambda card: -len(card.title)):
        if wanted == _plain(card.title):
            return card, None
    size = gpu.total_bytes or gpu.free_bytes or 0
    same = [card for card in CARDS if card.compute_capability == gpu.compute_capability]
    if not same:
        return nearest_card(size)
    card = min(same, key=lambda card: (abs(card.memory_bytes - size), card.name))
    if _plain(card.title).startswith(wanted) and abs(card.memory_bytes - size) < size // 10:
        return card, None
    return card, f"Compiled for the {card.title}, the most similar card to the {gpu.name}."


def _plain(title: str) -> str:
    """Return a card's name without what drivers and makers vary.

    Example:
        >>> _plain("NVIDIA A100-SXM4-40GB") == _plain("NVIDIA A100 40GB")
        True
    """
    words = title.lower().replace("-", " ").split()
    varying = {"nvidia", "tesla", "geforce", "sxm2", "sxm4", "pcie", "hbm3"}
    return " ".join(word for word in words if word not in varying)
