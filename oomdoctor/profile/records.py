"""The lines of a recording on disk, and the bounds within which they are believed.

Each line is one JSON object, written with one `write` call. A line that is torn, too long or out
of bounds is passed over: recordings may come from another machine, or from a run that was killed
while it wrote.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

VERSION = 1
MOST_LINE_BYTES = 256 * 1024
MOST_TEXT = 64 * 1024

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
Rate = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
Name = Annotated[str, msgspec.Meta(max_length=1000)]
Text = Annotated[str, msgspec.Meta(max_length=MOST_TEXT)]
Names = Annotated[list[Name], msgspec.Meta(max_length=1000)]


class Line(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="k", tag=str.lower):
    """One line of a recording."""


class LimitLine(msgspec.Struct, frozen=True):
    """A limit, inside `Run`."""

    what: Name
    limit_bytes: Size
    source: Name


class Run(Line, frozen=True):
    """The first line: what is run, and when the clock began."""

    version: int
    command: Names
    started_at: Seconds
    rate_hz: Seconds | None = None
    limits: Annotated[list[LimitLine], msgspec.Meta(max_length=100)] = []
    versions: Annotated[dict[Name, Name], msgspec.Meta(max_length=100)] = {}


class S(Line, frozen=True):
    """A sample from outside. Short names: there are ten of them a second."""

    t: Seconds
    rss: Size | None = None
    uss: Size | None = None
    swap: Size | None = None
    box: Size | None = None
    gpus: Annotated[list[tuple[Count, Count, Size]], msgspec.Meta(max_length=1000)] = []
    n: Count | None = None


class B(Line, frozen=True):
    """Memory after one batch, from inside."""

    t: Seconds
    step: Count
    epoch: Count
    rss: Size | None = None
    now: Size | None = None
    peak: Size | None = None


class Begin(Line, frozen=True):
    """A phase begins."""

    t: Seconds
    phase: Name
    label: Name
    number: Count | None = None


class Finish(Line, frozen=True):
    """The latest phase of this kind ends."""

    t: Seconds
    phase: Name


class HoldingLine(msgspec.Struct, frozen=True):
    """A stage of the pipeline, inside `Fit`."""

    kind: Name
    label: Name
    held_bytes: Size | None = None
    is_batched: bool = False


class Fit(Line, frozen=True):
    """What `fit` was called with; each line adds what became known."""

    t: Seconds
    epochs: Count | None = None
    batch_size: Count | None = None
    pipeline: Annotated[list[HoldingLine], msgspec.Meta(max_length=200)] = []


class Suspicion(Line, frozen=True):
    """One count of what may be kept; the last line of a kind and name holds."""

    kind: Name
    what: Name
    count: Count
    per_step: Rate | None = None
    held_bytes: Size | None = None
    advice: Name = ""
    step: Count = 0
    """How many steps had been made: what grew before the first was being built."""


class TensorLine(msgspec.Struct, frozen=True):
    """A tensor, inside `Peak`."""

    name: Name
    layer: Name | None
    part: Name
    shape: Annotated[list[Size], msgspec.Meta(max_length=64)] | None
    dtype: Name | None
    size_bytes: Size


class Peak(Line, frozen=True):
    """The breakdown of a traced step."""

    step: Count
    peak_bytes: Size
    parts: Annotated[list[tuple[Name, Size]], msgspec.Meta(max_length=100)]
    layers: Annotated[list[tuple[Name, Size]], msgspec.Meta(max_length=2000)]
    tensors: Annotated[list[TensorLine], msgspec.Meta(max_length=100)] = []
    curve: Annotated[list[tuple[Seconds, Size]], msgspec.Meta(max_length=2000)] = []


class Failure(Line, frozen=True):
    """The exception that ended the program, or TensorFlow's own message of an OOM."""

    t: Seconds
    text: Text


class Note(Line, frozen=True):
    """Something a person should know."""

    text: Name


class Stop(Line, frozen=True):
    """The last line: how the run ended."""

    t: Seconds
    exit_code: Annotated[int, msgspec.Meta(ge=-255, le=1 << 32)] | None = None
    signal: Name | None = None
    killed_by: Name | None = None
    peak_rss: Size | None = None
    oom_kills: Count | None = None


AnyLine = Run | S | B | Begin | Finish | Fit | Suspicion | Peak | Failure | Note | Stop

_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)
_encoder = msgspec.json.Encoder()


def encode(line: AnyLine) -> bytes:
    """Return a line as it is written, its end included."""
    return _encoder.encode(line) + b"\n"


def decode(line: bytes) -> AnyLine | None:
    """Return what a line says, or None where it cannot be believed."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
