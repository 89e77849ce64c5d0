"""How long an estimate takes, against one trace of the same train step.

    python tests/benchmarks/estimate_speed.py
    python tests/benchmarks/estimate_speed.py --pixels 64 --rounds 5

Both in one process and in turns, on models built anew each time. The trace is the one `fit` makes
before its first step. The estimate is `oomdoctor.estimate_memory` on the live model, from nothing
to the figure. Processor time is printed beside the clock: other programs disturb it less.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

LIMIT = 1.2


def build(name: str, pixels: int) -> Any:
    """Return a compiled model of `keras.applications`, its optimizer built as after one step."""
    import keras

    keras.backend.clear_session()
    factory = getattr(keras.applications, name)
    model = factory(weights=None, input_shape=(pixels, pixels, 3))
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def trace(model: Any) -> None:
    """Trace the step as `fit` does."""
    import tensorflow as tf

    x = tf.TensorSpec((None, *model.input_shape[1:]), "float32")
    y = tf.TensorSpec((None,), "int32")

    @tf.autograph.experimental.do_not_convert
    def one_step(data: Any) -> Any:
        return model.train_step(data)

    tf.function(one_step, reduce_retracing=True).get_concrete_function((x, y))


def estimate(model: Any) -> None:
    """Estimate the step from nothing."""
    import oomdoctor

    oomdoctor.estimate_memory(model, batch_size=32)


def seconds(work: Callable[[Any], None], model: Any) -> tuple[float, float]:
    """Return the time by the clock and by the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work(model)
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ResNet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    trace(build(arguments.model, arguments.pixels))  # imports and first-time work of Keras
    estimate(build("MobileNet", 32))
    rows = []
    for _ in range(arguments.rounds):
        traced = seconds(trace, build(arguments.model, arguments.pixels))
        estimated = seconds(estimate, build(arguments.model, arguments.pixels))
        rows.append((*traced, *estimated))
        print("trace {:.2f} s ({:.2f}), estimate {:.2f} s ({:.2f})".format(*rows[-1]), flush=True)
    clock = median(row[2] for row in rows) / median(row[0] for row in rows)
    processor = median(row[3] for row in rows) / median(row[1] for row in rows)
    print(f"estimate / trace: {clock:.2f} by the clock, {processor:.2f} by processor time")
    return 0 if min(clock, processor) <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
