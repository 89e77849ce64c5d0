"""Predict the peak memory of a Keras step without running it.

    >>> from oomdoctor.estimate import estimate_model  # doctest: +SKIP
    >>> estimate_model(model, batch_size=32)  # doctest: +SKIP

The step is traced (`keras_model`), read as plain nodes (`graph`), brought into the form TensorFlow
runs (`simplify`, `ordering`, `loops`), executed without computing (`executor`, `shapes`,
`kernels`), and its allocations are replayed through a model of the allocator (`bfc`, `step`).
"""

from __future__ import annotations

from typing import Any

from oomdoctor.facts import Estimate


def estimate_model(
    source: Any,
    *,
    batch_size: int = 32,
    kind: str = "train",
    precision: str | None = None,
    optimizer: str | None = None,
    input_size: tuple[int, ...] | None = None,
    batch: Any = None,
    jit: bool = False,
    threads: int | None = None,
) -> Estimate:
    """Return the peak memory of one step.

    Args:
        source: A live Keras model, a `.keras` file, or `module:callable`.
        batch_size: Samples in a batch.
        kind: `train`, `evaluate` or `predict`.
        precision: `float32`, `mixed_float16` or `mixed_bfloat16`; None keeps the model's own.
        optimizer: Another optimizer, by name.
        input_size: Other leading dimensions of the inputs, such as (224, 224).
        batch: `tf.TensorSpec` of a batch, where the model does not tell.
        jit: Whether the step is compiled by XLA, which is said, not simulated.
        threads: Threads inside one operation; None takes the machine's.
    """
    from oomdoctor.estimate.keras_model import trace_step
    from oomdoctor.estimate.options import find_model, with_options
    from oomdoctor.estimate.step import Simulation, estimate

    model = with_options(
        find_model(source, precision=precision),
        precision=precision,
        optimizer=optimizer,
        input_size=input_size,
    )
    simulation = Simulation(trace_step(model, kind=kind, batch=batch), threads=threads)
    return estimate(simulation, batch_size, jit=jit)
