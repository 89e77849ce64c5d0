"""Trains a model for an epoch, and validates it, under a real limit: NAME LIMIT_MIB.

The limit is TensorFlow's own, from the environment, taken in one piece as on a GPU; ops run in as
many threads as TensorFlow likes. The batch size is asked for in this very process.
"""

import json
import sys
from pathlib import Path

import numpy as np


def values(rng, tensor, count):
    shape = (count, *tensor.shape[1:])
    if "int" in str(tensor.dtype):
        return rng.integers(0, 2000, shape).astype("int32")
    return rng.random(shape, np.float32)


def main():
    import tensorflow as tf

    sys.path.insert(0, str(Path(__file__).parent))
    import tuned_models

    import oomdoctor
    from oomdoctor.worker.devices import take_one_region

    name, limit_mib = sys.argv[1], int(sys.argv[2])
    take_one_region(limit_mib * 2**20)
    model = getattr(tuned_models, name)()
    rng = np.random.default_rng(0)

    inputs = model._inputs_struct if hasattr(model, "_inputs_struct") else model.inputs[0]
    batch_size = oomdoctor.suggest_batch_size(model, memory=f"{limit_mib}MiB", cache=False)
    count = 2 * batch_size + batch_size // 3
    x = tf.nest.map_structure(lambda tensor: values(rng, tensor, count), inputs)
    is_mask = len(model.output_shape) == 4
    y = values(rng, model.output, count) if is_mask else rng.integers(0, 10, (count,))
    history = model.fit(x, y, batch_size=batch_size, verbose=0)
    model.evaluate(x, y, batch_size=batch_size, verbose=0)  # as validation would
    print(
        json.dumps(
            {
                "batch_size": int(batch_size),
                "loss": history.history["loss"][0],
                "steps": int(model.optimizer.iterations),
                "peak": tf.config.experimental.get_memory_info("CPU:0")["peak"],
                "trials": len(batch_size.tuning.trials),
                "ooms": sum(trial.outcome == "oom" for trial in batch_size.tuning.trials),
            }
        )
    )


if __name__ == "__main__":
    main()
