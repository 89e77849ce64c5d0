"""Runs XLA's compiler in a process of its own: child.py PARENT PLUGIN FOLDER BYTES SECONDS.

It is run by its path, isolated, and imports nothing but the standard library. The folder holds
the program (`program.hlo`) and the card (`card.txtpb`); the compiler writes what it decided into
the folder's `dump`. The memory of a program is decided before its code is generated, which takes
most of the time and tools of the CUDA toolkit, so this process ends as soon as that is written.

PJRT's interface is a table of functions. Functions and fields are only ever added at the end
(openxla/xla, `xla/pjrt/c/pjrt_c_api.h`), so their places below hold for every version.
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

FIRST_FUNCTION = 5
"""Words before the functions: the table's size, its extensions, and the version, three words."""
ERROR_MESSAGE, INITIALIZE, CREATE_TOPOLOGY, COMPILE = 1, 3, 82, 89

# CompileOptionsProto: executable_build_options {device_ordinal: -1 num_replicas: 1
# num_partitions: 1}. Without the first, XLA looks for a device.
OPTIONS = bytes.fromhex("1a0f08ffffffffffffffffff0120012801")

BUFFERS = 3 << 3 | 2
"""How the field of an `HloProto` begins that says where buffers are put."""

SECONDS_BETWEEN_LOOKS = 0.02
PARENT_DEATH_SIGNAL = 1
FILE_BYTES = 2**30
"""What one file may hold that the compiler writes; BERT-Large's largest takes 20 MB."""

_HEAD: list[Any] = [("size", c_size_t), ("extensions", c_void_p)]


class _Plain(Structure):
    _fields_ = _HEAD


class _Message(Structure):
    _fields_ = [*_HEAD, ("error", c_void_p), ("text", c_void_p), ("text_size", c_size_t)]


class _Setting(Structure):
    _fields_ = [
        *_HEAD,
        ("name", c_char_p),
        ("name_size", c_size_t),
        ("kind", c_int),
        ("value", c_char_p),
        ("value_size", c_size_t),
    ]


class _Topology(Structure):
    _fields_ = [
        *_HEAD,
        ("name", c_char_p),
        ("name_size", c_size_t),
        ("settings", POINTER(_Setting)),
        ("count", c_size_t),
        ("topology", c_void_p),
    ]


class _Program(Structure):
    _fields_ = [
        *_HEAD,
        ("code", c_char_p),
        ("code_size", c_size_t),
        ("format", c_char_p),
        ("format_size", c_size_t),
    ]


class _Compile(Structure):
    _fields_ = [
        *_HEAD,
        ("topology", c_void_p),
        ("program", POINTER(_Program)),
        ("options", c_char_p),
        ("options_size", c_size_t),
        ("client", c_void_p),
        ("executable", c_void_p),
    ]


class Failure(Exception):
    """What the plugin answered instead of a result."""


class Plugin:
    """The compiler behind PJRT's table of functions."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        library.GetPjrtApi.restype = POINTER(c_void_p)
        self._table = library.GetPjrtApi()
        self._call(INITIALIZE, _new(_Plain))

    def compile(self, program: bytes, card: bytes) -> None:
        """Compile a program for a card."""
        given = {b"target_config": card, b"topology": b"1x1x1"}
        settings = (_Setting * len(given))(
            *(_new(_Setting, n, len(n), 0, v, len(v)) for n, v in given.items())
        )
        topology = _new(_Topology, b"", 0, settings, len(given))
        self._call(CREATE_TOPOLOGY, topology)
        code = _new(_Program, program, len(program), b"hlo", 3)
        order = _new(_Compile, topology.topology, ctypes.pointer(code), OPTIONS, len(OPTIONS))
        self._call(COMPILE, order)

    def _call(self, place: int, arguments: Structure) -> None:
        error = self._function(place, c_void_p)(ctypes.addressof(arguments))
        if error:
            message = _new(_Message, error)
            self._function(ERROR_MESSAGE, None)(ctypes.addressof(message))
            raise Failure(ctypes.string_at(message.text, message.text_size).decode())

    def _function(self, place: int, result: Any) -> Any:
        return ctypes.CFUNCTYPE(result, c_void_p)(self._table[FIRST_FUNCTION + place])


def _new(kind: type[Structure], *values: Any) -> Any:
    return kind(ctypes.sizeof(kind), None, *values)


def main(arguments: list[str]) -> None:
    """Compile what the folder holds, and write into it how that ended."""
    parent, plugin, folder, memory_bytes, cpu_seconds = arguments
    signal.signal(signal.SIGTERM, lambda *_: _clean_up(folder))
    _bind(int(memory_bytes), int(cpu_seconds))
    with open(os.path.join(folder, "program.hlo"), "rb") as file:
        program = file.read()
    with open(os.path.join(folder, "card.txtpb"), "rb") as file:
        card = file.read()
    said: list[str] = []

    def work() -> None:
        try:
            Plugin(plugin).compile(program, card)
        except (Failure, OSError, AttributeError, ValueError) as error:
            said.append(f"{type(error).__name__}: {error}")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    dump = os.path.join(folder, "dump")
    while worker.is_alive() and not _is_written(dump):
        if os.getppid() != int(parent):
            _clean_up(folder)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    with open(os.path.join(folder, "answer"), "w", encoding="utf-8") as answer:
        json.dump({"message": said[0][:4000] if said else ""}, answer)
    os._exit(0)  # the compiler's threads are in the middle of their work


def _clean_up(folder: str) -> None:
    """End because the parent has ended, and remove what it cannot remove any more."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _bind(memory_bytes: int, cpu_seconds: int) -> None:
    """End with the parent, and keep to the limits."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(signal.SIGTERM))
    for which, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
    ):
        hard = resource.getrlimit(which)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (limit, hard))


def _is_written(folder: str) -> bool:
    """Return whether the compiler has written the program with its buffers."""
    names = [name for name in os.listdir(folder) if name.endswith("after_optimizations.hlo.pb")]
    return any(_is_whole(os.path.join(folder, name)) for name in names)


def _is_whole(path: str) -> bool:
    """Return whether a file holds a whole `HloProto`: the program, then its buffers (field 3)."""
    size, place, key = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        while place < size:
            file.seek(place)
            head = file.read(11)
            key, length, shift, used = head[0], 0, 0, 1
            for byte in head[1:]:
                length |= (byte & 0x7F) << shift
                shift, used = shift + 7, used + 1
                if byte < 0x80:
                    break
            place += used + length
    return place == size and key == BUFFERS


if __name__ == "__main__":
    main(sys.argv[1:])
