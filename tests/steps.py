"""Single steps of models, run outside of `fit` under the real allocator: what they hold.

`python steps.py` reads a list of requests as JSON from its arguments and prints a list of answers,
from one process, in which ops run one at a time so that peaks repeat. A request has the fields of
`ModelSpec`, and may have `kind`, `batch_size` and `trace`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

METHODS = {"train": "train_step", "evaluate": "test_step", "predict": "predict_step"}
STEPS = 4


def run_steps(*requests: dict[str, Any], timeout: float = 600) -> list[dict[str, Any]]:
    """Return what each step held, from a process of its own."""
    from oomdoctor.allocator import settings_for_the_cpu

    done = subprocess.run(
        [sys.executable, __file__, json.dumps(requests)],
        env={**os.environ, **settings_for_the_cpu(), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


class Step:
    """One step of a model, traced for any batch size. Needs the allocator to be set up."""

    def __init__(self, spec: Any, kind: str = "train") -> None:
        from oomdoctor.model.batches import possible_batches
        from oomdoctor.model.build import build_model

        self.spec = spec
        self.model, self.notes = build_model(spec)
        errors = []
        for fields in possible_batches(self.model, spec, kind):
            self.fields = fields
            try:
                self.function = self._traced(kind)
                return
            except Exception as error:
                errors.append(error)
        raise errors[0]

    def _traced(self, kind: str) -> Any:
        import tensorflow as tf

        from oomdoctor.estimate.scopes import scopes_noted
        from oomdoctor.model.fields import specs_of

        model = self.model
        if kind == "train" and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        function = tf.function(
            getattr(model, METHODS[kind]),
            input_signature=[specs_of(self.fields, None)],
            autograph=False,
            jit_compile=bool(getattr(model, "jit_compile", False)),
        )
        with scopes_noted(model) as self.scopes:
            function.get_concrete_function()
        return function

    def batch(self, batch_size: int) -> Any:
        """Return a batch of random values."""
        from oomdoctor.model.batches import make_batch

        return make_batch(self.spec, self.fields, batch_size)

    def peak(self, batch: Any) -> int:
        """Run it and return the allocator's peak."""
        import tensorflow as tf

        tf.config.experimental.reset_memory_stats("CPU:0")
        self.run(batch)
        return int(tf.config.experimental.get_memory_info("CPU:0")["peak"])

    def run(self, batch: Any) -> None:
        """Run it to its end."""
        import tensorflow as tf

        for output in tf.nest.flatten(self.function(batch)):
            output.numpy()

    def trace(self, batch: Any) -> Any:
        """Run it once and return what held the memory at its peak."""
        import tensorflow as tf

        from oomdoctor.trace.events import record
        from oomdoctor.trace.explain import explain
        from oomdoctor.trace.op_names import names_of

        concrete = self.function.get_concrete_function()
        names = names_of(self.model, concrete, batch, self.scopes)
        tf.config.experimental.reset_memory_stats("CPU:0")
        start = int(tf.config.experimental.get_memory_info("CPU:0")["current"])
        events = record(lambda: self.run(batch), None)
        peak = int(tf.config.experimental.get_memory_info("CPU:0")["peak"])
        return explain(events, names, start_bytes=start, allocator_peak_bytes=peak)


def _answer(kind: str = "train", batch_size: int = 32, trace: bool = False, **fields: Any) -> Any:
    import keras

    from oomdoctor.model.spec import ModelSpec
    from oomdoctor.worker.devices import memory_info

    # What is left of the models before this one is no part of it.
    keras.utils.clear_session()
    gc.collect()
    left = memory_info("current")
    if "sys_path" in fields:
        fields["sys_path"] = tuple(fields["sys_path"])
    step = Step(ModelSpec(**fields), kind)
    batch = step.batch(batch_size)
    peaks = [step.peak(batch) for _ in range(STEPS)]
    held = step.trace(batch) if trace else None
    return {
        "peak_bytes": max(peaks[1:]) - left,
        "left_bytes": left,
        "notes": step.notes,
        "trace": None if held is None else {**asdict(held), "slack_bytes": held.slack_bytes},
    }


def _main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import tensorflow as tf

    from oomdoctor.worker.devices import prepare_devices

    tf.config.threading.set_inter_op_parallelism_threads(1)  # peaks are repeatable then
    prepare_devices(None)
    print(json.dumps([_answer(**request) for request in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    _main()
