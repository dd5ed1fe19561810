"""Descriptors and processes, with as little as can be imported: each program pays for it."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - signal takes longer to import
import fcntl
import os
import resource
from typing import Any

_RESERVED = 16
_CHUNK = 1 << 16
_MOST_SAID = 100_000


def move_high(descriptor: int) -> int:
    """Return the same under a number that programs do not come across, and that no child inherits."""
    least = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _RESERVED, 3)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)


def spawn(command: list[str], env: Any, given: Any = ()) -> int:
    """Return the number of a new process; *given* are pairs of a descriptor (see `move_high`) and the number it gets
    there.
    """
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for descriptor, number in given]
    default = [_signal.SIGPIPE, _signal.SIGXFSZ]  # Python ignores them, and children would, too
    return os.posix_spawn(command[0], command, env, file_actions=actions, setsigdef=default)


def output_of(command: list[str], env: Any) -> tuple[int, str]:
    """Return the exit code of a command, and what it says on both streams: the start of it, if it is much."""
    reading, writing = os.pipe()
    try:
        high = move_high(writing)
        try:
            process = spawn(command, env, [(high, 1), (high, 2)])
        finally:
            os.close(high)
            os.close(writing)
        said = b""
        while True:
            data = os.read(reading, _CHUNK)
            if not data:
                break
            said += data[: _MOST_SAID - len(said)]
    finally:
        os.close(reading)
    return exit_code(process), said.decode("utf-8", "replace")


def exit_code(process: int) -> int:
    """Wait for a child; gives its exit code, below 0 for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def scratch() -> str:
    """Return the path of a new directory that programs do not stumble on, and that is not given back as their work."""
    directory = os.environ.get("TMPDIR", "/tmp") + "/.toolexec-" + os.urandom(6).hex()  # noqa: S108 - for our use only
    os.mkdir(directory, 0o700)  # noqa: PTH102 - pathlib takes long to import
    return directory


def write_file(path: str, text: str) -> None:
    """Write a new file."""
    with open(path, "xb") as file:  # noqa: PTH123
        file.write(text.encode("utf-8", "replace"))


def remove(directory: str) -> None:
    """Delete a directory of ours with all that is in it, where that is possible."""
    try:
        for name in os.listdir(directory):  # noqa: PTH208
            os.unlink(directory + "/" + name)  # noqa: PTH108
        os.rmdir(directory)  # noqa: PTH106
    except OSError:  # there is more in it than we have put there
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
