"""Control groups of the kernel, in both of its versions: what the processes of one container may use, and have used.

Groups are made where this process may make them, below a directory `toolexec`, each named by its owner (see `owner`),
so that another process can remove those of a dead one. All is done by quick calls into the kernel (a new group takes
0.4 ms), but `kill`, `remove` and `sweep` wait.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from toolexec.process.owner import is_orphan, this_owner
from toolexec.process.poll import pauses

logger: logging.Logger = logging.getLogger(__name__)

CONTROLLERS: Final = ("memory", "pids", "cpu", "cpuacct")
"""What is asked of a hierarchy; `cpuacct` is part of each group in version 2."""

CPU_PERIOD: Final = 100_000
"""In microseconds; a rate of CPU time is so much in each of them."""

_SMALLEST_QUOTA: Final = 1000  # the kernel takes no smaller one
_PROC: Final = Path("/proc")
_MOUNTED: Final = Path("/sys/fs/cgroup")
_CPUACCT: Final = ("cpuacct", "cpu,cpuacct", "cpuacct,cpu")
_OURS: Final = "toolexec"
_PATIENCE: Final = 5.0
_JOIN: Final = """\
n={count}
while [ $n -gt 0 ]; do
    echo 0 > "$1" || exit 70
    shift
    n=$((n - 1))
done
{first} || exit 70
exec "$@"
"""
_numbers = itertools.count(1)


class Group(ABC):
    """One control group, in as many hierarchies as it takes: *directories* is controller → directory, some of which may
    be the same."""

    _own_file = "cgroup.procs"
    """Where a process writes to move itself."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = directories

    @property
    def directories(self) -> tuple[Path, ...]:
        """Its directories."""
        return (*dict.fromkeys(self._directories.values()),)

    @abstractmethod
    def limit(self, *, memory_bytes: int = 0, pids: int = 0, cpus: float = 0) -> None:
        """Bound what its members use together; 0 means unbounded, and a bound whose controller is missing does nothing.

        `memory_bytes` includes swap. Raises OSError when the kernel refuses.
        """

    @abstractmethod
    def cpu_seconds(self) -> float | None:
        """Return the CPU time that its members, past ones too, have used; None when that is not counted."""

    @abstractmethod
    def oom_kills(self) -> int:
        """Count its processes that the kernel has killed for the memory of the group."""

    def refusals(self) -> int:
        """Count how often a process was refused for their number."""
        directory = self._directories.get("pids")
        return _fields(directory / "pids.events").get("max", 0) if directory is not None else 0

    def add(self, pid: int) -> None:
        """Make a process a member, and with it all that it starts from now on. Raises OSError.

        It can take ten milliseconds, as the kernel stops all that would start processes; see `joining`.
        """
        for directory in self.directories:
            _write(directory / "cgroup.procs", pid)

    def joining(self, command: Sequence[str], *, first: str = "true") -> list[str]:
        """Return a command that joins the group, does the shell command *first* and becomes *command*.

        So nothing of it is ever out of the group, and there is nothing to wait for: a single thread that moves itself
        stops no other one, in version 1. Ends with 70 when it cannot join.
        """
        files = [str(directory / self._own_file) for directory in self.directories]
        return ["/bin/sh", "-c", _JOIN.format(count=len(files), first=first), "sh", *files, *command]

    def members(self) -> set[int]:
        """Return the processes in it now."""
        return {pid for directory in self.directories for pid in _members(directory)}

    def kill(self) -> bool:
        """Kill all members, and those that they start meanwhile; whether none is left after some seconds."""
        until = time.monotonic() + _PATIENCE
        waits = pauses(0.0005, 0.02)
        while members := self._kill_members():
            if time.monotonic() > until:
                logger.error("the processes %s of a control group cannot be ended", sorted(members)[:10])
                return False
            time.sleep(next(waits))
        return True

    def _kill_members(self) -> set[int]:
        """Kill those that are there; gives them."""
        members = self.members()
        if members and "pids" in self._directories:
            with suppress(OSError):  # what cannot multiply is soon gone
                _write(self._directories["pids"] / "pids.max", 0)
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return members

    def remove(self) -> bool:
        """Kill all members and remove the group; whether it is gone."""
        if not self.kill():
            return False
        stayed = [directory for directory in self.directories if not _remove(directory)]
        return not stayed


