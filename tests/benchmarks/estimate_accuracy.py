"""How far the estimate is from the measured peak, beside what a user would use instead.

    python tests/benchmarks/estimate_accuracy.py --quick
    python tests/benchmarks/estimate_accuracy.py --output build/accuracy --truths build/truths.csv

Truth is measured (`estimate_truth.py`): TensorFlow's BFC allocator, inter-op threads = 1, the
median peak of several steps of several graphs; lowest and highest stand beside it. Measured peaks
are kept in the `--truths` file and used again, so a run can be interrupted. With `--spread` the
same cases are measured with TensorFlow's own number of threads, too. The limits are the ones the
estimate promises; the upper bound must hold for the highest step seen, not only for the median.
The exit code says whether they hold.

The alternatives: the sum of all layers' outputs (a popular snippet), torchinfo's rule (outputs
twice), four times the parameters, and Grappler's own estimate for a virtual cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

import estimate_models as models
import estimate_truth as truths

TRUTHS = Path(__file__).with_name("estimate_truths.csv")
MEDIAN_LIMIT, P95_LIMIT = 0.035, 0.12
QUICK = ("mlp", "unet", "recommender", "transformer", "autoencoder")
OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "mixed_float16")
ALTERNATIVES = ("sum_of_outputs", "twice_outputs", "four_times_parameters", "grappler")


def estimates_of(case: models.Case, optimizer: str, precision: str, grappler: bool) -> list[Any]:
    """Return a row per batch size: the estimate and the alternatives. Runs in a child process."""
    import keras

    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.estimate.simulation import Simulation
    from oomdoctor.estimate.step import estimate

    keras.backend.clear_session()
    model = models.compiled(case, optimizer, precision)
    simulation = Simulation(trace_step(model, batch=models.specs(case, model, None)))
    parameters = 4 * model.count_params()
    outputs = _outputs_bytes(model)
    rows = []
    for batch in case.batches:
        found = estimate(simulation, batch)
        rows.append(
            {
                "batch": batch,
                "estimate": found.peak_bytes,
                "low": found.low_bytes,
                "high": found.high_bytes,
                "sum_of_outputs": batch * outputs + parameters if outputs else None,
                "twice_outputs": 2 * batch * outputs + parameters if outputs else None,
                "four_times_parameters": 4 * parameters,
                "grappler": _grappler(case, model, batch) if grappler else None,
            }
        )
    return rows


def _outputs_bytes(model: Any) -> int | None:
    """Return the bytes of all layers' outputs for one sample, as the snippet counts them."""
    total = 0
    for layer in model.layers:
        try:
            outputs = layer.output
        except (AttributeError, ValueError):
            return None
        for output in outputs if isinstance(outputs, list) else [outputs]:
            size = 4
            for dim in output.shape[1:]:
                size *= dim
            total += size
    return total


def _grappler(case: models.Case, model: Any, batch: int) -> int | None:
    import tensorflow as tf
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster, item

    x, y = models.specs(case, model, batch)
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    graph = step.get_concrete_function(x, y).graph
    meta = tf.compat.v1.train.export_meta_graph(graph_def=graph.as_graph_def(), graph=graph)
    for result in graph.outputs:
        meta.collection_def["train_op"].node_list.value.append(result.op.name)
    device = device_properties_pb2.NamedDevice(
        name="/job:localhost/replica:0/task:0/device:CPU:0",
        properties=device_properties_pb2.DeviceProperties(
            type="CPU", frequency=2000, num_cores=2, memory_size=64 << 30
        ),
    )
    try:
        peaks = cluster.Cluster(devices=[device]).DeterminePeakMemoryUsage(item.Item(meta))
    except Exception:  # TensorFlow's own tool gives up on some graphs
        return None
    return max((peak for peak, _ in peaks.values()), default=None)


