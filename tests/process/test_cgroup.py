"""Control groups: found, made, joined, read, killed, removed, swept; on the real kernel, and on trees like its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.bubblewrap import groups_of, require_cgroups

from toolexec.process import cgroup as module
from toolexec.process.cgroup import CONTROLLERS, Cgroups, Group, find_cgroups, group_at, mounted_controllers
from toolexec.process.owner import this_owner

LONG = 60
UNIFIED = Path("/sys/fs/cgroup/unified")


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    """Those of this machine; none of ours may be left after the test."""
    before = groups_of(os.getpid())
    yield require_cgroups()
    assert groups_of(os.getpid()) <= before


@pytest.fixture
def second() -> Iterator[Cgroups]:
    """The second version as it is on this machine: here without any controller, which is enough for processes."""
    if not (UNIFIED / "cgroup.procs").exists() or not os.access(UNIFIED / "cgroup.procs", os.W_OK):
        pytest.skip("there is no hierarchy of version 2 at /sys/fs/cgroup/unified that can be written")
    place = UNIFIED / f"toolexec-test-{os.getpid()}"
    place.mkdir()
    yield Cgroups(2, {"cpuacct": place})
    place.rmdir()


FORKS = """
import os, signal
children = []
try:
    while True:
        children.append(os.fork())
        if not children[-1]:
            signal.pause()
except OSError as error:
    print(len(children), type(error).__name__)
for child in children:
    os.kill(child, signal.SIGKILL)