class _GroupV1(Group):
    """A group of the first version: a directory in the hierarchy of each controller."""

    _own_file = "tasks"

    def limit(self, *, memory_bytes: int = 0, pids: int = 0, cpus: float = 0) -> None:
        directories = self._directories
        if memory_bytes and "memory" in directories:
            _write(directories["memory"] / "memory.limit_in_bytes", memory_bytes)
            with_swap = directories["memory"] / "memory.memsw.limit_in_bytes"
            if with_swap.exists():
                _write(with_swap, memory_bytes)
            else:  # this kernel does not count swap: then there should be none
                _write(directories["memory"] / "memory.swappiness", 0)
        if pids and "pids" in directories:
            _write(directories["pids"] / "pids.max", pids)
        if cpus and "cpu" in directories:
            _write(directories["cpu"] / "cpu.cfs_period_us", CPU_PERIOD)
            _write(directories["cpu"] / "cpu.cfs_quota_us", cpu_quota(cpus))

    def cpu_seconds(self) -> float | None:
        directory = self._directories.get("cpuacct")
        used = _read(directory / "cpuacct.usage") if directory is not None else ""
        return int(used) / 1e9 if used.strip().isdecimal() else None

    def oom_kills(self) -> int:
        directory = self._directories.get("memory")
        return _fields(directory / "memory.oom_control").get("oom_kill", 0) if directory is not None else 0


class _GroupV2(Group):
    """A group of the second version: one directory, with all controllers."""

    def limit(self, *, memory_bytes: int = 0, pids: int = 0, cpus: float = 0) -> None:
        directories = self._directories
        if memory_bytes and "memory" in directories:
            _write(directories["memory"] / "memory.max", memory_bytes)
            swap = directories["memory"] / "memory.swap.max"
            if swap.exists():  # else this kernel does not count swap
                _write(swap, 0)
        if pids and "pids" in directories:
            _write(directories["pids"] / "pids.max", pids)
        if cpus and "cpu" in directories:
            _write(directories["cpu"] / "cpu.max", f"{cpu_quota(cpus)} {CPU_PERIOD}")

    def cpu_seconds(self) -> float | None:
        used = _fields(self._directories["cpuacct"] / "cpu.stat").get("usage_usec")
        return used / 1e6 if used is not None else None

    def oom_kills(self) -> int:
        directory = self._directories.get("memory")
        return _fields(directory / "memory.events").get("oom_kill", 0) if directory is not None else 0

    def _kill_members(self) -> set[int]:
        members = self.members()
        if members:
            try:
                _write(self._directories["cpuacct"] / "cgroup.kill", 1)
            except OSError:  # older than Linux 5.14
                return super()._kill_members()
        return members


