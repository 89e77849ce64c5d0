"""Compilations that were done before, one file each, in the user's cache folder.

A compilation depends on the program, the card, the compiler's version and its flags alone, so its
answer is kept under the digest of these (`_kept.py`). What is no answer to this question is as good
as absent.
"""

from __future__ import annotations

import hashlib
from threading import Event

import msgspec

from oomdoctor import _kept
from oomdoctor.xla.cards import Card
from oomdoctor.xla.compiler import FLAGS, Compiled, compile_step
from oomdoctor.xla.plugin import Plugin, find_plugin

KIND = "xla"

FORMAT = 1
"""Part of every question: answers that were read in another way do not count."""

MAX_BYTES = 8 * 1024 * 1024
"""No answer is larger: BERT-Large's takes 0.4 MB."""


class _Entry(msgspec.Struct):
    question: str
    compiled: Compiled


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
    data = _kept.read(KIND, question, most=MAX_BYTES)
    try:
        entry = None if data is None else msgspec.json.decode(data, type=_Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if entry is None or entry.question != question or not _is_sound(entry.compiled):
        return None
    return entry.compiled


def keep(question: str, compiled: Compiled) -> None:
    """Keep an answer."""
    data = msgspec.json.encode(_Entry(question, compiled))
    if len(data) <= MAX_BYTES:
        _kept.write(KIND, question, data)


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
