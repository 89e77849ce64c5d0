"""The configuration inside a `.keras` archive, read within bounds.

The file may be a stranger's: a few kilobytes of zip can unpack to gigabytes, and JSON nested deep
enough ends a parser. Weights are never read.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.units import MIB, format_bytes

MAX_CONFIG_BYTES = 16 * MIB
"""Unpacked. The largest model of `keras.applications` has 0.4 MiB; parsed it takes tens of times
as much."""

MAX_MEMBERS = 10_000
"""A `.keras` archive has three members, and a few more for assets."""


def read_config(path: Path) -> dict[str, Any]:
    """Return a saved model's configuration."""
    if not path.is_file():
        raise InputError(f"{path} does not exist: give a .keras file or module:callable.")
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > MAX_MEMBERS:
                raise InputError(f"{path} has more than {MAX_MEMBERS:,} members: not a model.")
            with archive.open("config.json") as member:
                text = member.read(MAX_CONFIG_BYTES + 1)
        if len(text) > MAX_CONFIG_BYTES:
            raise InputError(
                f"The configuration in {path} is larger than {format_bytes(MAX_CONFIG_BYTES)}: "
                "not a model that Keras saved."
            )
        config = json.loads(text)
    except InputError:
        raise
    except Exception as error:  # zipfile and json raise many types for a damaged file
        raise InputError(
            f"{path} is not a .keras archive ({type(error).__name__}: {error}): save the model "
            "again."
        ) from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a .keras archive: its configuration is not an object.")
    return config
