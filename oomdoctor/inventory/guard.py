"""What every reader does with a file that lies, ends early or may not be opened."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from oomdoctor.inventory.parts import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_AXES = 64
"""NumPy's own limit: no array has more."""

TOO_MUCH = "header claims more data than the file holds"
"""The reason for every header that promises more than its file can give."""


@contextmanager
def sizing(what: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is sized into `Unreadable`.

    Args:
        what: The kind of file with its article, as in "a NumPy file".
    """
    try:
        yield
    except Unreadable:
        raise
    except PermissionError:
        raise Unreadable("permission denied") from None
    except FileNotFoundError:
        raise Unreadable("vanished during the scan") from None
    except MemoryError:
        raise Unreadable("needs too much memory to size") from None
    # A decoder fed with hostile bytes may raise nearly anything, and one file must not end a scan.
    except Exception:  # noqa: BLE001, RUF100
        raise Unreadable(f"not {what}, or damaged") from None
