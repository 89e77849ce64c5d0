"""Trains in chunks and prints the weights' digest: FOLDER EPOCHS [--plain]. May be killed."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np


def build():
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(16, "tanh"),
            keras.layers.Dropout(0.2, seed=1),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def main():
    import tensorflow as tf

    import oomdoctor

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    folder, epochs = Path(sys.argv[1]), int(sys.argv[2])
    model = build()
    # 20 chunks an epoch.
    options = {"chunk": 50 * 28, "batch_size": 5, "seed": 1, "verbose": 0}
    print("ready", flush=True)
    history = oomdoctor.fit_in_chunks(
        model, folder / "x.npy", epochs=epochs, checkpoint=folder / "c.npz", **options
    )
    values = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    digest = hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()
    total = float(sum(np.abs(value).sum() for value in values))
    print(json.dumps({"digest": digest, "total": total, "history": history.history}))


if __name__ == "__main__":
    main()