"""


def run_in(group: Group, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        group.joining(command), env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=LONG
    )


def dead_owner() -> str:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    machine, _, _ = this_owner().split("-")
    started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    process.wait()
    return f"{machine}-{process.pid}-{started}"


# -- the real kernel --------------------------------------------------------------------------------------------------


def test_a_program_that_takes_too_much_memory_is_killed(cgroups: Cgroups) -> None:
    """The group records the kill; a program within its memory is left alone."""
    group = cgroups.create(memory_bytes=64 << 20)
    assert run_in(group, "/usr/bin/python3", "-c", "bytearray(16 << 20)").returncode == 0
    assert group.oom_kills() == 0
    assert run_in(group, "/usr/bin/python3", "-c", "bytearray(256 << 20)").returncode == -9
    assert group.oom_kills() == 1
    assert group.remove()


def test_too_many_processes_are_refused(cgroups: Cgroups) -> None:
    """The group records the refusal."""
    group = cgroups.create(pids=3)
    assert group.refusals() == 0
    assert run_in(group, "/usr/bin/python3", "-c", FORKS).stdout == "2 BlockingIOError\n"
    assert group.refusals() >= 1
    assert group.remove()


def test_the_rate_of_cpu_time_is_held(cgroups: Cgroups) -> None:
    """A program that wants a whole core does not get it all the time."""
    group = cgroups.create(cpus=0.05)
    burn = "import time\nwhile time.process_time() < 0.1: pass"
    assert run_in(group, "/usr/bin/python3", "-c", burn).returncode == 0
    stat = dict(line.split() for line in (group._directories["cpu"] / "cpu.stat").read_text().splitlines())
    assert int(stat["nr_throttled"]) > 0
    used = group.cpu_seconds()
    assert used is not None
    assert used >= 0.09  # the kernel counts a little less than the program does
    assert group.remove()
    assert group.cpu_seconds() is None


def test_all_members_are_killed_at_once(cgroups: Cgroups) -> None:
    """All processes of the group end, whichever process started them, even those that start others all the time."""
    group = cgroups.create(pids=60)
    bomb = subprocess.Popen(
        group.joining(["sh", "-c", "bomb() { bomb | bomb & sleep 0.01; bomb; }; bomb"]), stderr=subprocess.DEVNULL
    )
    other = subprocess.Popen(["setsid", "sleep", "1000"])
    group.add(other.pid)
    until = time.monotonic() + LONG
    while len(group.members()) < 10 and time.monotonic() < until:
        time.sleep(0.01)
    assert other.pid in group.members()
    assert group.remove()
    assert bomb.wait(LONG) != 0
    assert other.wait(LONG) == -9
    assert group.remove()


def test_a_program_is_in_its_group_from_the_start(cgroups: Cgroups) -> None:
    """With its arguments as they are, after what is to be done first."""
    group = cgroups.create()
    code = "import sys; print(sys.argv[1:], open('/proc/self/cgroup').read().count(sys.argv[1]))"
    name = group.directories[0].name
    command = group.joining(["/usr/bin/python3", "-c", code, name, "a b", "$x"], first="ulimit -n 77")
    assert subprocess.run(command, capture_output=True, text=True).stdout == f"{[name, 'a b', '$x']} 4\n"
    limit = group.joining(["sh", "-c", "ulimit -n"], first="ulimit -n 77")
    assert subprocess.run(limit, capture_output=True, text=True).stdout == "77\n"
    assert subprocess.run(group.joining(["true"], first="false")).returncode == 70
    assert group.remove()


def test_a_program_whose_group_is_gone_does_not_run(cgroups: Cgroups) -> None:
    """Such a program would run without bounds."""
    group = cgroups.create()
    assert group.remove()
    done = run_in(group, "echo", "ran")
    assert (done.returncode, done.stdout) == (70, "")
    with pytest.raises(OSError, match="No such file"):
        group.add(os.getpid())
    assert (group.oom_kills(), group.refusals(), group.members()) == (0, 0, set())


def test_a_group_that_cannot_be_bounded_is_not_made(cgroups: Cgroups) -> None:
    """Nothing of it is left."""
    before = groups_of(os.getpid())
    with pytest.raises(OSError, match="Invalid argument"):
        cgroups.create(pids=-5)
    assert groups_of(os.getpid()) == before


def test_groups_of_the_dead_are_swept_up(cgroups: Cgroups, caplog: pytest.LogCaptureFixture) -> None:
    """With what still runs in them; those of the living stay, and so does what is not ours."""
    mine = cgroups.create()
    orphan = cgroups._group(f"{dead_owner()}-7")
    strange = cgroups._group(f"test-strange-{os.getpid()}")
    for directory in (*orphan.directories, *strange.directories):
        directory.mkdir()
    left = subprocess.Popen(["sleep", "1000"])
    orphan.add(left.pid)
    cgroups.sweep()
    assert left.wait(LONG) == -9
    assert not any(directory.exists() for directory in orphan.directories)
    assert all(directory.exists() for directory in (*mine.directories, *strange.directories))
    assert strange.remove()
    assert mine.remove()
    assert not caplog.records


def test_what_cannot_be_ended_or_removed_is_said(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports what cannot be removed, and does not hold up the caller for ever."""
    group = cgroups._group(f"{dead_owner()}-8")
    for directory in group.directories:
        directory.mkdir()
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    process = subprocess.Popen(["sleep", "1000"])
    group.add(process.pid)
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "kill", lambda *_: None)
        assert not group.remove()
        cgroups.sweep()
    inner = group.directories[0] / "inner"
    inner.mkdir()
    assert not group.remove()
    assert process.wait(LONG) == -9
    assert not group.remove()  # the one before may have given up on a process that takes its time to end
    inner.rmdir()
    assert group.remove()
    assert "cannot be ended" in caplog.text
    assert "Device or resource busy" in caplog.text
    assert "of a dead process cannot be removed" in caplog.text


async def test_many_groups_at_once(cgroups: Cgroups) -> None:
    """Each has a name of its own."""

    def one() -> str:
        group = cgroups.create(memory_bytes=64 << 20, pids=10, cpus=0.5)
        assert run_in(group, "true").returncode == 0
        assert group.remove()
        return group.directories[0].name

    names = await asyncio.gather(*(asyncio.to_thread(one) for _ in range(20)))
    assert len({*names}) == 20


