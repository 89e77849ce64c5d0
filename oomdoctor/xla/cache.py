"""Compilations that were done before, one file each, in the user's cache folder.

A compilation depends on the program, the card, the compiler's version and its flags alone, so its
answer is kept under the digest of these. Only regular files of our own user count; what cannot be
read, or is no answer to this question, is as good as absent. A file is written whole under another
name and then renamed. A folder that cannot be written is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from threading import Event

import msgspec

from oomdoctor.xla.cards import Card
from oomdoctor.xla.compiler import FLAGS, Compiled, compile_step
from oomdoctor.xla.plugin import Plugin, find_plugin

FORMAT = 1
"""Part of every question: answers that were read in another way do not count."""

MAX_FILES = 200
MAX_BYTES = 8 * 1024 * 1024
"""No answer is larger: BERT-Large's takes 0.4 MB."""


class _Entry(msgspec.Struct):
    question: str
    compiled: Compiled


def folder() -> Path:
    """Return where answers are kept: under `XDG_CACHE_HOME`, or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path("~/.cache").expanduser()
    return base / "oomdoctor" / "xla"


def question_of(hlo: bytes, card: Card, plugin: Plugin, *, without_recomputation: bool) -> str:
    """Return the name of a question: the same for what gives the same answer."""
    digest = hashlib.sha256(hlo)
    rest = (card.target_config(), plugin.version, *FLAGS, without_recomputation, FORMAT)
    digest.update(repr(rest).encode())
    return digest.hexdigest()


def compile_or_recall(
    hlo: bytes,
    card: Card,
    *,
    without_recomputation: bool = False,
    plugin: Plugin | None = None,
    cancelled: Event | None = None,
) -> Compiled:
    """Return the answer that was found before, or compile; as `compiler.compile_step` does."""
    plugin = plugin or find_plugin()
    question = question_of(hlo, card, plugin, without_recomputation=without_recomputation)
    known = find(question)
    if known is not None:
        return known
    compiled = compile_step(
        hlo,
        card,
        without_recomputation=without_recomputation,
        plugin=plugin,
        cancelled=cancelled,
    )
    keep(question, compiled)
    return compiled


def find(question: str) -> Compiled | None:
    """Return what was compiled before, or None."""
    path = folder() / f"{question}.json"
    try:
        data = _read(path)
        entry = msgspec.json.decode(data, type=_Entry) if data is not None else None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if entry is None or entry.question != question or not _is_sound(entry.compiled):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    return entry.compiled


def keep(question: str, compiled: Compiled) -> None:
    """Keep an answer, and drop the oldest where there are too many."""
    target = folder()
    data = msgspec.json.encode(_Entry(question, compiled))
    if len(data) > MAX_BYTES:
        return
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=target, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(name, target / f"{question}.json")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        _drop_oldest(target)
    except OSError:
        return


def _read(path: Path) -> bytes | None:
    """Return the bytes of a regular file of ours; a link, a pipe or a device is not opened."""
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(file.fileno())
        is_ours = stat.S_ISREG(known.st_mode) and known.st_uid == os.getuid()
        if not is_ours or known.st_size > MAX_BYTES:
            return None
        return file.read(MAX_BYTES)


def _is_sound(compiled: Compiled) -> bool:
    memory = compiled.memory
    sizes = (
        memory.argument_bytes,
        memory.aliased_bytes,
        memory.output_bytes - memory.aliased_bytes,
        memory.temporary_bytes,
        memory.constant_bytes,
        memory.idle_bytes,
        *(buffer.bytes for buffer in memory.buffers),
    )
    return min(sizes) >= 0 and memory.peak_bytes > 0


def _drop_oldest(target: Path) -> None:
    ages = []
    for path in target.iterdir():
        with contextlib.suppress(OSError):
            ages.append((path.lstat().st_mtime, path))
    for _, path in sorted(ages)[:-MAX_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()
