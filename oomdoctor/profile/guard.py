"""Between the profiler and the program: a small process that leaves nothing behind.

If the profiler is killed, the program must go, with all it has started: other programs, their
children, and those that detached themselves. Linux tells one process when its parent has died, and
gives orphans to the nearest ancestor that asked for them. The guard asks for both, so it is told,
and everything that the program started is below it.

The guard is in a process group of its own, so that Ctrl-C and signals to the program's group pass
it by. The program stays in the group of the profiler, as if there were no guard.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from oomdoctor.errors import UsageError

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_PARENT_DIED = getattr(signal, "SIGRTMIN", 34) + 5
"""A signal that nobody else sends; other systems than Linux have none."""
_SECONDS_TO_END_ALL = 20.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended."""

    code: int
    """As `subprocess` gives it: negative for a signal."""
    peak_rss_bytes: int


class Guarded:
    """The program, which runs below a guard."""

    def __init__(self, pid: int, guard: int, answers: int) -> None:
        self.pid = pid
        """Of the program."""
        self._guard = guard
        self._answers = answers

    def poll(self) -> Ended | None:
        """Return how it ended; None while it runs."""
        done, _ = os.waitpid(self._guard, os.WNOHANG)
        if not done:
            return None
        words = _read_all(self._answers).split()
        os.close(self._answers)
        if len(words) < 2:  # the guard itself was killed, and the program with it
            return Ended(-signal.SIGKILL, 0)
        return Ended(int(words[0]), int(words[1]))


def start_guarded(
    command: list[str], environ: dict[str, str], mask: set[signal.Signals]
) -> Guarded:
    """Start a program that does not outlive this process, nor does anything it starts.

    Args:
        command: The program and its arguments.
        environ: Its environment.
        mask: The signals that are blocked in it.

    Raises:
        UsageError: It cannot be started.
    """
    library = ctypes.CDLL(None)  # before the fork: the guard loads nothing
    answers, theirs = os.pipe()
    profiler, group = os.getpid(), os.getpgrp()
    guard = os.fork()
    if guard == 0:
        try:
            os.close(answers)
            _protect(library, profiler)
            _follow(_start(library, command, environ, mask, group, theirs), profiler, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    said = _read_line(answers)
    if not said.isdigit():
        os.waitpid(guard, 0)
        os.close(answers)
        raise UsageError(f"{command[0]} cannot be started ({said or 'it was killed'}).")
    return Guarded(int(said), guard, answers)


def _protect(library: ctypes.CDLL, profiler: int) -> None:
    """Be told when the profiler dies, take orphans, and hear no signal but these."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    library.prctl(_SET_PARENT_DEATH_SIGNAL, int(_PARENT_DIED), 0, 0, 0)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    if os.getppid() != profiler:
        os._exit(1)


def _start(
    library: ctypes.CDLL,
    command: list[str],
    environ: dict[str, str],
    mask: set[signal.Signals],
    group: int,
    answers: int,
) -> int:
    """Start the program and return its process id."""
    guard = os.getpid()

    def in_program() -> None:
        with contextlib.suppress(OSError):
            os.setpgid(0, group)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        library.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)

    try:
        process = subprocess.Popen(
            command,
            env=environ,
            close_fds=False,
            preexec_fn=in_program,  # noqa: PLW1509 - the guard has one thread
        )
    except OSError as error:
        os.write(answers, f"{error.strerror}\n".encode())
        os._exit(1)
    os.write(answers, f"{process.pid}\n".encode())
    return process.pid


def _follow(program: int, profiler: int, answers: int) -> None:
    """Wait for the program's end and tell it; end everything if nobody is left to be told."""
    while os.getppid() == profiler:
        signal.sigwaitinfo({signal.SIGCHLD, _PARENT_DIED})
        with contextlib.suppress(ChildProcessError):
            while True:
                done, status, usage = os.wait4(-1, os.WNOHANG)
                if done == program:
                    code = os.waitstatus_to_exitcode(status)
                    os.write(answers, f"{code} {usage.ru_maxrss * 1024}\n".encode())
                    return
                if not done:
                    break
    _end_all()


def _end_all() -> None:
    """Kill every child until there is none; their children become ours when they are gone."""
    until = time.monotonic() + _SECONDS_TO_END_ALL
    while time.monotonic() < until:
        for pid in _children(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as status:
                    # The name of a program is in brackets and may hold blanks and brackets.
                    above = int(status.read(4096).rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):  # it has ended in the meantime
                continue
            if above == parent:
                found.append(int(name))
    return found


def _read_all(pipe: int) -> bytes:
    text = b""
    while more := os.read(pipe, 64):
        text += more
    return text


def _read_line(pipe: int) -> str:
    """Return one line, byte by byte: what follows it is read at the end."""
    text = b""
    while not text.endswith(b"\n") and (more := os.read(pipe, 1)):
        text += more
    return text.decode(errors="replace").strip()
