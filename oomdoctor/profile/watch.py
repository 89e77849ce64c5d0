"""Watches a program to its end and writes down what it sees, ten times a second.

One thread, one loop: it sleeps by waiting for signals, so that the end of the program and Ctrl-C
are noticed at once. The cap of `--ram` is kept by this loop too: a hundred times a second it
compares, and kills as the kernel would, the largest process with SIGKILL. That needs no rights
and works in every container, where groups of one's own can seldom be made.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.probe.container import ContainerMeter
from oomdoctor.probe.host import read_host
from oomdoctor.profile import records
from oomdoctor.profile.gpus import GpuMeter
from oomdoctor.profile.guard import Guarded
from oomdoctor.profile.spawn import Plan, start
from oomdoctor.profile.store import OUTSIDE, Appender
from oomdoctor.profile.tree import ProcessTree
from oomdoctor.units import format_bytes

CAP_HZ = 100.0
"""How often the cap is compared: at 2 GB/s a program writes 20 MB in between."""
UNSHARED_EVERY_SECONDS = 10.0
SLOW_EVERY_SECONDS = 1.0
"""Swap and GPUs change slowly, and cost more to ask for."""
_FROM_KERNEL = 128
"""`si_code` of a signal that a key on the terminal sent, to the program as well."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


class Watch:
    """One run, from its start to its end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._container = ContainerMeter()
        self._gpus = GpuMeter()
        self._killed_before = self._container.oom_kills()
        self._began = time.monotonic()
        self._last = records.S(t=0.0)
        self._slow: tuple[int | None, list[tuple[int, int, int]]] = (None, [])
        self._next = {"sample": 0.0, "cap": 0.0, "slow": 0.0, "unshared": 2.0}
        self._capped = False
        self._asked: set[int] = set()
        try:
            self._lines = Appender(plan.folder / OUTSIDE, is_new=True)
        except OSError as error:
            raise UsageError(
                f"{plan.folder / OUTSIDE} cannot be made ({error.strerror}): give another --output."
            ) from error

    def run(self, versions: dict[str, str]) -> int:
        """Run the program to its end and return its exit code, as a shell gives it."""
        if not hasattr(signal, "sigtimedwait"):
            raise UsageError("`profile` needs Linux: this system cannot wait for signals.")
        waited = {signal.SIGCHLD, *_FORWARDED}
        former = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        try:
            self._write_start(versions)
            process = start(self.plan, self._began, {signal.Signals(one) for one in former})
            return self._follow(process, waited)
        finally:
            self._lines.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, former)

    def _write_start(self, versions: dict[str, str]) -> None:
        self._lines.write(
            records.Run(
                version=records.VERSION,
                command=[text[:1000] for text in ("python", *self.plan.arguments)][:1000],
                started_at=time.time(),
                rate_hz=self.plan.rate_hz,
                limits=self._limits(),
                versions=versions,
            )
        )

    def _limits(self) -> list[records.LimitLine]:
        found: list[tuple[str, int, str]] = []
        total = read_host().total_bytes
        if total is not None:
            found.append(("host", total, "RAM of this machine"))
        if self._container.limit is not None:
            found.append(("host", self._container.limit.limit_bytes, self._container.limit.source))
        if self.plan.ram_bytes is not None:
            found.append(("host", self.plan.ram_bytes, "--ram, kept by the profiler"))
        gpu = self._gpus.gpus[0] if self._gpus.gpus else None
        if gpu is not None and gpu.total_bytes is not None:
            found.append(("device", gpu.total_bytes, gpu.name))
        if self.plan.vram_bytes is not None:
            found.append(("device", self.plan.vram_bytes, "--vram, kept by TensorFlow's allocator"))
        return [records.LimitLine(*limit) for limit in found]

    def _follow(self, process: Guarded, waited: set[signal.Signals]) -> int:
        tree = ProcessTree(process.pid)
        while True:
            now = self._now()
            if now >= self._next["cap"]:
                self._look(tree, now)
            pause = max(0.0, min(self._next["cap"], self._next["sample"]) - self._now())
            caught = signal.sigtimedwait(waited, pause)
            if caught is None:
                continue
            if caught.si_signo != signal.SIGCHLD:
                self._pass_on(process, caught)
                continue
            ended = process.poll()
            if ended is not None:
                return self._write_end(ended.code, ended.peak_rss_bytes)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _look(self, tree: ProcessTree, now: float) -> None:
        """Read resident memory; keep the cap; write a sample when one is due."""
        rss = tree.rss_bytes()
        if rss is not None:
            self._last = records.S(t=round(now, 3), rss=rss, n=len(tree.pids))
        cap = self.plan.ram_bytes
        if cap is not None and rss is not None and rss >= cap and not self._capped:
            self._capped = True
            _kill_largest(tree)
            self._write_sample(tree, now)
        if now >= self._next["sample"]:
            self._write_sample(tree, now)
        every = min(1 / self.plan.rate_hz, 1 / CAP_HZ if cap is not None else 1e9)
        self._next["cap"] = self._now() + every

    def _write_sample(self, tree: ProcessTree, now: float) -> None:
        if now >= self._next["slow"]:
            self._slow = (tree.swap_bytes(), self._gpus.used_by(tree.pids))
            self._next["slow"] = now + SLOW_EVERY_SECONDS
        unshared = None
        if now >= self._next["unshared"]:
            unshared = tree.uss_bytes()
            took = self._now() - now
            self._next["unshared"] = now + max(UNSHARED_EVERY_SECONDS, 200 * took)
        self._lines.write(
            records.S(
                t=round(now, 3),
                rss=self._last.rss,
                uss=unshared,
                swap=self._slow[0],
                box=self._container.used_bytes(),
                gpus=self._slow[1],
                n=len(tree.pids),
            )
        )
        # Late ones are not made up for: a machine under pressure has better things to do.
        self._next["sample"] = max(self._next["sample"] + 1 / self.plan.rate_hz, now)

    def _pass_on(self, process: Guarded, caught: Any) -> None:
        self._asked.add(caught.si_signo)
        if caught.si_code == _FROM_KERNEL and caught.si_signo != signal.SIGHUP:
            return  # Ctrl-C on the terminal reached the program by itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, caught.si_signo)

    def _write_end(self, code: int, peak_rss: int) -> int:
        now = self._now()
        if self._last.rss is not None:
            self._lines.write(self._last)
        kills = self._container.oom_kills()
        known = kills is not None and self._killed_before is not None
        rose = kills - self._killed_before if known else None  # type: ignore[operator]
        if self._capped:
            cap = format_bytes(self.plan.ram_bytes)
            note = f"The cap of {cap} was reached and the program killed, as the kernel would."
            self._lines.write(records.Note(text=note))
        if self._lines.failed:
            note = "Some lines could not be written, as on a full disk: the recording has gaps."
            self._lines.write(records.Note(text=note))
        self._lines.write(
            records.Stop(
                t=round(now, 3),
                exit_code=code if code >= 0 else 128 - code,
                signal=_signal_name(-code) if code < 0 else None,
                killed_by=self._killed_by(code, rose),
                peak_rss=peak_rss,
                oom_kills=None if rose is None else max(0, rose),
            )
        )
        return code if code >= 0 else 128 - code

    def _killed_by(self, code: int, oom_kills: int | None) -> str | None:
        if self._capped:
            return "cap"
        if oom_kills:
            return "kernel"
        if code >= 0 and code != 128 + signal.SIGKILL:
            return "user" if self._asked and code in (128 + one for one in self._asked) else None
        return "user" if -code in self._asked else "unknown"


def _kill_largest(tree: ProcessTree) -> None:
    sizes = {pid: tree.rss_of(pid) or 0 for pid in tree.pids}
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(max(sizes, key=lambda pid: sizes[pid]), signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"
