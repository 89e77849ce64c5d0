"""The machine catalogue's figures and where each of them comes from.

"TF log" is the line "Created device … with N MB memory" that TensorFlow prints, found in a public
repository or notebook, with the year of the log. "W&B metadata" is the hardware that a public
Weights & Biases run recorded through NVML and psutil. "Assumption" marks what nobody published.
"""

from __future__ import annotations

from oomdoctor.probe.catalogue_entry import CatalogueEntry, CatalogueGpu
from oomdoctor.units import GIB, MIB

_HOST_DECIDES = "unknown, the host decides"
_AWS = "by aws.amazon.com/ec2/instance-types; assumption: the system takes 6 % of it"


def _gpu(
    name: str,
    total_mib: int,
    usable_mib: int,
    capability: tuple[int, int],
    total_source: str,
    usable_source: str,
) -> CatalogueGpu:
    return CatalogueGpu(
        name=name,
        total_bytes=total_mib * MIB,
        usable_bytes=usable_mib * MIB,
        compute_capability=capability,
        total_source=total_source,
        usable_source=usable_source,
    )


def _card(name: str, gpu: CatalogueGpu) -> CatalogueEntry:
    return CatalogueEntry(
        name=name, description=f"{gpu.name} alone", ram_source=_HOST_DECIDES, gpus=(gpu,)
    )


_T4 = _gpu(
    "Tesla T4",
    15360,
    13757,
    (7, 5),
    "16,106,127,360 bytes in W&B metadata of Kaggle runs, 2024",
    "TF log 2026, Google's cloud (2025: 13,942 and 13,840; AWS 2023: 13,627)",
)
_P100 = _gpu(
    "Tesla P100-PCIE-16GB",
    16384,
    15511,
    (6, 0),
    "17,179,869,184 bytes in W&B metadata of Kaggle runs, 2024",
    "TF log 2026, Kaggle (2022: 15,401)",
)
_V100 = _gpu(
    "Tesla V100-PCIE-16GB",
    16384,
    14784,
    (7, 0),
    "NVIDIA's data sheet, 16 GB HBM2",
    "TF log 2025 (2023: 14,518 and 14,635)",
)
_L4 = _gpu(
    "NVIDIA L4",
    23034,
    20967,
    (8, 9),
    "assumption: 24 GB by NVIDIA's data sheet, less ECC, as nvidia-smi commonly shows it",
    "TF log 2025, Google's cloud (2023: 20,795)",
)
_A100_40 = _gpu(
    "NVIDIA A100 40GB",
    40960,
    38482,
    (8, 0),
    "42,949,672,960 bytes in W&B metadata of Colab runs, 2024",
    "TF log 2026 (2024: 38,367)",
)
_A100_80 = _gpu(
    "NVIDIA A100 80GB",
    81920,
    79197,
    (8, 0),
    "81,920 MiB in nvidia-smi on NVIDIA's developer forum, 2025",
    "TF log 2024",
)
_H100_80 = _gpu(
    "NVIDIA H100 80GB HBM3",
    81559,
    78763,
    (9, 0),
    "assumption: 80 GB by NVIDIA's data sheet, as nvidia-smi commonly shows it",
    "TF log, TensorFlow 2.17 or later, year not given",
)
_RTX_3090 = _gpu(
    "NVIDIA GeForce RTX 3090",
    24576,
    22455,
    (8, 6),
    "24.00 GiB in tensorflow/tensorflow#45285",
    "TF log 2024, no display attached (with one, 2022: 21,342)",
)
_RTX_4090 = _gpu(
    "NVIDIA GeForce RTX 4090",
    24564,
    22288,
    (8, 9),
    "assumption: 24 GB by NVIDIA's data sheet, as nvidia-smi commonly shows it",
    "TF log of TensorFlow 2.15 (with a display attached, 2023: 21,286)",
)
_RTX_3060_LAPTOP = _gpu(
    "NVIDIA GeForce RTX 3060 Laptop GPU",
    6144,
    3586,
    (8, 6),
    "NVIDIA's data sheet, 6 GB",
    "TF log 2025 on a desktop in use (others: 3,472 to 4,126); browsers and a second "
    "monitor take more, so measure your own",
)
_A10G = _gpu(
    "NVIDIA A10G",
    23028,
    23028 - 1536 - 512,
    (8, 6),
    "assumption: 24 GB by NVIDIA's data sheet, less ECC, as nvidia-smi commonly shows it",
    "assumption: total less TensorFlow's reserve of 1,536 MiB and 512 MiB for the driver",
)

