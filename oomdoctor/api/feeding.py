"""What a person says a model is fed: `data=`, `batch=` and `input_shape=`, for every command."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from oomdoctor.errors import UsageError
from oomdoctor.units import parse_input_size

if TYPE_CHECKING:
    from oomdoctor.model.samples import Samples
    from oomdoctor.runner.estimator import Estimator


def read_feed(
    data: Any = None,
    batch: Any = None,
    input_shape: Any = None,
    *,
    estimator: Estimator | None = None,
) -> Samples | None:
    """Return what the data, or the batch that is described, says of a sample; None without them.

    Args:
        data: As for `suggest_batch_size`, or the path of a file or folder, or `module:callable`.
        batch: `tf.TensorSpec`s, nested as the model is fed.
        input_shape: Whether this is given too.
        estimator: The process in which a function that is named is called, if there is one.
    """
    if data is None and batch is None:
        return None
    if data is not None and batch is not None:
        raise UsageError("data= and batch= both say what the model is fed: give one of them.")
    from oomdoctor.model.files import WHAT_IT_TAKES, read_files
    from oomdoctor.model.samples import read_samples, samples_of_specs

    if batch is not None:
        found = samples_of_specs(batch)
    elif not isinstance(data, (str, os.PathLike)):
        found = read_samples(data)
    elif os.path.exists(data):
        found = read_files(os.fspath(data))
    elif _names_a_function(os.fspath(data)):
        found = _of_function(os.fspath(data), estimator)
    else:
        raise UsageError(f"{os.fspath(data)} does not exist: {WHAT_IT_TAKES}.")
    if input_shape is not None and found.image_size is None:
        given = "data=" if batch is None else "batch="
        raise UsageError(
            f"{given} already says what a sample is, so input_shape= (on the command line: "
            "--input-size) would have no effect: leave one of them out."
        )
    return found


def split_feed(how_trained: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what overrides the model's own, without None, and the arguments of `read_feed`."""
    fed = {name: how_trained.get(name) for name in ("data", "batch", "input_shape")}
    own = {k: v for k, v in how_trained.items() if k not in fed and v is not None}
    return own, fed


def _names_a_function(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(
        word.isidentifier() for word in (*module.split("."), *attribute.split("."))
    )


def _of_function(name: str, estimator: Estimator | None) -> Samples:
    """Call a function of the user's in another process: it may load TensorFlow and take a GPU."""
    from oomdoctor.runner.estimator import Estimator

    if estimator is not None:
        return estimator.read_data(name, (os.getcwd(),))
    with Estimator() as own:
        return own.read_data(name, (os.getcwd(),))


def fields_of_spec(samples: Samples | None, input_shape: Any = None) -> dict[str, Any]:
    """Return the fields of a `ModelSpec` that say what the model is fed."""
    fields: dict[str, Any] = {}
    if input_shape is not None:
        fields["input_shape"] = parse_input_size(input_shape)
    if samples is not None and samples.tree is not None:
        fields["samples"] = json.dumps(samples.tree)
    if samples is not None and samples.image_size is not None:
        fields["image_size"] = samples.image_size
    return fields
