"""How fast data is streamed, and in how much RAM, beside the usual ways to feed it.

Two tables. An array: `fit` on the whole array in memory against `stream_dataset` of the file, on
the same training step. A folder of JPEG images: `keras.utils.image_dataset_from_directory` against
`stream_dataset`, read alone. Both ways take turns in one process, so that a busy machine slows both
down; RAM is that of a process of its own. Run it with `python tests/benchmarks/streaming_speed.py`.
"""

from __future__ import annotations

import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS, SIDE, BATCH = 4000, 64, 32
IMAGES, IMAGE_SIDE, TARGET = 1200, 320, (224, 224)
ROUNDS = 5


def make_data(folder: Path) -> None:
    """Write an array of 197 MB with labels, and a folder of images."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.random((ROWS, SIDE, SIDE, 3), np.float32))
    np.save(folder / "y.npy", rng.integers(0, 10, ROWS))
    for number in range(IMAGES):
        place = folder / "images" / f"class{number % 4}" / f"{number:05}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8))
        buffer = io.BytesIO()
        small.resize((IMAGE_SIDE, IMAGE_SIDE)).save(buffer, "JPEG", quality=90)
        place.write_bytes(buffer.getvalue())


def build() -> Any:
    """Return a small convolutional network: a large one would hide the cost of feeding."""
    import keras

    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def ways(folder: Path) -> dict[str, Any]:
    """Return what each way does once over the data, by name, loaded as it is needed."""
    import keras
    import numpy as np

    import oomdoctor

    kept: dict[str, Any] = {}

    def model() -> Any:
        return kept.setdefault("model", build())

    def array() -> int:
        if "x" not in kept:
            kept["x"], kept["y"] = np.load(folder / "x.npy"), np.load(folder / "y.npy")
        model().fit(kept["x"], kept["y"], batch_size=BATCH, verbose=0)
        return ROWS

    def stream() -> int:
        if "stream" not in kept:
            kept["stream"] = oomdoctor.stream_dataset(folder / "x.npy", batch_size=BATCH)
        model().fit(kept["stream"], verbose=0)
        return ROWS

    def read(name: str, make: Any) -> int:
        if name not in kept:
            kept[name] = make()
        return sum(int(batch[0].shape[0]) for batch in kept[name])

    def keras_folder() -> int:
        return read(
            "keras",
            lambda: keras.utils.image_dataset_from_directory(
                folder / "images", image_size=TARGET, batch_size=BATCH, verbose=False
            ),
        )

    def stream_folder() -> int:
        return read(
            "ours",
            lambda: oomdoctor.stream_dataset(
                folder / "images", image_size=TARGET, batch_size=BATCH
            ),
        )

    return {
        "array in memory": array,
        "stream of the file": stream,
        "image_dataset_from_directory": keras_folder,
        "stream of the folder": stream_folder,
    }


def speeds(folder: Path, names: list[str]) -> dict[str, list[float]]:
    """Return samples per second of each round, by way; they take turns."""
    found: dict[str, list[float]] = {name: [] for name in names}
    functions = ways(folder)
    for name in names:
        functions[name]()  # traces, and fills the page cache
    for _ in range(ROUNDS):
        for name in names:
            begun = time.perf_counter()
            samples = functions[name]()
            found[name].append(samples / (time.perf_counter() - begun))
    return found


def child(*arguments: str) -> Any:
    """Run this script for one answer."""
    run = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as scratch:
        make_data(Path(scratch))
        libraries = child("memory", scratch, "")
        for names in (
            ["array in memory", "stream of the file"],
            ["image_dataset_from_directory", "stream of the folder"],
        ):
            found = child("speed", scratch, *names)
            ratios = [b / a for a, b in zip(*(found[name] for name in names), strict=True)]
            print(f"{'':32}{'samples/s':>12}{'RAM, MiB':>10}")
            for name in names:
                used = child("memory", scratch, name) - libraries
                print(f"{name:32}{statistics.median(found[name]):12,.0f}{used:10,.0f}")
            rounds = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"ratio {statistics.median(ratios):.2f}  (rounds: {rounds})\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["speed"]:
        print(json.dumps(speeds(Path(sys.argv[2]), sys.argv[3:])))
    elif sys.argv[1:2] == ["memory"]:
        if sys.argv[3]:
            ways(Path(sys.argv[2]))[sys.argv[3]]()
        else:
            build()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    else:
        main()
