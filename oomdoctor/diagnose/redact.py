"""A diagnosis without what names its user: homes, paths, hosts, addresses, tokens.

The last part of a path stays: it tells a file of the user from one of Keras. TensorFlow's device
names, which look like paths, stay whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from oomdoctor.facts import Diagnosis, OtherCause

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # Keys by their beginnings, and long runs of letters and digits that nobody says aloud.
    (re.compile(r"\b(?:gh[pousr]_|hf_|sk-|AKIA|xox[bp]-|glpat-)[\w-]{8,200}"), "<token>"),
    (
        re.compile(
            r"(?i)\b(token|secret|password|passwd|api[_-]?key)(\s{0,3}[=:]\s{0,3})\S{1,200}"
        ),
        r"\1\2<token>",
    ),
    (re.compile(r"\b(?=[\w+]{0,200}\d)(?=[\w+]{0,200}[A-Za-z])[A-Za-z0-9+]{32,200}\b"), "<token>"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,5}"), "<address>"),
    (re.compile(r"\b[\w.-]{1,32}@[\w-]{1,64}(?=[:~\s\]])"), "<user>@<host>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?![.\d])"), "<ip>"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b", re.IGNORECASE), "<ip>"),
    (re.compile(r"\b[a-z]{2,6}://[^\s/\"']{1,200}"), "<host>"),
    (
        re.compile(
            r"\b(?:[a-zA-Z0-9-]{1,63}\.){1,6}"
            r"(?:com|org|net|edu|gov|io|ai|local|internal|lan|cluster|de|fr|uk|ch|eu|it|nl|cn|jp|kr)\b"
            r"(?![.\w(])"
        ),
        "<host>",
    ),
    (re.compile(r"(?:(?<=srun: error: )|(?<=on node )|(?<=slurmd\[))[\w.-]{1,64}"), "<host>"),
    (re.compile(r"[A-Za-z]:\\Users\\[^\\\"'<>|:\n]{1,64}(?:\\|\b)", re.IGNORECASE), "~/"),
    (re.compile(r"[A-Za-z]:\\(?:[^\\\s\"'<>|:]{1,120}\\){0,40}(?=[^\\\s\"'<>|:])"), "<path>/"),
    (
        # Not a device (/job:localhost/…), not a fraction (80/4000), not a source of TensorFlow.
        re.compile(r"(?<![\w:/.\]])~?/(?!job:)(?:[^/\s\"'<>|:,;()\[\]]{1,120}/){1,40}"),
        "<path>/",
    ),
)


def redact_text(text: str, names: Iterable[str] = ()) -> str:
    """Return a text without what names its user.

    Example:
        >>> redact_text('File "/home/ada/project/train.py", line 3')
        'File "<path>/train.py", line 3'

    Args:
        text: The text.
        names: Words to take out as well: this machine's user and host.
    """
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    for name in names:
        if len(name) >= 3:
            text = re.sub(rf"\b{re.escape(name)}\b", "<name>", text)
    return text


def redact(diagnosis: Diagnosis, names: Iterable[str] = ()) -> Diagnosis:
    """Return the diagnosis without what names its user."""
    names = tuple(names)

    def clean(text: str) -> str:
        return redact_text(text, names)

    def lines(evidence: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
        return tuple((number, clean(text)) for number, text in evidence)

    def other(cause: OtherCause) -> OtherCause:
        return replace(cause, why=clean(cause.why), evidence=lines(cause.evidence))

    return replace(
        diagnosis,
        summary=clean(diagnosis.summary),
        evidence=lines(diagnosis.evidence),
        alternatives=tuple(map(other, diagnosis.alternatives)),
        source_line=diagnosis.source_line and clean(diagnosis.source_line),
        notes=tuple(map(clean, diagnosis.notes)),
    )
