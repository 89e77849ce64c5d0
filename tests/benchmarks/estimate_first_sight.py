"""How far the estimate is from both truths, on sets of models of which one is kept for the end.

    python tests/benchmarks/estimate_first_sight.py --set second
    python tests/benchmarks/estimate_first_sight.py --set second --verify

`first` are the models of `estimate_accuracy.py`, `second` and `last` those of the modules of that
name. Truths are those of `estimate_two_truths.py`; what is missing there is not scored. A truth is
inside when the interval holds the median of its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import estimate_models
from estimate_two_truths import CASES, SETS, fields_of, read_truths

from oomdoctor.allocator import settings_for_the_cpu

DEVICES = ("cpu", "card")


def estimates_of(case: estimate_models.Case, *, verify: bool) -> list[dict[str, Any]]:
    """Return a row for each batch size and device. Runs in a child process."""
    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.estimate.simulation import Simulation
    from oomdoctor.estimate.step import estimate
    from oomdoctor.model.fields import make, specs_of
    from oomdoctor.worker.recording import record_fed

    model = estimate_models.compiled(case, "adam", "float32")
    fields = fields_of(case, model)
    traced = trace_step(model, batch=specs_of(fields, None))
    scaled = None
    if verify:
        scaled = record_fed(
            model, fields, "train", traced.variables, lambda size: make(fields, size)
        )
    rows = []
    for device in DEVICES:
        simulation = Simulation(traced, device="cpu" if device == "cpu" else "gpu")
        if scaled is not None:
            simulation.recorded = partial(scaled.run, scratch=device == "cpu")
        for batch in case.batches:
            found = estimate(simulation, batch)
            named = {layer.name: layer.bytes_at_peak for layer in found.layers}
            rows.append(
                {
                    "batch": batch,
                    "device": device,
                    "estimate": found.peak_bytes,
                    "low": found.low_bytes,
                    "high": found.high_bytes,
                    "allowed": sum(size for _, size in found.allowances),
                    "unnamed": named.get("(outside layers)", 0) / found.peak_bytes,
                    "adds_up": sum(named.values()) == found.peak_bytes,
                }
            )
    return rows


def scored(names: list[str], *, verify: bool) -> Iterator[dict[str, Any]]:
    """Yield a row per case and device that has a truth."""
    truths = read_truths()
    for name in names:
        if not any((name, batch) in truths for batch in CASES[name].batches):
            continue
        command = [sys.executable, __file__, "--one", name, *(["--verify"] if verify else [])]
        settings = {**settings_for_the_cpu(), "TF_NUM_INTEROP_THREADS": "1"} if verify else {}
        environ = {**os.environ, **settings, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            print(f"{name}: {done.stderr.strip()[-300:]}", flush=True)
            continue
        for row in json.loads(done.stdout.splitlines()[-1]):
            truth = truths.get((name, row["batch"]))
            if truth is not None:
                measured = truth[row["device"]]
                yield {
                    "model": name, **row, "measured": measured,
                    "lowest": truth[row["device"] + "_lowest"],
                    "highest": truth[row["device"] + "_highest"],
                    "error": row["estimate"] / measured - 1,
                    "inside": row["low"] <= measured <= row["high"],
                    # What a GPU's libraries may take besides is no part of this truth.
                    "half": (row["high"] - row["low"] - row["allowed"]) / 2 / row["estimate"],
                }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the figures of several cases in one line."""
    errors = sorted(abs(row["error"]) for row in rows)
    p95 = errors[min(len(errors) - 1, int(0.95 * len(errors)))]
    inside = sum(row["inside"] for row in rows)
    width = median(row["half"] for row in rows)
    return (
        f"{len(rows)} cases of {len({row['model'] for row in rows})} models: median "
        f"{median(errors):.1%}, 95th percentile {p95:.1%}, worst {errors[-1]:.1%}; "
        f"{inside} inside ({inside / len(rows):.0%}), half-width {width:.1%}"
    )


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=SETS, action="append", dest="sets")
    parser.add_argument("--models", nargs="+", default=None)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--output", type=Path, help="keep the rows as JSON")
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(estimates_of(CASES[arguments.one], verify=arguments.verify)))
        return
    names = arguments.models or [
        case.name for key in arguments.sets or ["second"] for case in SETS[key]
    ]
    rows = []
    for row in scored(names, verify=arguments.verify):
        rows.append(row)
        print(
            f"{row['model']:24} {row['batch']:6} {row['device']:5} {row['measured'] / 1e6:8.1f} MB "
            f"[{row['lowest'] / 1e6:.1f}, {row['highest'] / 1e6:.1f}]  {row['error']:+7.1%}  "
            f"{'inside' if row['inside'] else 'OUTSIDE'} ±{row['half']:.0%}  "
            f"unnamed {row['unnamed']:.0%}{'' if row['adds_up'] else ' SUMS DIFFER'}",
            flush=True,
        )
    if arguments.output:
        arguments.output.write_text(json.dumps(rows))
    for device in DEVICES:
        part = [row for row in rows if row["device"] == device]
        if part:
            print(f"{device}: {summary(part)}")
    print(f"most unnamed {max(row['unnamed'] for row in rows):.0%}")


if __name__ == "__main__":
    main()