def test_the_second_version_kills_and_counts(second: Cgroups) -> None:
    """Here with `cgroup.kill`; without controllers nothing can be bounded."""
    group = second.create(memory_bytes=1 << 20, pids=1, cpus=1)
    done = run_in(group, "/usr/bin/python3", "-c", "for _ in range(3000000): pass")
    assert done.returncode == 0, done.stderr
    used = group.cpu_seconds()
    assert used is not None
    assert used > 0
    sleeping = [subprocess.Popen(group.joining(["sleep", "1000"])) for _ in range(3)]
    until = time.monotonic() + LONG
    while len(group.members()) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    assert group.remove()
    assert [process.wait(LONG) for process in sleeping] == [-9] * 3
    assert (group.oom_kills(), group.refusals()) == (0, 0)


def test_the_second_version_of_older_kernels_kills_too(second: Cgroups, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one."""
    real = module._write

    def write(path: Path, value: int | str) -> None:
        if path.name == "cgroup.kill":
            raise FileNotFoundError(path)
        real(path, value)

    monkeypatch.setattr(module, "_write", write)
    group = second.create()
    process = subprocess.Popen(group.joining(["sleep", "1000"]))
    until = time.monotonic() + LONG
    while not group.members() and time.monotonic() < until:
        time.sleep(0.01)
    assert group.remove()
    assert process.wait(LONG) == -9


# -- trees like the kernel's ------------------------------------------------------------------------------------------


class Tree:
    """A directory that looks like /proc and /sys/fs/cgroup; what is made in it gets the files that the kernel makes."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.top = top
        self.proc = top / "proc"
        (self.proc / "self").mkdir(parents=True)
        self.mounts: list[str] = []
        self.on: dict[Path, set[str]] = {}
        monkeypatch.setattr(module, "_make", self.make)
        monkeypatch.setattr(module, "_write", self.write)

    def mount(self, point: str, kind: str, options: str, root: str = "/") -> Path:
        place = self.top / point
        place.mkdir(parents=True)
        self.mounts.append(f"30 20 0:9 {root} {place} rw,nosuid shared:9 - {kind} {kind} rw,{options}\n")
        (self.proc / "self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/x rw\n" + "".join(self.mounts))
        return place

    def groups(self, *lines: str) -> None:
        (self.proc / "self/cgroup").write_text("".join(f"{line}\n" for line in lines))

    def populate(self, directory: Path, controllers: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").write_text("")
        if controllers:
            (directory / "cgroup.controllers").write_text(controllers)
            (directory / "cgroup.subtree_control").write_text("")

    def make(self, place: Path) -> None:
        offered = place.parent / "cgroup.subtree_control"
        self.populate(place, offered.read_text() if offered.exists() else "")

    def write(self, path: Path, value: int | str) -> None:
        if path.name == "cgroup.subtree_control":
            if (path.parent / "cgroup.procs").read_text():
                raise OSError(16, "Device or resource busy")
            value = f"{path.read_text()} {str(value).lstrip('+')}".strip()
        path.write_text(str(value))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """An empty one."""
    return Tree(tmp_path, monkeypatch)


def test_version_2_is_used_from_the_top(tree: Tree) -> None:
    """With all controllers switched on for groups, which are bounded by its own files."""
    top = tree.mount("cg", "cgroup2", "nsdelegate")
    tree.groups("0::/user.slice/session.scope")
    tree.populate(top, "cpuset cpu io memory pids")
    found = find_cgroups(tree.proc)
    assert found is not None
    assert (found.version, found.controllers) == (2, {*CONTROLLERS})
    assert (top / "cgroup.subtree_control").read_text() == "cpu memory pids"
    assert (top / "toolexec/cgroup.subtree_control").read_text() == "cpu memory pids"
    group = found._group("one")
    directory = top / "toolexec/one"
    assert group.directories == (directory,)
    directory.mkdir()
    (directory / "memory.swap.max").write_text("max")
    group.limit(memory_bytes=5000, pids=7, cpus=1.5)
    written = {file.name: file.read_text() for file in directory.iterdir()}
    assert written == {"memory.max": "5000", "memory.swap.max": "0", "pids.max": "7", "cpu.max": "150000 100000"}
    (directory / "memory.events").write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    (directory / "pids.events").write_text("max 2\n")
    (directory / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert (group.oom_kills(), group.refusals(), group.cpu_seconds()) == (3, 2, 1.5)


def test_version_2_without_swap_has_no_bound_on_it(tree: Tree) -> None:
    """As there is nothing to bound; and what is not asked for is not written."""
    top = tree.mount("cg", "cgroup2", "rw")
    tree.groups("0::/")
    tree.populate(top, "memory pids cpu")
    found = find_cgroups(tree.proc)
    assert found is not None
    directory = top / "toolexec/one"
    directory.mkdir()
    found._group("one").limit()
    assert [*directory.iterdir()] == []
    found._group("one").limit(memory_bytes=5000)
    assert [file.name for file in directory.iterdir()] == ["memory.max"]
    assert found._group("one").cpu_seconds() is None


def test_version_2_is_used_where_it_was_delegated(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups above are not ours, and a group with processes in it cannot give controllers."""
    top = tree.mount("cg", "cgroup2", "rw")
    tree.groups("0::/user/app/mine")
    for place, controllers in ((top, "memory pids cpu"), (top / "user", "memory pids"), (top / "user/app", "memory")):
        tree.populate(place, controllers)
    tree.populate(top / "user/app/mine", "memory")
    (top / "user/app/mine/cgroup.procs").write_text("1\n")
    real = os.access
    monkeypatch.setattr(module.os, "access", lambda path, mode: Path(path).parent != top and real(path, mode))
    found = find_cgroups(tree.proc)
    assert found is not None
    assert found.controllers == {"memory", "pids", "cpuacct"}
    assert found._group("x").directories == (top / "user/toolexec/x",)


def test_version_2_in_a_container_with_us_at_its_top_cannot_be_used(tree: Tree) -> None:
    """A group with processes in it cannot give controllers to others."""
    top = tree.mount("cg", "cgroup2", "rw", root="/docker/abc")
    tree.groups("0::/docker/abc")
    tree.populate(top, "memory pids cpu")
    (top / "cgroup.procs").write_text("1\n")
    assert find_cgroups(tree.proc) is None


def test_groups_that_are_not_below_the_mount_cannot_be_used(tree: Tree) -> None:
    """A process cannot be moved from a hierarchy that is not visible here."""
    top = tree.mount("cg", "cgroup2", "rw", root="/docker/abc")
    tree.groups("0::/docker/abcdef")
    tree.populate(top, "memory pids cpu")
    assert find_cgroups(tree.proc) is None


def test_version_1_takes_each_controller_from_its_mount(tree: Tree) -> None:
    """From the top of it, or where we are if that cannot be written; two controllers may have one mount."""
    memory = tree.mount("cg/memory", "cgroup", "memory")
    cpu = tree.mount("cg/cpu,cpuacct", "cgroup", "cpu,cpuacct", root="/docker/abc")
    tree.mount("cg/systemd", "cgroup", "name=systemd")
    unified = tree.mount("cg/unified", "cgroup2", "rw")
    tree.groups("4:memory:/a/b", "3:cpu,cpuacct:/docker/abc/deep", "2:name=systemd:/", "0::/")
    tree.populate(unified, "hugetlb")
    tree.populate(memory / "a/b")
    tree.populate(cpu)
    tree.make = lambda place: None if place.parent == memory else Tree.make(tree, place)  # type: ignore[method-assign]
    module._make = tree.make  # type: ignore[assignment]
    found = find_cgroups(tree.proc)
    assert found is not None
    assert (found.version, found.controllers) == (1, {"memory", "cpu", "cpuacct"})
    group = found._group("x")
    assert {*group.directories} == {memory / "a/b/toolexec/x", cpu / "toolexec/x"}
    for directory in group.directories:
        directory.mkdir()
    group.limit(memory_bytes=5000, pids=7, cpus=0.001)
    written = {file.name: file.read_text() for directory in group.directories for file in directory.iterdir()}
    assert written == {
        "memory.limit_in_bytes": "5000",
        "memory.swappiness": "0",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "1000",
    }
    (cpu / "toolexec/x/cpuacct.usage").write_text("2500000000\n")
    assert (group.cpu_seconds(), group.refusals(), group.oom_kills()) == (2.5, 0, 0)


def test_version_1_bounds_memory_and_swap_together(tree: Tree) -> None:
    """Where the kernel counts swap."""
    memory = tree.mount("cg/memory", "cgroup", "memory")
    tree.groups("4:memory:/")
    tree.populate(memory)
    found = find_cgroups(tree.proc)
    assert found is not None
    directory = memory / "toolexec/x"
    directory.mkdir()
    (directory / "memory.memsw.limit_in_bytes").write_text("")
    group = found._group("x")
    group.limit(memory_bytes=5000)
    written = {file.name: file.read_text() for file in directory.iterdir()}
    assert written == {"memory.limit_in_bytes": "5000", "memory.memsw.limit_in_bytes": "5000"}
    (directory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert (group.oom_kills(), group.cpu_seconds()) == (2, None)


@pytest.mark.parametrize("what", ["no mounts", "read-only", "no proc"])
def test_there_may_be_no_place_for_groups(tree: Tree, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Then nothing is found."""
    if what != "no proc":
        (tree.proc / "self/mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/x rw\n")
        tree.groups("4:memory:/")
    if what == "read-only":
        tree.populate(tree.mount("cg/memory", "cgroup", "memory"))
        tree.populate(tree.mount("cg2", "cgroup2", "rw"), "memory")
        tree.groups("4:memory:/", "0::/")

        def refuse(place: Path) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(module, "_make", refuse)
    assert find_cgroups(tree.proc) is None


def test_the_group_of_another_in_version_1(tmp_path: Path) -> None:
    """Each controller has a directory of its own."""
    usage = group_at("/c", mounted=tmp_path)
    assert (usage.cpu_seconds(), usage.oom_kills(), usage.refusals()) == (None, 0, 0)
    for controller in ("cpuacct", "memory", "pids"):
        (tmp_path / controller / "c").mkdir(parents=True)
    (tmp_path / "cpuacct/c/cpuacct.usage").write_text("1500000000\n")
    (tmp_path / "memory/c/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    (tmp_path / "pids/c/pids.events").write_text("max 0\n")
    assert (usage.cpu_seconds(), usage.oom_kills(), usage.refusals()) == (1.5, 0, 0)
    (tmp_path / "memory/c/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (tmp_path / "pids/c/pids.events").write_text("max 3\n")
    assert (usage.oom_kills(), usage.refusals()) == (1, 3)
    assert mounted_controllers(tmp_path) >= {"cpuacct", "memory", "pids"}


def test_the_group_of_another_in_version_2(tmp_path: Path) -> None:
    """One directory has all."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    usage = group_at("/c", mounted=tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c/cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "c/memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (tmp_path / "c/pids.events").write_text("max 1\n")
    assert (usage.cpu_seconds(), usage.oom_kills(), usage.refusals()) == (2.5, 1, 1)
    assert mounted_controllers(tmp_path) >= {"cpuacct", "cpu", "memory", "pids"}


def test_a_system_without_groups_has_no_mounted_controllers(tmp_path: Path) -> None:
    """A system without them."""
    assert mounted_controllers(tmp_path / "nowhere") == frozenset()
