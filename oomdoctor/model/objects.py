"""Classes and functions of the user → bytes that another process can turn back into them.

What the other process can import is sent as its name. What it cannot (a notebook's cells, the
script being run, classes made inside a function) is sent whole, by cloudpickle. A `tf.function`
holds graphs that cannot be pickled, so it is sent as the Python function it was made from.

Only for objects of the user's own process, handed to a worker of the same user.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from oomdoctor.errors import InputError


def pack(objects: dict[str, Any]) -> bytes:
    """Return named classes and functions as bytes for `pickle.loads`."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined, unused-ignore]
        def reducer_override(self, value: Any) -> Any:
            kind = type(value).__module__ or ""
            if kind.startswith("tensorflow") and hasattr(value, "python_function"):
                jit_compile = getattr(value, "_jit_compile", None)
                return _traced_again, (value.python_function, jit_compile)
            return super().reducer_override(value)

    stream = io.BytesIO()
    try:
        Pickler(stream, protocol=5).dump(objects)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise InputError(
            f"The model's own code cannot be handed to another process ({error}): put it into a "
            "module and give module:callable, a function that returns the model."
        ) from error
    return stream.getvalue()


def _traced_again(function: Any, jit_compile: bool | None) -> Any:
    import tensorflow as tf

    return tf.function(function, jit_compile=jit_compile)
