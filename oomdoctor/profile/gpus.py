"""Who holds GPU memory, again and again, for the processes of one run."""

from __future__ import annotations

from collections.abc import Collection

from oomdoctor.facts import Gpu
from oomdoctor.probe.gpu import read_gpus


class GpuMeter:
    """Asks the driver; costs nothing where there is no GPU."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] = read_gpus()[0]

    def used_by(self, pids: Collection[int]) -> list[tuple[int, int, int]]:
        """Return GPU, process and bytes of the processes given."""
        if not self.gpus:
            return []
        gpus, _ = read_gpus()
        return [
            (gpu.index, process.pid, process.used_bytes)
            for gpu in gpus
            for process in gpu.processes or ()
            if process.pid in pids and process.used_bytes is not None
        ]
