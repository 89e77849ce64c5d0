"""What the container of this process uses, again and again, and how often it killed.

`cgroup` reads the limit once and looks at every group on the way; this reads two or three small
files of one group, cheap enough for ten times a second: the group whose limit is the lowest, or
this process's own where none has a limit.
"""

from __future__ import annotations

from pathlib import Path

from oomdoctor.probe import cgroup
from oomdoctor.probe.limit import Limit

_FILES = {
    1: ("memory.usage_in_bytes", ("total_inactive_file", "inactive_file"), "memory.oom_control"),
    2: ("memory.current", ("inactive_file",), "memory.events"),
}


class ContainerMeter:
    """Reads one group."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.limit: Limit | None = cgroup.read_cgroup_limit(root)
        found = _choose(cgroup.own_folders(root), self.limit)
        self._version = found[0] if found else 0
        self._folder = found[1] if found else None

    def used_bytes(self) -> int | None:
        """Return the bytes in use that cannot be dropped; None outside a container."""
        if self._folder is None:
            return None
        file, cache_keys, _ = _FILES[self._version]
        if not (self._folder / file).exists():
            return None
        return cgroup.read_used(self._folder, file, cache_keys)

    def oom_kills(self) -> int | None:
        """Return how many processes the kernel has killed in this group so far."""
        if self._folder is None:
            return None
        text = cgroup.read_text(self._folder / _FILES[self._version][2]) or ""
        pairs = (line.split() for line in text.splitlines())
        counts = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
        count = counts.get("oom_kill", "")
        return int(count) if count.isascii() and count.isdigit() and len(count) < 19 else None


def _choose(folders: list[tuple[int, Path]], limit: Limit | None) -> tuple[int, Path] | None:
    """The group with the lowest limit; else the process's own, if it is not the machine's."""
    if limit is not None:
        for version, folder in folders:
            for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
                text = (cgroup.read_text(folder / name) or "").strip()
                if text == str(limit.limit_bytes):
                    return version, folder
    with_figures = [
        (version, folder) for version, folder in folders if (folder / _FILES[version][0]).exists()
    ]
    return with_figures[0] if with_figures else None
