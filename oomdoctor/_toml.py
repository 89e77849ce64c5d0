"""Reads TOML that anybody may have written, in time that grows with its size.

The reader of the standard library looks at every beginning of a dotted key, so that one key of
60 KiB takes it 12 seconds. Nobody writes a key of more than a few parts.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

MAX_PARTS = 32
"""Parts of one key, `a.b.c` having three."""
MAX_DEPTH = 64
"""Tables and lists within each other."""
MAX_INTEGER = 2**63
"""What TOML asks a reader to accept; Python's reader accepts more."""

# Each alternative takes all it can and cannot fail once it has begun, so none is tried twice.
_TOKEN = re.compile(
    r"""
    (?P<word>
        [A-Za-z0-9_-]+
      | \"{3} (?: [^"\\] | \\. | "{1,2}(?!") )* (?: "{3,5} | \\?\Z )
      | '{3} (?: [^'] | '{1,2}(?!') )* (?: '{3,5} | \Z )
      | " (?: [^"\\\n] | \\[^\n] )* "?
      | ' [^'\n]* '?
    )
    | (?P<dot> \. ) | (?P<blank> [\t\x20]+ ) | \#[^\n]* | .
    """,
    re.VERBOSE | re.DOTALL,
)


def read_toml(text: str) -> dict[str, Any]:
    """Return the table that a text holds.

    Raises:
        ValueError: It is not TOML, or not what anyone would write; the message is one clause, with
            `(at line 3, column 1)` at its end where the place is known.
    """
    _refuse_long_keys(text)
    # Python 3.10 has no TOML reader of its own.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table: dict[str, Any] = toml.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except toml.TOMLDecodeError:
        raise
    except ValueError:  # Python refuses to read thousands of digits
        raise ValueError("a number is too large") from None
    _refuse_odd_values(table)
    return table


def _refuse_long_keys(text: str) -> None:
    parts, after_dot = 0, False
    for match in _TOKEN.finditer(text):
        if match["word"]:
            parts = parts + 1 if after_dot else 1
            after_dot = False
        elif match["dot"]:
            after_dot = True
        elif not match["blank"]:
            parts, after_dot = 0, False
        if parts > MAX_PARTS:
            line = text.count("\n", 0, match.start()) + 1
            raise ValueError(f"a key has more than {MAX_PARTS} parts (at line {line}, column 1)")


def _refuse_odd_values(table: dict[str, Any]) -> None:
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, int) and abs(value) > MAX_INTEGER:
                raise ValueError("a number is too large")
        level = below
        if not level:
            return
    raise ValueError("it is nested too deep")
