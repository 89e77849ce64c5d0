"""Decode JSON that others wrote, building only what is asked for.

A megabyte of JSON can become thirty in memory: each `{}` is a dictionary. With a type, what it does
not name is stepped over and never built.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import msgspec

Kind = TypeVar("Kind")

# Python writes both, though JSON has neither: in the outputs of notebooks, in attributes of Zarr.
_NO_NUMBER = re.compile(rb"(?<=[\[,:\s])-?(?:NaN|Infinity)(?=\s*[,\]}])")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class NotJson(Exception):
    """The data is not JSON, or not of the kind that was asked for."""


def decode(data: bytes | msgspec.Raw, kind: type[Kind]) -> Kind:
    """Return what is in JSON, as a kind that `msgspec` knows.

    Example:
        >>> decode(b'[1, NaN]', list[float])
        [1.0, 0.0]

    Raises:
        NotJson: It is something else, or is nested too deep.
    """
    import msgspec

    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise NotJson(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise NotJson("it is nested too deep") from None
    try:
        return msgspec.json.decode(_repaired(bytes(data)), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(str(error)) from None


def _repaired(data: bytes) -> bytes:
    """Return the data with what only Python reads replaced by something as long."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    data = _NO_NUMBER.sub(_same_length, data)
    return _SURROGATE.sub(rb"\\ufffd", data)


def _same_length(match: re.Match[bytes]) -> bytes:
    return match[0].replace(b"NaN", b"0.0").replace(b"Infinity", b"1.000000")
