"""A step's program and a card → the memory that XLA gives it there.

The compiler runs in a process of its own, because a failed check inside it ends the process. It
is stopped as soon as it has decided where buffers are put: its machine code is of no use here.

Time: the compiler may use as much processor time as programs of this size were seen to need, ten
times over, and be idle for two minutes. Neither depends on what else the machine is doing.
Memory: its address space is limited in the same way.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from oomdoctor.units import GIB, MIB, format_bytes
from oomdoctor.xla import child
from oomdoctor.xla.buffers import Assignment, Buffer, is_complete, read_assignment
from oomdoctor.xla.cards import Card
from oomdoctor.xla.errors import CompilerEnded, CompilerStalled, NotCompilable, PluginUnsupported
from oomdoctor.xla.plugin import PACKAGE, Plugin, find_plugin

CPU_SECONDS, CPU_SECONDS_PER_MIB = 120, 60
"""Processor time. Measured up to the layout of buffers: a small CNN (0.2 MiB) 0.3 s, ResNet50
(4.7 MiB) 3 s, BERT-Large (16.6 MiB) 26 s."""

MEMORY_BYTES, MEMORY_PER_BYTE = 3 * GIB, 256
"""Address space. Measured for the same three: 570, 740 and 2,145 MiB, so less than 100 bytes for a
byte of the program, beside the 450 MiB that the compiler itself takes."""

IDLE_SECONDS = 120
"""How long the compiler may use no processor time at all."""

FLAGS = (
    "--xla_dump_hlo_as_proto",
    # There is no device to try algorithms on.
    "--xla_gpu_autotune_level=0",
    # Or the compiler stops before buffers are laid out where the CUDA toolkit is not installed.
    "--xla_gpu_unsafe_fallback_to_driver_on_ptxas_not_found",
)
_NO_MEMORY = re.compile(
    r"bad_alloc|MemoryError|failed to map segment|[Oo]ut of memory|annot allocate memory"
    r"|LLVM ERROR: .*memory"
)
NO_RECOMPUTATION = "--xla_disable_hlo_passes=rematerialization"

NO_TRITON = "--xla_gpu_enable_triton_gemm=false"
_NO_TILES = "output tile sizes"
"""XLA has Triton write the matrix products of newer cards and tries several tilings on the card.
Without a card it takes one, and gives up if a fused product does not allow that one, as in
ConvNeXt and vision transformers in float32. Then cuBLAS gets the products, as it does on a card
where it is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A step, compiled for a card."""

    card: str
    plugin_version: str
    memory: Assignment
    seconds: float
    allows_recomputation: bool
    """False if XLA may not recompute values to save memory."""

    @property
    def peak_bytes(self) -> int:
        """What the step needs on the card while it runs."""
        return self.memory.peak_bytes

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """What is in memory at the peak, the largest first."""
        return self.memory.buffers

    @property
    def recomputes(self) -> bool:
        """Whether XLA recomputes values, which takes less memory and more time."""
        return self.memory.recomputed > 0


def compile_step(
    hlo: bytes,
    card: Card,
    *,
    without_recomputation: bool = False,
    plugin: Plugin | None = None,
    cancelled: Event | None = None,
) -> Compiled:
    """Compile a step for a card and return the memory it needs there.

    Args:
        hlo: The step, as `lowering` returns it.
        card: The card; it need not be there.
        without_recomputation: Keep XLA from recomputing values to save memory.
        plugin: The compiler; None takes the one that is installed.
        cancelled: Ends the compilation early when it is set.

    Raises:
        XlaError: One of its kinds, if the compiler does not come to an answer.
    """
    plugin = plugin or find_plugin()
    start = time.monotonic()
    flags = [*FLAGS, *([NO_RECOMPUTATION] if without_recomputation else [])]
    try:
        memory = _compile(hlo, card, flags, plugin, cancelled)
    except NotCompilable as error:
        if _NO_TILES not in str(error):
            raise
        memory = _compile(hlo, card, [*flags, NO_TRITON], plugin, cancelled)
    return Compiled(
        card=card.name,
        plugin_version=plugin.version,
        memory=memory,
        seconds=time.monotonic() - start,
        allows_recomputation=not without_recomputation,
    )


def _compile(
    hlo: bytes, card: Card, flags: list[str], plugin: Plugin, cancelled: Event | None
) -> Assignment:
    """Run the compiler once."""
    with tempfile.TemporaryDirectory(prefix="oomdoctor-xla-") as name:
        folder = Path(name)
        (folder / "dump").mkdir()
        (folder / "program.hlo").write_bytes(hlo)
        (folder / "card.txtpb").write_text(card.target_config())
        with _running(plugin, folder, flags, len(hlo)) as process:
            _wait(process, cancelled)
        program = _dumped(folder / "dump")
        if program is None:
            raise _failure(process.returncode, folder, plugin, len(hlo))
        return read_assignment(program)


def cpu_limit(hlo_bytes: int) -> int:
    """Return the processor time that compiling a program may take, in seconds."""
    return CPU_SECONDS + CPU_SECONDS_PER_MIB * hlo_bytes // MIB


def memory_limit(hlo_bytes: int) -> int:
    """Return the address space that compiling a program may take."""
    return MEMORY_BYTES + MEMORY_PER_BYTE * hlo_bytes


@contextlib.contextmanager
def _running(
    plugin: Plugin, folder: Path, flags: list[str], hlo_bytes: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the compiler, and make sure that it has ended."""
    limits = [str(memory_limit(hlo_bytes)), str(cpu_limit(hlo_bytes))]
    # -S as well: the child needs no packages, so nothing that is installed can run in it.
    command = [sys.executable, "-I", "-S", child.__file__, str(os.getpid()), plugin.path]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, str(folder), *limits],
            env=_environment(folder / "dump", flags),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for us; we end the compiler
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(dump: Path, flags: list[str]) -> dict[str, str]:
    """Return the child's environment: nothing of ours, so that answers do not depend on it."""
    return {
        "XLA_FLAGS": " ".join([f"--xla_dump_to={dump}", *flags]),
        "CUDA_VISIBLE_DEVICES": "",  # a card that is there must stay untouched
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
    }


