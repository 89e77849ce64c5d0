"""Asks every model of `keras.applications` for an estimate: an answer, or one true sentence.

    python tests/benchmarks/estimate_applications.py [NAME...]

Prints one line for each: its weights, the peak of a training step with Adam, what the process that
traced it holds at most, and seconds. As module:callable each is called by its name in this module.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomdoctor.errors import OomDoctorError
from oomdoctor.model.spec import ModelSpec
from oomdoctor.runner.estimator import Estimator
from oomdoctor.units import GIB, format_bytes

BATCH_SIZE = 8


def __getattr__(name: str) -> Any:
    """Return a function that builds the model of that name, untrained and compiled."""
    import keras

    if not hasattr(keras.applications, name):
        raise AttributeError(name)

    def build() -> Any:
        model = getattr(keras.applications, name)(weights=None)
        model.compile("adam", "sparse_categorical_crossentropy")
        return model

    return build


def names() -> list[str]:
    """Return what `keras.applications` builds."""
    import keras

    found = vars(keras.applications).items()
    return sorted(name for name, value in found if callable(value) and name[0].isupper())


def rows(chosen: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield name, weights, peak, most memory of the process, seconds; or name and sentence."""
    here = (str(Path(__file__).parent),)
    with Estimator(ram_bytes=4 * GIB) as estimator:
        for name in chosen:
            began = time.monotonic()
            spec = ModelSpec(f"estimate_applications:{name}", sys_path=here)
            try:
                found, workload = estimator.estimate(spec, BATCH_SIZE)
            except OomDoctorError as error:
                yield name, str(error)
                continue
            assert estimator._worker is not None
            status = Path(f"/proc/{estimator._worker.process.pid}/status").read_text()
            held = int(status.partition("VmHWM:")[2].split()[0]) * 1024
            yield (
                name,
                format_bytes(workload.weights_bytes),
                format_bytes(found.peak_bytes),
                format_bytes(held),
                f"{time.monotonic() - began:.0f}",
            )


def main(chosen: list[str]) -> None:
    """Print the table as it grows."""
    print(
        f"| model | weights | peak at batch {BATCH_SIZE} | most held here | seconds |", flush=True
    )
    print("|---|---|---|---|---|", flush=True)
    answered = total = 0
    for row in rows(chosen or names()):
        total += 1
        answered += len(row) > 2
        print("| " + " | ".join(row) + " |", flush=True)
    print(f"\n{answered} of {total} models have an estimate.")


if __name__ == "__main__":
    main(sys.argv[1:])
