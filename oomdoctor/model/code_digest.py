"""What a model is made of → a digest, which changes when the model may need other memory.

A configuration names classes and functions; what they do stands in files that can change under the
same names. So the files of all loaded modules count that were not installed: the user's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 64 * 1024 * 1024
"""More code than this is not read: the answer is then not known."""

_PACKAGE_FOLDERS = ("site-packages", "dist-packages")

LEFT_OUT = ("__main__", "__mp_main__", "__autograph_generated_file")
"""The running script, and what TensorFlow writes from other code under a new name each time."""


def digest_of_code() -> str | None:
    """Return a digest of the user's own modules that are loaded, or None where that is too much.

    The running script is left out: what a model needs of it is sent along whole (`objects.py`).
    """
    digest, read = hashlib.sha256(), 0
    for name, path in _own_modules():
        try:
            read += os.path.getsize(path)
            if read > MAX_BYTES:
                return None
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def digest_of_model(model: Any) -> str | None:
    """Return a digest of a built model and of the code behind it, or None where it is not known."""
    import keras

    code = digest_of_code()
    if code is None:
        return None
    variables = [
        (variable.path, tuple(variable.shape), str(variable.dtype), bool(variable.trainable))
        for variable in model.variables
    ]
    try:
        config = json.dumps(keras.saving.serialize_keras_object(model), sort_keys=True)
    except Exception:  # any code of the user's runs here
        return None
    policy = keras.config.dtype_policy().name
    return hashlib.sha256(json.dumps([code, config, variables, policy]).encode()).hexdigest()


def _own_modules() -> Iterator[tuple[str, str]]:
    """Yield name and file of the modules that were not installed, in the order of names."""
    installed = tuple(os.path.join(os.path.realpath(path), "") for path in _installed_paths())
    for name, module in sorted(sys.modules.items()):
        # Not by getattr: TensorFlow has modules that load others when they are asked for a thing.
        path = getattr(module, "__dict__", {}).get("__file__")
        is_left_out = name.startswith(LEFT_OUT) or name.partition(".")[0] == "oomdoctor"
        if path and not is_left_out and not os.path.realpath(path).startswith(installed):
            yield name, path


def _installed_paths() -> list[str]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return [
        *(sysconfig.get_path(name) for name in names),
        *site.getsitepackages(),
        site.getusersitepackages(),
        # Packages of another environment, which a .pth file or PYTHONPATH has added.
        *(entry for entry in sys.path if os.path.basename(entry) in _PACKAGE_FOLDERS),
    ]
