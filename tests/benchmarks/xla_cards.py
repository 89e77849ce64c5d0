"""What XLA takes on a card, what TensorFlow's own executor would, and what recomputation saves.

Rows are written to a CSV file as they are found, and those that are there are skipped, so the run
can be stopped and resumed. One process per model and precision; the compiler runs beside it.

    nice -n 10 .venv/bin/python tests/benchmarks/xla_cards.py             # hours on two busy cores
    .venv/bin/python tests/benchmarks/xla_cards.py resnet50 --table       # some; the table so far
    nice -n 10 .venv/bin/python tests/benchmarks/xla_cards.py --executor  # simulate all again
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CARDS = ("t4", "a100-40gb", "rtx3060")
PRECISIONS = ("float32", "mixed_float16")
TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("model", "batch", "precision", "card", "xla", "without_recomputation", "executor",
           "lowering_seconds", "compile_seconds", "named_share", "idle_share",
           "plugin")  # fmt: skip

Builder = Callable[[], tuple[Any, Any]]
"""Returns a model and its loss."""


def _application(name: str) -> Builder:
    def build() -> tuple[Any, Any]:
        import keras

        factory = getattr(keras.applications, name)
        return factory(weights=None, classes=1000), "sparse_categorical_crossentropy"

    return build


def _logits_loss() -> Any:
    import keras

    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _encoder(x: Any, width: int, heads: int, *, causal: bool = False) -> Any:
    from keras import layers

    attended = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(
        x, x, use_causal_mask=causal
    )
    x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.1)(attended)]))
    hidden = layers.Dense(width)(layers.Dense(4 * width, "gelu")(x))
    return layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.1)(hidden)]))


def _bert(width: int, blocks: int, length: int) -> Builder:
    def build() -> tuple[Any, Any]:
        import keras
        from keras import layers

        tokens = keras.Input((length,), dtype="int32", name="tokens")
        places = keras.Input((length,), dtype="int32", name="places")
        x = layers.Add()(
            [layers.Embedding(30522, width)(tokens), layers.Embedding(512, width)(places)]
        )
        x = layers.Dropout(0.1)(layers.LayerNormalization()(x))
        for _ in range(blocks):
            x = _encoder(x, width, width // 64)
        return keras.Model([tokens, places], layers.Dense(2, dtype="float32")(x)), _logits_loss()

    return build


def language_model() -> tuple[Any, Any]:
    import keras
    from keras import layers

    tokens = keras.Input((512,), dtype="int32")
    x = layers.Embedding(16000, 512)(tokens)
    for _ in range(6):
        x = _encoder(x, 512, 8, causal=True)
    return keras.Model(tokens, layers.Dense(16000, dtype="float32")(x)), _logits_loss()


def vision_transformer() -> tuple[Any, Any]:
    import keras
    from keras import layers

    inputs = keras.Input((224, 224, 3))
    x = layers.Reshape((196, 768))(layers.Conv2D(768, 16, strides=16)(inputs))
    for _ in range(12):
        x = _encoder(x, 768, 12)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(1000, dtype="float32")(x)), _logits_loss()


def unet() -> tuple[Any, Any]:
    import keras
    from keras import layers

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    inputs = x = keras.Input((256, 256, 3))
    skips = []
    for filters in (64, 128, 256, 512):
        x = block(x, filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, 1024)
    for filters, skip in zip((512, 256, 128, 64), reversed(skips), strict=True):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = block(layers.Concatenate()([x, skip]), filters)
    return keras.Model(inputs, layers.Conv2D(21, 1, dtype="float32")(x)), _logits_loss()


def mlp() -> tuple[Any, Any]:
    import keras
    from keras import layers

    hidden = [layers.Dense(4096, "relu") for _ in range(4)]
    return keras.Sequential([keras.Input((1024,)), *hidden, layers.Dense(1)]), "mse"


MODELS: dict[str, tuple[int, Builder]] = {
    "mlp": (4096, mlp),
    "resnet50": (256, _application("ResNet50")),
    "mobilenet_v2": (128, _application("MobileNetV2")),
    "efficientnet_b0": (64, _application("EfficientNetB0")),
    "vgg16": (64, _application("VGG16")),
    "densenet121": (64, _application("DenseNet121")),
    "inception_v3": (64, _application("InceptionV3")),
    "xception": (32, _application("Xception")),
    "convnext_tiny": (32, _application("ConvNeXtTiny")),
    "unet": (16, unet),
    "vision_transformer": (32, vision_transformer),
    "language_model": (16, language_model),
    "bert_base": (32, _bert(768, 12, 384)),
    "bert_large": (12, _bert(1024, 24, 384)),
}


def main(arguments: list[str]) -> int:
    """Measure what is missing, each in a process of its own, and print the table."""
    names = [name for name in arguments if not name.startswith("-")] or list(MODELS)
    failed = 0
    for name in names if "--table" not in arguments else ():
        for precision in PRECISIONS:
            known = {(r["model"], r["precision"], r["card"]) for r in read_rows()}
            is_known = all((name, precision, card) in known for card in CARDS)
            if is_known and "--executor" not in arguments:
                continue
            environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            job = "--simulate" if is_known else "--child"
            command = [sys.executable, __file__, job, name, precision]
            failed |= subprocess.run(command, check=False, env=environ).returncode
    print_table()
    return int(failed != 0)


def add_rows(name: str, precision: str) -> None:
    """Compile one model for each card and write a row for each. Runs in a child process."""
    import keras

    from oomdoctor.xla.cards import find_card
    from oomdoctor.xla.compiler import compile_step
    from oomdoctor.xla.held import held_at_peak
    from oomdoctor.xla.lowering import lowering

    keras.config.set_dtype_policy(precision)
    batch, build = MODELS[name]
    model, loss = build()
    model.compile(optimizer="adam", loss=loss)
    start = time.monotonic()
    with lowering(model) as traced:
        step = traced.at(batch)
    seconds = time.monotonic() - start
    executor = _executor(model, batch)
    del model, traced
    known = {(row["model"], row["precision"], row["card"]) for row in read_rows()}
    for card in CARDS:
        if (name, precision, card) in known:
            continue
        compiled = compile_step(step.hlo, find_card(card))
        without = compiled
        if compiled.recomputes:
            without = compile_step(step.hlo, find_card(card), without_recomputation=True)
        share = held_at_peak(compiled.memory, step).named_share
        idle = compiled.memory.idle_bytes / compiled.peak_bytes
        row = (name, batch, precision, card, compiled.peak_bytes, without.peak_bytes, executor,
               round(seconds, 1), round(compiled.seconds, 1), round(share, 4),
               round(idle, 4),
               compiled.plugin_version)  # fmt: skip
        _append(row)


def _executor(model: Any, batch: int) -> int:
    """Return the estimate of the step on a GPU without XLA."""
    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.estimate.simulation import Simulation
    from oomdoctor.estimate.step import estimate

    simulation = Simulation(trace_step(model, kind="train"), device="gpu")
    return estimate(simulation, batch, jit=False).peak_bytes


def simulate_again(name: str, precision: str) -> None:
    """Estimate one model without XLA and replace what its rows say. Runs in a child process."""
    import keras

    keras.config.set_dtype_policy(precision)
    batch, build = MODELS[name]
    model, loss = build()
    model.compile(optimizer="adam", loss=loss)
    executor = _executor(model, batch)
    rows = read_rows()
    for row in rows:
        if (row["model"], row["precision"]) == (name, precision):
            row["executor"] = str(executor)
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_rows() -> list[dict[str, str]]:
    """Return the rows found so far."""
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(row: tuple[object, ...]) -> None:
    fresh = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(COLUMNS)
        writer.writerow(row)


def print_table() -> None:
    """Print the rows found so far as Markdown, in GiB."""
    print(
        "| model, batch | precision | card | XLA | without recomputation | executor, estimated "
        f"| named | of the buffers | compiled in |\n|{'---|' * 9}"
    )
    order = list(MODELS)
    for row in sorted(read_rows(), key=lambda row: order.index(row["model"])):
        xla, without, executor = (
            int(row[key]) / 2**30 for key in ("xla", "without_recomputation", "executor")
        )
        saved = f"{without:.2f} (−{without - xla:.2f})" if without > xla else "–"
        of_buffers = float(row["named_share"])
        # What lies between buffers is nobody's, so it counts against us in the first figure.
        named = of_buffers * (1 - float(row["idle_share"]))
        print(
            f"| {row['model']}, {row['batch']} | {row['precision']} | {row['card']} | {xla:.2f} "
            f"| {saved} | {executor:.2f} | {named:.1%} | {of_buffers:.1%} "
            f"| {float(row['compile_seconds']):.0f} s |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        add_rows(sys.argv[2], sys.argv[3])
    elif sys.argv[1:2] == ["--simulate"]:
        simulate_again(sys.argv[2], sys.argv[3])
    else:
        raise SystemExit(main(sys.argv[1:]))