class Cgroups:
    """A place for groups. *directories* is controller → the directory `toolexec` that groups go into."""

    def __init__(self, version: Literal[1, 2], directories: Mapping[str, Path]) -> None:
        self.version = version
        self._directories = directories

    @property
    def controllers(self) -> frozenset[str]:
        """Those of `CONTROLLERS` that groups here have."""
        return frozenset(self._directories)

    def create(self, *, memory_bytes: int = 0, pids: int = 0, cpus: float = 0) -> Group:
        """Create a group, owned by this process, with these bounds (see `Group.limit`). Raises OSError."""
        group = self._group(f"{this_owner()}-{next(_numbers)}")
        try:
            for directory in group.directories:
                directory.mkdir()
            group.limit(memory_bytes=memory_bytes, pids=pids, cpus=cpus)
        except BaseException:
            for directory in group.directories:
                with suppress(OSError):
                    directory.rmdir()
            raise
        return group

    def sweep(self) -> None:
        """Remove the groups of owners that are dead, with all that still runs in them."""
        names: set[str] = set()
        for directory in {*self._directories.values()}:
            with suppress(OSError):
                names |= {entry.name for entry in directory.iterdir()}
        for name in sorted(names):
            if is_orphan(name.rpartition("-")[0]) and not self._group(name).remove():
                logger.warning("the control group %s of a dead process cannot be removed", name)

    def _group(self, name: str) -> Group:
        kind = _GroupV1 if self.version == 1 else _GroupV2
        return kind({controller: directory / name for controller, directory in self._directories.items()})


def cpu_quota(cpus: float) -> int:
    """Return a rate as the CPU time, in microseconds, that is there in each period of 100 ms: 1.0 is 100000.

    0, no bound, stays 0. The smallest quota is 1000.
    """
    return max(_SMALLEST_QUOTA, round(cpus * CPU_PERIOD)) if cpus else 0


def group_at(path: str, *, mounted: Path = _MOUNTED) -> Group:
    """Return the group at *path* (as in `cgroupsPath` of an OCI bundle) that something else makes, if it is there."""
    path = path.lstrip("/")
    if (mounted / "cgroup.controllers").exists():
        return _GroupV2(dict.fromkeys(CONTROLLERS, mounted / path))
    return _GroupV1({controller: mounted / controller / path for controller in CONTROLLERS})


def cgroup_cpu_seconds(pid: int, name: str, proc: Path = _PROC, mounted: Path = _MOUNTED) -> float | None:
    """Read the CPU time of the group of process *pid* from the kernel: some daemons take a second to give it.

    None where it is not known: the process is gone, or of another machine, whose process numbers mean nothing here;
    so *name*, such as the ID of a container, must be part of what the group is called.
    """
    groups = _groups(proc, pid)
    kinds: list[tuple[str, type[Group], Sequence[str]]] = [("cpuacct", _GroupV1, _CPUACCT), ("", _GroupV2, ("",))]
    for controller, kind, mounts in kinds:
        path = groups.get(controller, "")
        for mount in mounts if name in path else ():
            used = kind({"cpuacct": mounted / mount / path.lstrip("/")}).cpu_seconds()
            if used is not None:
                return used
    return None


def mounted_controllers(mounted: Path = _MOUNTED) -> frozenset[str]:
    """List the controllers that there are, of version 1 and 2: "memory", "pids", "cpu", "cpuacct", …"""
    found = {*_read(mounted / "cgroup.controllers").split()}
    if found:
        found.add("cpuacct")  # always part of version 2
    with suppress(OSError):
        found.update(
            name for directory in mounted.iterdir() for name in directory.name.split(",") if directory.is_dir()
        )
    return frozenset(found)


def find_cgroups(proc: Path = _PROC) -> Cgroups | None:
    """Find where this process can make groups with the most controllers; None if nowhere, as for most ordinary users.

    The top of a hierarchy is preferred to the group that this process is in: what is left there is found again by
    other processes.
    """
    mounts, own = [*_mounts(proc)], _groups(proc, "self")
    second = [_second(mount, own) for mount in mounts if mount.kind == "cgroup2"]
    found = [_first(mounts, own), *second]
    usable = [place for place in found if place is not None and place.controllers & {"memory", "pids"}]
    return max(usable, key=lambda place: len(place.controllers), default=None)


class _Mount(NamedTuple):
    kind: str
    root: str
    """The group that is seen at the mount point."""
    point: Path
    controllers: frozenset[str]

    def below(self, group: str) -> Path | None:
        """Return the directory of a group; None when it is not below this mount."""
        root = self.root.rstrip("/")
        if group != root and not group.startswith(f"{root}/"):
            return None
        return self.point / group[len(root) :].lstrip("/")