def _wait(process: subprocess.Popen[bytes], cancelled: Event | None) -> None:
    """Wait until the compiler ends, as long as it works."""
    used, since = -1.0, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.25)
            return
        if cancelled is not None and cancelled.is_set():
            raise CompilerEnded("The compilation was cancelled.")
        now = _cpu_seconds(process.pid)
        if now is None or now > used:
            used, since = now or 0.0, time.monotonic()
        elif time.monotonic() - since > IDLE_SECONDS:
            raise CompilerStalled(
                f"XLA's compiler has done nothing for {IDLE_SECONDS} seconds and was stopped."
            )


def _cpu_seconds(pid: int) -> float | None:
    """Return the processor time a process has used; None where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _dumped(dump: Path) -> bytes | None:
    """Return the program with its buffers, if the compiler got that far."""
    for path in dump.glob("*after_optimizations.hlo.pb"):
        program = path.read_bytes()
        if is_complete(program):
            return program
    return None


def _failure(code: int, folder: Path, plugin: Plugin, hlo_bytes: int) -> Exception:
    """Return why the compiler wrote no program."""
    log = _end_of(folder / "log")
    if code == -signal.SIGXCPU:
        return CompilerStalled(
            f"XLA's compiler took more than {cpu_limit(hlo_bytes)} seconds of processor time "
            "and was stopped."
        )
    if code == -signal.SIGKILL:
        return CompilerEnded("XLA's compiler was killed: the machine probably ran out of memory.")
    if code != 0 and _NO_MEMORY.search(log):
        limit = format_bytes(memory_limit(hlo_bytes))
        return CompilerEnded(f"XLA's compiler needed more than {limit} of memory.")
    if code != 0:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return CompilerEnded(f"XLA's compiler ended with {how}{_check_in(log)}.")
    kind, _, message = _message(folder / "answer").partition(": ")
    first = message.strip().split("\n")[0][:300]
    if kind != "Failure":
        return PluginUnsupported(f"{PACKAGE} {plugin.version} could not be loaded: {first}")
    return NotCompilable(f"XLA could not compile this step: {first}")


def _message(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["message"])
    except (ValueError, KeyError, OSError):
        return ": it said nothing"


def _check_in(log: str) -> str:
    """Return the check that failed inside the compiler, if it wrote one."""
    lines = [line for line in log.splitlines() if "Check failed" in line or line.startswith("F")]
    return f" ({lines[0].partition('] ')[2][:200]})" if lines else ""


def _end_of(path: Path, most: int = 64 * 1024) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode(errors="replace")