_V100_32 = _gpu(
    "Tesla V100-SXM2-32GB",
    32768,
    31134,
    (7, 0),
    "NVIDIA's data sheet, 32 GB HBM2",
    "TF log 2025 (2022: 30,988)",
)
_RTX_2080_TI = _gpu(
    "NVIDIA GeForce RTX 2080 Ti",
    11264,
    9637,
    (7, 5),
    "NVIDIA's data sheet, 11 GB",
    "TF log 2023 (2022: 9,629)",
)
_RTX_3060 = _gpu(
    "NVIDIA GeForce RTX 3060",
    12288,
    9709,
    (8, 6),
    "NVIDIA's data sheet, 12 GB",
    "TF log 2025 (2023: 9,599)",
)
_RTX_3070 = _gpu(
    "NVIDIA GeForce RTX 3070",
    8192,
    6017,
    (8, 6),
    "NVIDIA's data sheet, 8 GB",
    "TF log 2026 (2023: 5,578)",
)
_RTX_3080 = _gpu(
    "NVIDIA GeForce RTX 3080",
    10240,
    8056,
    (8, 6),
    "NVIDIA's data sheet, 10 GB",
    "TF log 2025 (2022: 8,066)",
)
_RTX_4070 = _gpu(
    "NVIDIA GeForce RTX 4070",
    12282,
    12282 - 1536 - 512,
    (8, 9),
    "12,282 MiB in a public benchmark's record of the machine, 2026",
    "assumption: total less TensorFlow's reserve of 1,536 MiB and 512 MiB for the driver",
)
_RTX_4080 = _gpu(
    "NVIDIA GeForce RTX 4080",
    16376,
    13512,
    (8, 9),
    "16,375 MiB in a llama.cpp log",
    "TF log 2025",
)
_A4000 = _gpu(
    "NVIDIA RTX A4000",
    16376,
    16376 - 1536 - 512,
    (8, 6),
    "assumption: 16 GB by NVIDIA's data sheet, as nvidia-smi commonly shows it",
    "assumption: total less TensorFlow's reserve of 1,536 MiB and 512 MiB for the driver",
)
_A6000 = _gpu(
    "NVIDIA RTX A6000",
    49140,
    46866,
    (8, 6),
    "assumption: 48 GB by NVIDIA's data sheet, as nvidia-smi commonly shows it",
    "TF log 2025 (2024: 46,874)",
)

_COLAB_RAM = (
    "13,609,422,848 bytes in W&B metadata of a Colab run, 2025; 0.9 to 1.4 GB of it taken in a "
    "fresh session by linux-blog.anracom.com, 2023"
)
_KAGGLE_RAM = (
    "33,662,345,216 bytes in W&B metadata of Kaggle runs, 2024; usable is the 30 GB that Kaggle "
    "states for a notebook"
)
_LAPTOP_RAM = "assumption: 16 GiB, of which a desktop with a browser leaves 11 GiB"


def _colab(name: str, description: str, *gpus: CatalogueGpu) -> CatalogueEntry:
    return CatalogueEntry(
        name=name,
        description=description,
        ram_total_bytes=13_609_422_848,
        ram_usable_bytes=13_609_422_848 - 1_400_000_000,
        ram_source=_COLAB_RAM,
        cpu_count=2,
        gpus=gpus,
    )


def _kaggle(name: str, description: str, *gpus: CatalogueGpu) -> CatalogueEntry:
    return CatalogueEntry(
        name=name,
        description=description,
        ram_total_bytes=33_662_345_216,
        ram_usable_bytes=30 * 10**9,
        ram_source=_KAGGLE_RAM,
        cpu_count=4,
        gpus=gpus,
    )


