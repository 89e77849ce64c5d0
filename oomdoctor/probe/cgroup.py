"""The memory limit of the container, the job or the service this process runs in.

Linux puts every process into a tree of groups. Any group on the way from the process up to the
root may carry a limit, so all of them are read and the one that leaves the least binds:

    available = limit - (usage - inactive page cache)

because the kernel drops inactive cache before it refuses memory. Both versions are read, and
both at once where they are mixed: version 2 has `memory.max` (the kernel kills above it) and
`memory.high` (it slows the group down to a crawl above it), version 1 `memory.limit_in_bytes`.

All paths lie under a root, so that recorded trees can stand in for a machine. Limits on swap
are ignored, and so are groups above the ones a container can see, except where version 1 tells
their limit in `memory.stat`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from oomdoctor.probe.limit import Limit, lowest

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_LIMIT_FROM_BYTES = 1 << 60
"""Version 1 writes the largest page count it can hold, near 2**63, where there is no limit."""

_MOST_CHARACTERS = 1 << 20
"""More than any of these files holds; a longer one is not what it claims to be."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    version: int
    group: str
    """The group that the mount point shows: `/`, or the container's own group."""
    point: str


def read_cgroup_limit(root: Path = Path("/")) -> Limit | None:
    """Return the limit that binds among this process's groups, or None where there is none.

    Args:
        root: Where the file system starts: `/`, or a recorded tree.
    """
    limits: list[Limit] = []
    for mount, parts in _own_places(root):
        limits += _read_limits_upward(root, mount, parts)
    return lowest(limits)


def own_folders(root: Path = Path("/")) -> list[tuple[int, Path]]:
    """Return pairs of version and folder: this process's groups, then those above them."""
    return [
        (mount.version, (root / mount.point.lstrip("/")).joinpath(*parts[:depth]))
        for mount, parts in _own_places(root)
        for depth in range(len(parts), -1, -1)
    ]


def _own_places(root: Path) -> Iterator[tuple[_Mount, tuple[str, ...]]]:
    """Yield where this process's groups lie: a mount, and the folders below it."""
    mounts = _read_mounts(root)
    for version, group in _read_own_groups(root):
        same_version = [mount for mount in mounts if mount.version == version]
        for mount in same_version:
            parts = _place_under(mount, group, is_only=len(same_version) == 1)
            if parts is not None:
                yield mount, parts


def _read_own_groups(root: Path) -> list[tuple[int, str]]:
    """Return pairs of version and group path, from lines `number:controllers:path`."""
    found = []
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            found.append((2, path))
        elif "memory" in controllers.split(","):
            found.append((1, path))
    return found


def _read_mounts(root: Path) -> list[_Mount]:
    """Return where the groups are mounted. A mount's options end with a lone hyphen."""
    mounts = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, hyphen, after = line.partition(" - ")
        fields, described = before.split(" "), after.split(" ")
        if not hyphen or len(fields) < 6 or len(described) < 3:
            continue
        version = 0
        if described[0] == "cgroup2":
            version = 2
        elif described[0] == "cgroup" and "memory" in described[2].split(","):
            version = 1
        if version:
            group, point = (_unescape(field) for field in fields[3:5])
            mounts.append(_Mount(version=version, group=group, point=point))
    return mounts


def _place_under(mount: _Mount, group: str, *, is_only: bool) -> tuple[str, ...] | None:
    """Return the folders from the mount point down to the group, or None if it is not there."""
    own, shown = PurePosixPath(group).parts, PurePosixPath(mount.group).parts
    if own[: len(shown)] == shown and ".." not in own[len(shown) :]:
        return own[len(shown) :]
    # Inside a cgroup namespace paths lead outside it ("/../.."), and in nested containers the
    # two paths start at different places. The mount point then is our group or one above it.
    return () if is_only or ".." in own or ".." in shown else None


def _read_limits_upward(root: Path, mount: _Mount, parts: tuple[str, ...]) -> Iterator[Limit]:
    point = root / mount.point.lstrip("/")
    read = _read_version_2 if mount.version == 2 else _read_version_1
    for depth in range(len(parts), -1, -1):
        if depth == len(parts):
            above = None
        elif depth:
            above = parts[depth - 1]
        else:
            # A limit at the mount point is a container's: the machine's own root has none.
            name = PurePosixPath(mount.group).name
            above = name if name not in ("", "..") else "the container's group"
        yield from read(point.joinpath(*parts[:depth]), above)


def _read_version_2(folder: Path, above: str | None) -> Iterator[Limit]:
    """Yield the limits of one group; `above` names it unless it is the process's own."""
    used = read_used(folder, "memory.current", ("inactive_file",))
    for file in ("memory.max", "memory.high"):
        limit = _limit_or_none(read_text(folder / file))
        if limit is not None:
            yield _limit(limit, used, file, above)


def _read_version_1(folder: Path, above: str | None) -> Iterator[Limit]:
    used = read_used(folder, "memory.usage_in_bytes", ("total_inactive_file", "inactive_file"))
    inherits = (read_text(folder / "memory.use_hierarchy") or "1").strip() != "0"
    limit = _limit_or_none(read_text(folder / "memory.limit_in_bytes"))
    if limit is not None and (above is None or inherits):
        yield _limit(limit, used, "memory.limit_in_bytes", above)
    if above is not None:
        return
    # The lowest limit of all groups above, also of those that a container does not show.
    inherited = _limit_or_none(_read_statistics(folder).get("hierarchical_memory_limit"))
    if inherited is not None and (limit is None or inherited < limit):
        yield _limit(inherited, used, "memory.limit_in_bytes", "a group above")


def _limit(limit: int, used: int, file: str, above: str | None) -> Limit:
    shown = "".join(letter for letter in above or "" if letter.isprintable())
    return Limit(
        limit_bytes=limit,
        available_bytes=max(0, limit - used),
        source=f"cgroup {file} ({shown})" if shown else f"cgroup {file}",
    )


def read_used(folder: Path, file: str, cache_keys: tuple[str, ...]) -> int:
    """Return the bytes in use that cannot be dropped; zero where the kernel does not tell."""
    usage = _whole_number(read_text(folder / file)) or 0
    statistics = _read_statistics(folder)
    for key in cache_keys:
        inactive = _whole_number(statistics.get(key))
        if inactive is not None:
            return max(0, usage - inactive)
    return usage


def _read_statistics(folder: Path) -> dict[str, str]:
    lines = (read_text(folder / "memory.stat") or "").splitlines()
    pairs = (line.split() for line in lines)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _limit_or_none(text: str | None) -> int | None:
    number = _whole_number(text)
    return number if number and number < _NO_LIMIT_FROM_BYTES else None


def _whole_number(text: str | None) -> int | None:
    text = (text or "").strip()
    # A kernel counter has 20 digits at most; the bound also keeps `int` from refusing.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def read_text(path: Path) -> str | None:
    """Return a small file of the kernel, or None where it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_CHARACTERS)
    except (OSError, ValueError):
        return None


def _unescape(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