def _mounts(proc: Path) -> Iterator[_Mount]:
    for line in _read(proc / "self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.partition(" ")
        fields = left.split()
        if kind in ("cgroup", "cgroup2") and len(fields) > 4:
            point = Path(fields[4].replace("\\040", " "))
            yield _Mount(kind, fields[3], point, frozenset(options.rpartition(" ")[2].split(",")) & {*CONTROLLERS})


def _groups(proc: Path, process: int | str) -> dict[str, str]:
    """Controller → the group of a process; the controller "" is version 2."""
    groups: dict[str, str] = {}
    for line in _read(proc / str(process) / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _first(mounts: Iterable[_Mount], own: Mapping[str, str]) -> Cgroups | None:
    directories: dict[str, Path] = {}
    for mount in mounts:
        for controller in mount.controllers if mount.kind == "cgroup" else ():
            mine = mount.below(own.get(controller, ""))
            for base in (mount.point, *(() if mine is None else (mine,))):
                if controller not in directories and (place := _place(base)) is not None:
                    directories[controller] = place
    return Cgroups(1, directories) if directories else None


def _second(mount: _Mount, own: Mapping[str, str]) -> Cgroups | None:
    """Of the groups above this process, and its own, the first one that has the most to offer.

    A process may be moved by a user who may write to the group that is above both where it is and where it goes. All
    controllers of a group must be switched on in the group above it, which is refused where processes are in that.
    """
    mine = mount.below(own.get("", ""))
    if mine is None:
        return None
    above = [
        directory for directory in (mine, *mine.parents) if directory == mount.point or mount.point in directory.parents
    ]
    best: dict[str, Path] = {}
    for base in reversed(above):
        if not os.access(base / "cgroup.procs", os.W_OK):
            continue
        _switch_on(base)
        place = _place(base)
        if place is None:
            continue
        _switch_on(place)
        offered = {*_read(place / "cgroup.subtree_control").split()} & {*CONTROLLERS}
        if len(offered) >= len(best):
            best = dict.fromkeys([*sorted(offered), "cpuacct"], place)
        if len(best) == len(CONTROLLERS):
            break
    return Cgroups(2, best) if best else None


def _switch_on(directory: Path) -> None:
    """Switch controllers on one by one, as one that cannot be had fails them all."""
    on = _read(directory / "cgroup.subtree_control").split()
    for controller in _read(directory / "cgroup.controllers").split():
        if controller in CONTROLLERS and controller not in on:
            with suppress(OSError):
                _write(directory / "cgroup.subtree_control", f"+{controller}")


def _place(base: Path) -> Path | None:
    """Make the directory for groups below *base*, if it is not there; None when no groups can be made in it."""
    place = base / _OURS
    with suppress(OSError):
        _make(place)
        if os.access(place, os.W_OK | os.X_OK) and os.access(place / "cgroup.procs", os.W_OK):
            return place
    return None


def _make(place: Path) -> None:
    place.mkdir(exist_ok=True)


def _members(directory: Path) -> list[int]:
    return [int(pid) for pid in _read(directory / "cgroup.procs").split()]


def _remove(directory: Path) -> bool:
    """Remove it and return whether it is gone; a process that has just died may keep it busy for a moment."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            if time.monotonic() > until:
                logger.error("the control group %s cannot be removed: %s", directory, error.strerror)
                return False
            time.sleep(0.002)
        else:
            return True


def _fields(path: Path) -> dict[str, int]:
    """Read the numbers of a file of lines with a name and a number each."""
    pairs = [line.split() for line in _read(path).splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _read(path: Path) -> str:
    """Read a file of the kernel; "" for one that is not there."""
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _write(path: Path, value: int | str) -> None:
    """Write once, as one write is one order to the kernel; a file that is not there must not come to be."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode("ascii"))
    finally:
        os.close(descriptor)