def _aws(name: str, ram_gib: int, cpu_count: int, gpu: CatalogueGpu) -> CatalogueEntry:
    return CatalogueEntry(
        name=name,
        description=f"Amazon EC2 {name.removeprefix('aws-')}",
        ram_total_bytes=ram_gib * GIB,
        ram_usable_bytes=ram_gib * GIB * 94 // 100,
        ram_source=_AWS,
        cpu_count=cpu_count,
        gpus=(gpu,),
    )


ENTRIES = (
    _colab("colab-cpu", "Google Colab, free, no accelerator"),
    _colab("colab-t4", "Google Colab, free, T4", _T4),
    CatalogueEntry(
        name="colab-l4",
        description="Google Colab, paid, L4",
        ram_total_bytes=53 * 10**9,
        ram_usable_bytes=51 * 10**9,
        ram_source="assumption: the 53 GB that Colab's resource panel is reported to show, 2024",
        cpu_count=12,
        gpus=(_L4,),
    ),
    CatalogueEntry(
        name="colab-a100",
        description="Google Colab, paid, A100",
        ram_total_bytes=89_632_796_672,
        ram_usable_bytes=89_632_796_672 - 2_000_000_000,
        ram_source=(
            "89,632,796,672 bytes in W&B metadata of Colab runs, 2024; "
            "assumption: 2 GB taken in a fresh session"
        ),
        cpu_count=12,
        gpus=(_A100_40,),
    ),
    _kaggle("kaggle-cpu", "Kaggle notebook, no accelerator"),
    _kaggle("kaggle-p100", "Kaggle notebook, P100", _P100),
    _kaggle("kaggle-t4x2", "Kaggle notebook, two T4", _T4, _T4),
    CatalogueEntry(
        name="github-actions-runner",
        description="GitHub's standard Linux runner for public repositories",
        ram_total_bytes=16 * 10**9,
        ram_usable_bytes=14 * 10**9,
        ram_source=(
            "16 GB by docs.github.com (GitHub-hosted runners); "
            "assumption: 2 GB taken by the system and the runner"
        ),
        cpu_count=4,
    ),
    CatalogueEntry(
        name="laptop-16gb",
        description="Laptop with 16 GiB of RAM, no NVIDIA GPU",
        ram_total_bytes=16 * GIB,
        ram_usable_bytes=11 * GIB,
        ram_source=_LAPTOP_RAM,
        cpu_count=8,
    ),
    CatalogueEntry(
        name="rtx3060-laptop",
        description="Laptop with an RTX 3060 of 6 GiB, in use as a desktop",
        ram_total_bytes=16 * GIB,
        ram_usable_bytes=11 * GIB,
        ram_source=_LAPTOP_RAM,
        cpu_count=8,
        gpus=(_RTX_3060_LAPTOP,),
    ),
    _aws("aws-g4dn.xlarge", 16, 4, _T4),
    _aws("aws-g5.xlarge", 16, 4, _A10G),
    _aws("aws-p3.2xlarge", 61, 8, _V100),
    _card("t4", _T4),
    _card("l4", _L4),
    _card("p100", _P100),
    _card("v100-16gb", _V100),
    _card("v100-32gb", _V100_32),
    _card("a10g", _A10G),
    _card("a4000", _A4000),
    _card("a6000", _A6000),
    _card("a100-40gb", _A100_40),
    _card("a100-80gb", _A100_80),
    _card("h100-80gb", _H100_80),
    _card("rtx2080ti", _RTX_2080_TI),
    _card("rtx3060", _RTX_3060),
    _card("rtx3070", _RTX_3070),
    _card("rtx3080", _RTX_3080),
    _card("rtx3090", _RTX_3090),
    _card("rtx4070", _RTX_4070),
    _card("rtx4080", _RTX_4080),
    _card("rtx4090", _RTX_4090),
)