def _child(case: models.Case, settings: list[tuple[str, str]], grappler: bool) -> dict[str, Any]:
    """Return the rows by optimizer and precision, from one process per model."""
    command = [sys.executable, __file__, "--one", case.name, json.dumps(settings)]
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command + (["--grappler"] if grappler else []),
        capture_output=True, text=True, check=False, env=environ,
    )  # fmt: skip
    if done.returncode:
        print(f"{case.name}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return {}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(arguments: argparse.Namespace) -> Any:
    """Return a frame with a row per case."""
    import pandas as pd

    known = truths.read_truths(arguments.truths)
    held_out = {case.name for case in models.HELD_OUT}
    rows = []
    for case in models.CASES:
        if arguments.models and case.name not in arguments.models:
            continue
        settings = [
            (optimizer, precision)
            for precision in arguments.precisions
            for optimizer in OPTIMIZERS
            if any((case.name, optimizer, precision, b, 1) in known for b in case.batches)
        ]
        found = _child(case, settings, arguments.grappler) if settings else {}
        for setting, cases in found.items():
            for row in cases:
                key = (case.name, *setting.split(), row["batch"])
                truth, free = known.get((*key, 1)), known.get((*key, 0))
                if truth is None:
                    continue
                named = dict(zip(truths.COLUMNS[:4], key, strict=True))
                spread = f"{free['lowest']}-{free['highest']}" if free else ""
                rows.append(
                    {**named, "held_out": case.name in held_out, "measured": truth["peak"],
                     "lowest": truth["lowest"], "highest": truth["highest"],
                     "threads_spread": spread, **row}
                )  # fmt: skip
    frame = pd.DataFrame(rows)
    for name in (
        "estimate",
        "sum_of_outputs",
        "twice_outputs",
        "four_times_parameters",
        "grappler",
    ):
        frame[f"{name}_error"] = frame[name] / frame["measured"] - 1
    return frame


def verdict(frame: Any, above: int | None) -> bool:
    """Print the figures and return whether the limits hold.

    Args:
        frame: A row per case.
        above: In how many cases a step may lie above the upper bound; None is one of twenty.
    """
    holds = True
    sets = {"all": frame, "calibration": frame[~frame.held_out], "held out": frame[frame.held_out]}
    for label, part in sets.items():
        if part.empty:
            continue
        errors = part.estimate_error.abs()
        below = int((part.high < part.highest).sum())
        print(
            f"{label}: {len(part)} cases of {part.model.nunique()} models, median "
            f"{errors.median():.1%}, 95th percentile {errors.quantile(0.95):.1%}, worst "
            f"{errors.max():.1%}; upper bound below the highest peak in {below}"
        )
        if label == "all":
            holds = errors.median() <= MEDIAN_LIMIT and errors.quantile(0.95) <= P95_LIMIT
            holds = holds and below <= (len(part) // 20 if above is None else above)
    for name in ALTERNATIVES:
        errors = frame[f"{name}_error"].dropna().abs()
        if len(errors):
            worst = errors.quantile(0.95)
            print(f"  {name}: median {errors.median():.0%}, 95th percentile {worst:.0%}")
    return bool(holds)


def scatter(frame: Any) -> str:
    """Return the estimate over the measured peak as SVG, both on a logarithmic scale."""
    from math import log10

    low, high = 6.5, log10(float(frame[["measured", "estimate"]].max().max())) + 0.1
    side, edge = 520, 50

    def place(value: float) -> float:
        return (log10(value) - low) / (high - low) * side

    marks = []
    for row in frame.itertuples():
        x, y = edge + place(row.measured), edge + side - place(row.estimate)
        colour = "#c0392b" if row.held_out else "#2c6fbb"
        label = f"{row.model} {row.optimizer} {row.precision} {row.batch}"
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7">'
            f"<title>{label}: {row.estimate_error:+.1%}</title></circle>"
        )
    whole = side + 2 * edge
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{whole}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect x="{edge}" y="{edge}" width="{side}" height="{side}" fill="none" stroke="#888"/>'
        f'<line x1="{edge}" y1="{edge + side}" x2="{edge + side}" y2="{edge}" stroke="#888"/>'
        f'<text x="{edge}" y="{whole - 15}">measured peak, bytes (logarithmic) →</text>'
        f'<text x="{edge}" y="{edge - 15}">↑ estimated; blue calibration, red held out</text>'
        + "".join(marks)
        + "</svg>\n"
    )


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few small models")
    parser.add_argument("--models", nargs="+", default=None)
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS))
    parser.add_argument(
        "--truths", type=Path, default=Path(__file__).with_name("estimate_truths.csv")
    )
    parser.add_argument("--output", type=Path, default=Path("estimate_accuracy"))
    parser.add_argument("--spread", action="store_true", help="also measure with all threads")
    parser.add_argument("--no-measure", action="store_true", help="use the truths there are")
    parser.add_argument("--grappler", action="store_true", help="also ask Grappler (traces again)")
    parser.add_argument(
        "--above", type=int, help="cases above the bound that are tolerated; default: one of twenty"
    )
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, settings = arguments.one
        case = next(case for case in models.CASES if case.name == name)
        found = {
            f"{optimizer} {precision}": estimates_of(case, optimizer, precision, arguments.grappler)
            for optimizer, precision in json.loads(settings)
        }
        print(json.dumps(found))
        return 0
    if arguments.quick:
        arguments.models = list(QUICK)
    if not arguments.no_measure:
        wanted = [
            # Half precision is slow on a CPU, so large batches are left out there.
            (case.name, optimizer, precision, case.batches[: 2 if precision == "float32" else 1])
            for precision in arguments.precisions
            for optimizer in OPTIMIZERS
            for case in models.CASES
            if not arguments.models or case.name in arguments.models
        ]
        for threads in (1, 0) if arguments.spread else (1,):
            for line in truths.measure(wanted, arguments.truths, threads=threads):
                print(line, file=sys.stderr)
    frame = table(arguments)
    frame.to_csv(arguments.output.with_suffix(".csv"), index=False)
    arguments.output.with_suffix(".svg").write_text(scatter(frame))
    shown = frame[["model", "optimizer", "precision", "batch", "held_out", "measured",
                   "lowest", "highest", "estimate", "low", "high", "estimate_error",
                   "sum_of_outputs_error", "twice_outputs_error",
                   "four_times_parameters_error", "grappler_error", "threads_spread"]]  # fmt: skip
    print(shown.to_string(index=False, float_format=lambda value: f"{value:+.1%}"))
    return 0 if verdict(frame, arguments.above) else 1


if __name__ == "__main__":
    sys.exit(main())
