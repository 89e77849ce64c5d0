"""Addresses of data that is not on this machine, such as `s3://bucket/train/`."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from oomdoctor.errors import InputError

EXTRAS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
"""The schemes that are read, and the package that fsspec needs for each.

Only these: fsspec also knows schemes that run code, start programs or open local files.
"""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")


def is_address(path: str) -> bool:
    """Return whether a path names something on a server.

    Example:
        >>> is_address("s3://bucket/train/"), is_address("data/train"), is_address("C:/data")
        (True, False, False)
    """
    return "://" in path and _SCHEME.match(path) is not None


def scheme_of(address: str) -> str:
    """Return the scheme of an address, or raise a sentence if it is not one that is read."""
    match = _SCHEME.match(address)
    scheme = match[1].lower() if match else ""
    if scheme not in EXTRAS:
        raise InputError(
            f"{shown(address)}: addresses that begin with {scheme}:// are not read; use one of "
            + ", ".join(f"{known}://" for known in ("s3", "gs", "hf", "https", "abfs"))
            + ", or a local path."
        )
    return scheme


def shown(address: str) -> str:
    """Return an address as it may be printed: without user, password, key or signature.

    Example:
        >>> shown("https://me:secret@host/x.npy?X-Amz-Signature=abc")
        'https://host/x.npy'
    """
    try:
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return address.partition("://")[0] + "://…"
