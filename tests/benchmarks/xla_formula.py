"""Is the peak that XLA's layout of buffers tells the peak that is measured?

On a card this cannot be tried here, but XLA compiles for the CPU in the same way, and its program
can be run: the step is lowered from shapes alone and compiled, the peak is computed from its
buffers as for a card, then the same step runs twice under TensorFlow's GPU allocator, and the
second run's peak is measured. The allocator's memory is one region, as on a GPU; one that grows
hands out chunks of up to twice the request.

    .venv/bin/python tests/benchmarks/xla_formula.py              # all models, about ten minutes
    .venv/bin/python tests/benchmarks/xla_formula.py mlp unet     # some
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MODELS = {
    "mlp": 4096,
    "cnn": 64,
    "vgg_like": 48,
    "unet": 32,
    "unet_batch_norm": 32,
    "transformer": 16,
    "language_model": 32,
    "vision_transformer": 32,
    "recommender": 32768,
    "custom_train_step": 64,
    "autoencoder": 64,
    "resnet50": 32,
    "mobilenet_v2": 48,
    "lstm": 256,
}
PRECISIONS = ("float32", "mixed_float16")
WITHIN = 0.03

REGION_BYTES = 12 * 2**30
"""Address space; only what a step touches becomes memory."""


def main(names: list[str]) -> int:
    """Print a table and return 1 if a ratio is out of bounds."""
    print("| model | batch | precision | static MiB | measured MiB | static ÷ measured |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    for name in names or list(MODELS):
        for precision in PRECISIONS:
            static, measured = figures(name, precision, MODELS[name])
            worst = max(worst, abs(static / measured - 1))
            print(
                f"| {name} | {MODELS[name]} | {precision} | {static / 2**20:.1f} "
                f"| {measured / 2**20:.1f} | {static / measured:.3f} |",
                flush=True,
            )
    print(f"\nAt most {worst:.1%} apart.")
    return int(worst > WITHIN)


def figures(name: str, precision: str, batch: int) -> tuple[int, int]:
    """Return the static and the measured peak of one model, from a process of its own."""
    from oomdoctor.allocator import settings_for_the_cpu

    command = [sys.executable, __file__, "--child", name, precision, str(batch)]
    environ = {**os.environ, **settings_for_the_cpu(), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        raise SystemExit(f"{name}, {precision}: {done.stderr.strip()[-2000:]}")
    static, measured = json.loads(done.stdout.splitlines()[-1])
    return static, measured


def _both(name: str, precision: str, batch: int) -> tuple[int, int]:
    import tensorflow as tf

    sys.path.insert(0, str(Path(__file__).parent))
    from estimate_models import CASES, compiled

    from oomdoctor.estimate.keras_model import traced_function

    region = tf.raw_ops.Empty(shape=[REGION_BYTES // 16], dtype=tf.complex128, init=False)
    del region
    case = next(case for case in CASES if case.name == name)
    model = compiled(case, "adam", precision)
    with traced_function(model, jit=True) as step:
        specs = [
            tf.TensorSpec((batch, *spec.shape[1:]), spec.dtype)
            for spec in tf.nest.flatten(step.structured_input_signature)
        ]
        static = _static_peak(step, specs)
        data = [_zeros(spec) for spec in specs]
        gc.collect()
        return static, _measured_peak(step, data)


def _static_peak(step: Any, specs: list[Any]) -> int:
    from tensorflow.python.eager.polymorphic_function import compiler_ir

    from oomdoctor.xla.buffers import read_assignment

    translate = compiler_ir.from_concrete_function(step, specs)
    return read_assignment(translate(stage="optimized_hlo_proto_serialized")).peak_bytes


def _zeros(spec: Any) -> Any:
    import tensorflow as tf

    return tf.zeros(spec.shape, spec.dtype)


def _measured_peak(step: Any, data: list[Any]) -> int:
    import tensorflow as tf

    def run() -> None:
        # Flat, as the program takes it: variables and batches are its arguments.
        for output in tf.nest.flatten(step._call_flat(data, step.captured_inputs)):
            output.numpy()

    run()
    tf.config.experimental.reset_memory_stats("CPU:0")
    run()
    return int(tf.config.experimental.get_memory_info("CPU:0")["peak"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(_both(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
    else:
        raise SystemExit(main(sys.argv[1:]))
