"""The largest batch on a card, found by compiling, and whether the next size was shown to fail.

Runs `oomdoctor tune --machine` for each model, from an empty cache.

    nice -n 10 .venv/bin/python tests/benchmarks/xla_tune.py [--machine colab-t4] [model ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MACHINE = "colab-t4"
NAMES = ("resnet50", "mobilenet_v2", "bert_base", "unet", "language_model", "vision_transformer")


def _builder(name: str) -> Callable[[], Any]:
    def build() -> Any:
        from xla_cards import MODELS

        model, loss = MODELS[name][1]()
        model.compile(optimizer="adam", loss=loss)
        return model

    return build


globals().update({name: _builder(name) for name in NAMES})


def main(arguments: list[str]) -> int:
    """Print a row for each model."""
    machine = MACHINE
    if arguments[:1] == ["--machine"]:
        machine, arguments = arguments[1], arguments[2:]
    print(
        "| model | largest batch | peak, GiB | up to | next size, does not fit | up to "
        f"| compiled | seconds |\n|{'---|' * 8}"
    )
    for name in arguments or NAMES:
        tuning = tuned(name, machine)["tuning"]
        trials = {trial["batch_size"]: trial for trial in tuning["trials"]}
        best, above = trials[tuning["batch_size"]], tuning["does_not_fit"]
        proof = "–" if above is None else f"{above}{'' if tuning['is_proved'] else ' (not next)'}"
        upper = "–" if above is None else _gib(trials[above]["upper_bytes"])
        order = " ".join(str(trial["batch_size"]) for trial in tuning["trials"])
        seconds = sum(trial["seconds"] for trial in trials.values())
        print(
            f"| {name} | {tuning['batch_size']} | {_gib(best['peak_bytes'])} "
            f"of {_gib(tuning['budget_bytes'])} | {_gib(best['upper_bytes'])} | {proof} | {upper} "
            f"| {len(trials)}: {order} | {seconds:.0f} |",
            flush=True,
        )
    return 0


def tuned(name: str, machine: str) -> dict[str, Any]:
    """Return the report of the command."""
    command = [sys.executable, "-m", "oomdoctor", "tune", f"xla_tune:{name}"]
    options = ["--machine", machine, "--time", "3600", "--no-cache", "--format", "json"]
    with tempfile.TemporaryDirectory() as cache:
        told = subprocess.run(
            [*command, *options],
            capture_output=True,
            check=False,
            cwd=Path(__file__).parent,
            env={**os.environ, "XDG_CACHE_HOME": cache, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    if told.returncode != 0:
        raise SystemExit(f"{name}: {told.stderr.decode()[-2000:]}")
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
