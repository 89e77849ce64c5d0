"""How far a step's memory differs between cards when none of them is short of memory.

XLA is given each card's own facts but one: every card has 1 TiB. What is left of the difference
comes from the compute capability and from XLA's model of speed, which decides what to fuse. The
table says what a compilation for one card would be worth for another of its group.

    nice -n 10 .venv/bin/python tests/benchmarks/xla_sharing.py [model ...]
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import defaultdict

from xla_cards import MODELS, PRECISIONS

ROOMY = 2**40
NAMES = ("resnet50", "mobilenet_v2", "efficientnet_b0", "unet", "language_model", "vgg16")


def compare(name: str, precision: str) -> None:
    """Compile one model for every card and print the spread by compute capability."""
    import keras

    from oomdoctor.xla.cache import compile_or_recall
    from oomdoctor.xla.cards import CARDS
    from oomdoctor.xla.lowering import lowering

    keras.config.set_dtype_policy(precision)
    batch, build = MODELS[name]
    model, loss = build()
    model.compile(optimizer="adam", loss=loss)
    with lowering(model) as traced:
        step = traced.at(batch)
    groups: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for card in CARDS:
        roomy = dataclasses.replace(card, memory_bytes=ROOMY)
        peak = compile_or_recall(step.hlo, roomy).peak_bytes
        groups[card.compute_capability][card.name] = peak
    for (major, minor), peaks in groups.items():
        low, high = min(peaks.values()), max(peaks.values())
        each = " ".join(f"{card} {peak / 2**20:.1f}" for card, peak in peaks.items())
        print(
            f"| {name} | {precision} | {major}.{minor} | {high / low - 1:.2%} | {each} |",
            flush=True,
        )


def main(names: list[str]) -> int:
    """Compare each model in a process of its own."""
    print(
        "| model | precision | compute capability | spread | peaks in MiB |\n|---|---|---|---|---|"
    )
    failed = 0
    for name in names or NAMES:
        for precision in PRECISIONS:
            environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            command = [sys.executable, __file__, "--child", name, precision]
            failed |= subprocess.run(command, check=False, env=environ).returncode
    return int(failed != 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        compare(sys.argv[2], sys.argv[3])
    else:
        raise SystemExit(main(sys.argv[1:]))
