"""What a node needs of the kernel: children that it waits for, mounts, control groups."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PR_SET_CHILD_SUBREAPER = 36
_DETACH = 2
_CHUNK = 1 << 15  # what a kubelet copies at once
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of what a detached child leaves: only a parent gets to know an exit code."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def spawn(words: Sequence[str], stdin: int, stdout: int, stderr: int) -> int:
    """Start a child with these descriptors, and return its pid; `wait_pid` has to be called for it."""
    child = subprocess.Popen([*words], stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
    child.returncode = 0  # it is waited for by its pid
    return child.pid


async def wait_pid(pid: int) -> int:
    """Wait until a child or an adopted process has ended, and return its exit code, 128 + N after the signal N."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    descriptor = os.pidfd_open(pid)
    loop.add_reader(descriptor, lambda: ended.done() or ended.set_result(None))
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


async def command(*words: str, stdin: str = "") -> str:
    """Run a command, and return what it printed; raises OSError with that if it fails."""
    done = await asyncio.to_thread(
        subprocess.run, words, input=stdin, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Pump:
    """Copies what comes out of a pipe to *sink* until its end."""

    def __init__(self, descriptor: int, sink: Callable[[bytes], Awaitable[None]]) -> None:
        self._descriptor = descriptor
        self._sink = sink

    async def run(self) -> None:
        """Copy. A slow sink slows the writer down."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK)
        file = os.fdopen(self._descriptor, "rb", 0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        try:
            while data := await reader.read(_CHUNK):
                await self._sink(data)
        finally:
            transport.close()


async def input_pipe() -> tuple[int, asyncio.StreamWriter]:
    """Return the end of a pipe that a child reads from, and what writes into the other one."""
    reading, writing = os.pipe()
    transport, protocol = await asyncio.get_running_loop().connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(writing, "wb", 0)
    )
    return reading, asyncio.StreamWriter(transport, protocol, None, asyncio.get_running_loop())


def mount(kind: str, source: str, target: Path, options: str) -> None:
    """Mount a file system; raises OSError."""
    if _libc.mount(source.encode(), os.fsencode(target), kind.encode(), 0, options.encode()):
        raise OSError(ctypes.get_errno(), f"mount {kind} at {target}")


def unmount(target: Path) -> None:
    """Unmount, if anything is mounted there."""
    _libc.umount2(os.fsencode(target), _DETACH)


def cgroup_directories(path: str) -> list[Path]:
    """Return the directories that the control group *path* has, one for each controller under version 1."""
    inside = path.strip("/")
    found = [each / inside for each in (_CGROUPS, *_CGROUPS.iterdir()) if (each / inside).is_dir()]
    return [each for each in found if (each / "cgroup.procs").exists()]


def oom_kills(path: str) -> int:
    """Return how many processes of the control group were killed for its memory."""
    inside = path.strip("/")
    for file in (_CGROUPS / "memory" / inside / "memory.oom_control", _CGROUPS / inside / "memory.events"):
        with suppress(OSError):
            for line in file.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def kill_cgroup(path: str) -> None:
    """Kill all processes in a control group and in those below it."""
    for directory in cgroup_directories(path):
        for file in [directory / "cgroup.procs", *directory.glob("**/cgroup.procs")]:
            with suppress(OSError):
                for pid in file.read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)


def remove_cgroups(path: str) -> list[str]:
    """Kill what is in a control group and in those below it, remove them, and return the directories that stay; blocks."""
    left: list[str] = []
    for _ in range(100):
        left = [each for each in cgroup_directories(path) if not _remove_tree(each)]
        if not left:
            break
        kill_cgroup(path)
        time.sleep(0.01)
    return [str(each) for each in left]


def _remove_tree(directory: Path) -> bool:
    below = sorted((each for each in directory.glob("**/") if each != directory), reverse=True)
    with suppress(FileNotFoundError):
        for each in [*below, directory]:
            try:
                each.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                return False
    return True


def disk_usage(directory: Path) -> int:
    """Return the bytes that a tree takes on the disk."""
    total = 0
    with suppress(OSError):
        for entry in os.scandir(directory):
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    total += disk_usage(Path(entry.path))
    return total
