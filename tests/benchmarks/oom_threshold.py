"""Does the real out-of-memory error happen where the measurement says it does?

Run `python tests/benchmarks/oom_threshold.py` (Linux, needs TensorFlow; minutes a model). For each
model the step is measured without a limit (ops one after the other). The measurement gives the
peak in use and the memory *needed*: the peak and what fragmentation adds, found by playing the
recorded allocations through a model of the allocator. Then the same step is run, each time in a
fresh process, under real limits:

- needed - 5 % must raise `ResourceExhaustedError`, needed + 5 % must pass. The order of ops depends
  on timing, so needed is the interval over the traced steps; the lower end counts for the first,
  the upper for the second;
- the least limit that really passes is found by bisection, in steps of 1 MiB. Where it lies within
  5 % of the bare peak, fragmentation adds little; the last line counts both.

`extent` compares how far into memory the model of the allocator went with the real one.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from oomdoctor.measure.runner import Runner
from oomdoctor.measure.spec import ModelSpec, Trial
from oomdoctor.units import MIB

TOLERANCE = 0.05
STEPS = 4


def mlp() -> Any:
    """Return dense layers: mostly weights and slots."""
    import keras

    layers = [keras.layers.Dense(2048, activation="relu") for _ in range(3)]
    return _compiled([keras.Input((1024,)), *layers, keras.layers.Dense(10, activation="softmax")])


def cnn() -> Any:
    """Return convolutions with pooling: scratch memory of kernels matters."""
    import keras

    layers = []
    for filters in (32, 64, 128):
        layers.append(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
        layers.append(keras.layers.MaxPooling2D())
    layers += [keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
    return _compiled([keras.Input((64, 64, 3)), *layers])


def mobilenet() -> Any:
    """Return a deep network with many small activations."""
    import keras

    model = keras.applications.MobileNetV2(weights=None, input_shape=(64, 64, 3), classes=10)
    return _compiled(model)


def lstm() -> Any:
    """Return a recurrent network: tensor lists in a loop."""
    import keras

    return _compiled(
        [
            keras.Input((60, 64)),
            keras.layers.LSTM(128, return_sequences=True),
            keras.layers.LSTM(128),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def transformer() -> Any:
    """Return two encoder blocks over token ids."""
    import keras
    from keras import layers

    inputs = keras.Input((128,), dtype="int32")
    x = layers.Embedding(5000, 128)(inputs)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, "gelu")(x)))
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    return _compiled(keras.Model(inputs, outputs))


def gru() -> Any:
    """Return another recurrent network, on longer sequences."""
    import keras

    return _compiled(
        [keras.Input((100, 32)), keras.layers.GRU(96), keras.layers.Dense(10, "softmax")]
    )


def recommender() -> Any:
    """Return two embeddings: sparse gradients, updates by row."""
    import keras
    from keras import layers

    user, item = (keras.Input((1,), dtype="int32") for _ in range(2))
    left = layers.Flatten()(layers.Embedding(20000, 32)(user))
    right = layers.Flatten()(layers.Embedding(8000, 32)(item))
    x = layers.Dense(256, "relu")(layers.Concatenate()([left, right]))
    return _compiled(keras.Model([user, item], layers.Dense(2, "softmax")(x)))


def patches() -> Any:
    """Return attention over patches of a picture."""
    import keras
    from keras import layers

    inputs = keras.Input((64, 64, 3))
    x = layers.Reshape((64, 96))(layers.Conv2D(96, 8, strides=8)(inputs))
    for _ in range(3):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 24)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(96)(layers.Dense(384, "gelu")(x)))
    outputs = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    return _compiled(keras.Model(inputs, outputs))


BATCHES = {"mlp": 1024, "cnn": 64, "mobilenet": 64, "lstm": 256, "transformer": 16, "gru": 512,
           "recommender": 16384, "patches": 48}  # fmt: skip


def _compiled(model: Any) -> Any:
    import keras

    if isinstance(model, list):
        model = keras.Sequential(model)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def spec_of(name: str) -> ModelSpec:
    """Return how a worker builds one of the models above."""
    return ModelSpec(f"{Path(__file__).stem}:{name}", sys_path=(str(Path(__file__).parent),))


def run(name: str, batch_size: int, limit_bytes: int | None) -> Trial:
    """Return one trial in a fresh process."""
    with Runner(spec_of(name), limit_bytes=limit_bytes) as runner:
        return runner.run(batch_size, steps=STEPS)


def passes(name: str, batch_size: int, limit_mib: int) -> bool:
    """Return whether the step passes under a limit; any end but an OOM is an error."""
    trial = run(name, batch_size, limit_mib * MIB)
    if trial.outcome == "died":
        raise RuntimeError(f"{name} under {limit_mib} MiB: {trial.message}")
    return trial.outcome == "fits"


def least_limit(name: str, batch_size: int, fails: int, works: int) -> int:
    """Return the least limit in MiB that passes, between one that fails and one that works."""
    while works - fails > 1:
        middle = (fails + works) // 2
        if passes(name, batch_size, middle):
            works = middle
        else:
            fails = middle
    return works


def _outside(least: int, low: int, high: int) -> float:
    """Return how far a limit lies outside an interval, as a share of its nearer end."""
    return min(0.0, least / low - 1) or max(0.0, least / high - 1)


def report(name: str) -> tuple[bool, bool]:
    """Print one model's line; return whether both bounds hold, of needed and of the bare peak."""
    began = time.monotonic()
    batch_size = BATCHES[name]
    with Runner(spec_of(name)) as runner:
        trace = runner.run(batch_size, steps=STEPS, trace=True).trace
    assert trace is not None
    assert trace.needed_bytes is not None
    assert trace.needed_low_bytes is not None
    needed, needed_low, peak = trace.needed_bytes, trace.needed_low_bytes, trace.peak_bytes
    simulated, real = trace.simulated_extent_bytes, trace.extent_bytes
    assert simulated is not None
    assert real is not None
    low, high = int(needed_low * (1 - TOLERANCE)) // MIB, int(needed * (1 + TOLERANCE)) // MIB
    low_fails = not passes(name, batch_size, low)
    high_works = passes(name, batch_size, high)
    fails, works = low, high
    while not high_works and not passes(name, batch_size, works):
        fails, works = works, int(works * 1.1)
    while not low_fails and passes(name, batch_size, fails):
        fails, works = int(fails * 0.9), fails
    least = least_limit(name, batch_size, fails, works) * MIB
    print(
        f"{name:<12} {batch_size:>5} {peak / MIB:>9.1f} "
        f"{needed_low / MIB:>4.0f}-{needed / MIB:<4.0f} "
        f"{f'{low} ' + ('OOM' if low_fails else 'PASSES'):>12} "
        f"{f'{high} ' + ('passes' if high_works else 'OOM'):>12} "
        f"{least / MIB:>6.0f} {_outside(least, needed_low, needed):>+10.1%} "
        f"{least / peak - 1:>+9.1%} "
        f"{simulated / real - 1:>+7.1%} {time.monotonic() - began:>6.0f}",
        flush=True,
    )
    return low_fails and high_works, abs(least / peak - 1) <= TOLERANCE


def main() -> int:
    """Print the table; the exit code says whether every bound holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(BATCHES), help="which models to run")
    print(
        f"{'model':<12} {'batch':>5} {'peak MiB':>9} {'needed':>9} {'-5 %':>12} {'+5 %':>12} "
        f"{'least':>6} {'vs needed':>10} {'vs peak':>9} {'extent':>7} {'s':>6}"
    )
    rows = [report(name) for name in parser.parse_args().models]
    held, near = (sum(column) for column in zip(*rows, strict=True))
    print(
        f"The error happens within 5 % of what is needed in {held} of {len(rows)} models, "
        f"and within 5 % of the bare peak in {near}."
    )
    return 0 if held == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
