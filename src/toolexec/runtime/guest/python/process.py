"""The process that programs run in: its descriptors, its files, its forks, its end."""

from __future__ import annotations

import os
import sys
from typing import Any


def end_group() -> None:
    """End this process, and those that it has started if they are a group of its own."""
    if os.getpgrp() == os.getpid():
        import signal

        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def fork_quietly() -> None:
    """Let programs fork without a warning: the thread that a fork would lose is ours, and its child does without."""
    if sys.version_info >= (3, 12):

        def ignore() -> None:
            import warnings

            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

        os.register_at_fork(before=ignore)


def move_descriptors(read_fd: int, write_fd: int) -> tuple[int, int]:
    """Return the descriptors under new numbers, which no child inherits."""
    moved = os.dup(read_fd)
    pair = (moved, moved if write_fd == read_fd else os.dup(write_fd))
    for descriptor in {read_fd, write_fd}:
        if descriptor == 0:
            _replace(0, os.open(os.devnull, os.O_RDONLY))
        elif descriptor in (1, 2):
            os.dup2(3 - descriptor, descriptor)
        else:
            os.close(descriptor)
    return pair


def _replace(descriptor: int, by: int) -> None:
    if by == descriptor:  # a program has closed it, and so the new one got its number
        os.set_inheritable(descriptor, True)
        return
    os.dup2(by, descriptor)
    os.close(by)


def set_stdin(text: Any) -> None:
    """Have the program, and what it starts, read *text* (base64) as its input."""
    if text:
        from binascii import a2b_base64

        _replace(0, _file_of(a2b_base64(text)))
    else:
        try:
            os.close(0)  # there may be as many open files as there can be
        except OSError:
            pass
        _replace(0, os.open(os.devnull, os.O_RDONLY))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it lives as long as the process


def _file_of(data: bytes) -> int:
    """A file without a name, in memory where the system has such files, to be read from its start."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("stdin")
    else:
        import tempfile

        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def flush_files() -> None:
    """Write out what the program has left in the buffers of files that are open still, as Python does at its end."""
    import gc
    import io

    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            try:
                if not thing.closed and thing.writable():
                    thing.flush()
            except (OSError, ValueError):
                continue
    for stream in (sys.__stdout__, sys.__stderr__):  # which are older than what is looked through
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
