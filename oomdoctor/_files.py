"""Reads small files that anybody may have written, and writes files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat


class NotPlain(OSError):
    """A path that leads to no small, plain file. `strerror` says in a clause what it is."""


def read_small(path: str | os.PathLike[str], *, most: int) -> bytes:
    """Return what a plain file of at most so many bytes holds.

    Raises:
        OSError: It cannot be read.
        NotPlain: It is a pipe, a device or a folder, is larger, or no file can have its name.
    """
    try:
        # Without O_NONBLOCK a pipe that is named like a file would block for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise NotPlain(errno.EINVAL, "no file can have this name") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise NotPlain(errno.EINVAL, "it is not a file")
        with open(handle, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(handle)
    if len(content) > most:
        raise NotPlain(errno.EFBIG, f"it is larger than {most // 1024} KiB")
    return content


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file so that all of it is there, or what was there before.

    A link is replaced, not followed: it may have come with somebody else's files. A device or a
    pipe, such as `/dev/stdout`, is written to.

    Raises:
        OSError: It cannot be written. Nothing is left behind.
    """
    path = os.fspath(path)
    if "\0" in path:
        raise NotPlain(errno.EINVAL, "no file can have this name")
    if _is_stream(path):
        with open(path, "wb") as file:
            file.write(content)
        return
    folder, name = os.path.split(path)
    import tempfile  # late: it takes a tenth of what `oomdoctor --help` does

    handle, part = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".part", dir=folder or ".")
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.chmod(part, _mode(path))
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _is_stream(path: str) -> bool:
    """Return whether a path is there and is written to, not replaced."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return True
    # What a process has open may be a file, and /dev/stdout is a link to it.
    return os.path.abspath(path).startswith(("/dev/", "/proc/"))


def _mode(path: str) -> int:
    """Return the permissions of the file that is replaced, or those of a new file."""
    try:
        status = os.lstat(path)
    except OSError:
        status = None
    if status is not None and stat.S_ISREG(status.st_mode):
        return stat.S_IMODE(status.st_mode) & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
