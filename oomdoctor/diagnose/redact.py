"""A diagnosis without what names its user or opens doors.

It knows forms: of paths, addresses, hosts and tokens, and of settings such as `password=`. It
cannot know that a file, a variable or a layer is named after a person, a customer or a project.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from oomdoctor.diagnose.secrets import SECRETS
from oomdoctor.diagnose.whereabouts import without_addresses, without_whereabouts
from oomdoctor.facts import Diagnosis, OtherCause

LONGEST = 1 << 16
"""Characters; no line that is read is longer."""
_COMMON = frozenset(
    (
        *("root", "user", "users", "ubuntu", "admin", "python", "python3"),
        *("tensorflow", "keras", "jovyan", "localhost", "gpu", "cpu", "train"),
        *("training", "model", "test", "data", "docker", "colab", "kaggle"),
        *("runner", "job", "task", "device", "worker", "host", "node"),
    )
)
"""Names that name nobody, and are words of every log."""


def redact_text(text: str, names: Iterable[str] = ()) -> str:
    """Return a text without what names its user.

    Example:
        >>> redact_text('File "/home/ada/project/train.py", line 3')
        'File "<path>/train.py", line 3'

    Args:
        text: The text.
        names: Words to take out as well: this machine's user and host.
    """
    known = [name for name in names if len(name) >= 3 and name.lower() not in _COMMON]
    return "\n".join(_line(line, known) for line in text.split("\n"))


def _line(line: str, names: list[str]) -> str:
    line = without_addresses(line[:LONGEST])
    for pattern, instead in SECRETS:
        line = pattern.sub(instead, line)
    line = without_whereabouts(line)
    for name in names:
        line = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "<name>", line)
    return line


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
        op=diagnosis.op and clean(diagnosis.op),
        layer=diagnosis.layer and clean(diagnosis.layer),
        source_line=diagnosis.source_line and clean(diagnosis.source_line),
        notes=tuple(map(clean, diagnosis.notes)),
    )
