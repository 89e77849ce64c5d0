r"""One raw line as the records it holds: no colours, no bytes of a strange encoding.

A record is what the program meant as one line. Several are on one line where a progress bar
redraws itself with carriage returns, where newlines were lost or written as `\n`, and where two
processes write at once. What a launcher puts before each line (mpirun, docker compose, kubectl,
Ray) is taken off, as are the marks of a comment or a quotation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|[@-Z\\-_])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_START = re.compile(
    r"(?<=[^\s(\"':])\s{0,4}(?="
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{3,9}: [IWEF] |"  # TensorFlow 1.0 to 2.20
    r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{3,9} |"  # absl, since 2.21, and PJRT
    r"[IWEF] tensorflow/[\w/]{1,120}\.cc:\d|"  # 0.x
    r"Traceback \(most recent call last\):)"
)
_PREFIX = re.compile(
    r"\[\d{1,4},\d{1,4}\]<std(?:err|out)>:\s?|"  # mpirun and Horovod
    r"\d{4}-\d\d-\d\dT[\d:.]{8,18}Z?\s(?:std(?:err|out)\s[FP]\s)?|"  # kubectl, containerd
    r"[A-Za-z][\w.-]{0,40}\s{1,8}\|\s|"  # docker compose
    r"(?:\([^()\s]{1,40} pid=\d{1,9}(?:, ip=[\d.]{7,15})?\)\s)|"  # Ray
    r"(?:[#>]\s?){1,4}"  # pasted as a comment or as a quotation
)
_ALONE = re.compile(r"(?:\d{4}-\d\d-\d\d |[IWEF]\d{4} |[IWEF] )")


def records(raw: bytes) -> Iterator[str]:
    """Yield the records of one line."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\\n" in text and ("\\nT" in text or "\\n\\t" in text or "Error" in text or "OOM" in text):
        text = text.replace("\\n", "\r")
    if "\r" not in text:
        yield from _split(text)
        return
    for part in text.split("\r"):
        if part:
            yield from _split(part)


def _split(text: str) -> Iterator[str]:
    prefix = _PREFIX.match(text)
    if prefix is not None:
        text = text[prefix.end() :]
    for part in _START.split(text) if _may_hold_several(text) else (text,):
        yield _CONTROL.sub("", part).expandtabs(1)


def _may_hold_several(text: str) -> bool:
    """Whether it is worth looking: a line that begins like a message mostly is one."""
    sources = text.count(".cc:")
    if sources == 0:
        return text.find("Traceback (") > 0
    return sources > 1 or "Traceback (" in text or _ALONE.match(text) is None
