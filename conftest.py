"""What every test gets: its tier, one kind of event loop, a time limit, and a check that nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import mcp.client.stdio  # noqa: F401 - its default for stderr is what that is at the first import, so not in a test
import psutil
import pytest
from _pytest.logging import catching_logs
from hypothesis import settings
from tests import tiers
from tests.scheduling import FileScheduling

from toolexec.exec.options import Options
from toolexec.exec.sources import Sources

# A directory of this run's own, so that two runs on one machine do not take each other's for leaks. A worker of xdist
# has its own inside of it; the process that the user started removes it, even after a worker that crashed.
_RUN = "TOOLEXEC_TEST_RUN"
_RUN_IN_MEMORY = "TOOLEXEC_TEST_RUN_IN_MEMORY"
_STARTED_HERE = _RUN not in os.environ
_MEMORY = "/dev/shm"


def _has_memory() -> bool:
    """Return whether files can be in memory: each of thousands of databases and audit logs waits for the disk 10 ms
    and more."""
    if not os.access(_MEMORY, os.W_OK):
        return False
    system = os.statvfs(_MEMORY)
    return system.f_bavail * system.f_frsize > 2 << 30 and not system.f_flag & os.ST_NOEXEC


# All files of the fast tier are in memory, and those of `tiers.IN_MEMORY` in the others: these build images, too, which
# may not fit.
_IS_FAST = bool({"fast", "--tier=fast"} & {*sys.argv})
if _STARTED_HERE:
    os.environ.pop(_RUN_IN_MEMORY, None)  # that of a run which this one is a test of
    os.environ[_RUN] = tempfile.mkdtemp(prefix="tx", dir=_MEMORY if _IS_FAST and _has_memory() else None)
    if not os.environ[_RUN].startswith(_MEMORY) and _has_memory():
        os.environ[_RUN_IN_MEMORY] = tempfile.mkdtemp(prefix="tx", dir=_MEMORY)
OWN_TEMP = tempfile.mkdtemp(prefix="w", dir=os.environ[_RUN])
IN_MEMORY = tempfile.mkdtemp(prefix="w", dir=os.environ[_RUN_IN_MEMORY]) if _RUN_IN_MEMORY in os.environ else OWN_TEMP
os.environ["TMPDIR"] = tempfile.tempdir = OWN_TEMP
os.environ["XDG_STATE_HOME"] = os.path.join(IN_MEMORY, "state")  # audit logs keep their keys and heads there

_UMASK = os.umask(0o077)
os.umask(_UMASK)
_IS_WORKER = False
_WALL = 0x40000000  # of <linux/wait.h>: children of any kind

# A shell starts background jobs with SIGINT ignored, and children inherit that: then no test can interrupt a child.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _at_root_only(self: Any) -> logging.Handler:
    """Attach the handler to the root, from where it sees all loggers that propagate; ours and the tests' do.

    Pytest goes through all loggers for others, six times a test: with 150 of them that took a sixth of what it does
    around a test.
    """
    root = logging.getLogger()
    root.addHandler(self.handler)
    self.attached_loggers.append(root)
    if self.level is not None:
        self.handler.setLevel(self.level)
        self.orig_level = root.level
        root.setLevel(min(root.level, self.level))
    return self.handler


if "attached_loggers" in getattr(catching_logs, "__slots__", ()):  # pytest 9.2 does, and earlier ones do not
    catching_logs.__enter__ = _at_root_only

# A start waits 10 s for slow servers, and then goes on without them. On a busy machine the servers of tests are slower;
# what is about that limit sets its own.
_PATIENT = 120.0


def _start_patiently(self: Sources, backends: Any = None) -> Any:
    if self.start_timeout == Options().start_timeout:
        self.start_timeout = _PATIENT
    return _start(self, backends)


_start = Sources.start
Sources.start = _start_patiently

# The same examples in each run; the soak tier looks for new ones.
settings.register_profile("repeatable", max_examples=50, derandomize=True, deadline=None, database=None)
settings.register_profile("soak", max_examples=5_000, deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tier`."""
    parser.addoption("--tier", choices=tiers.TIERS, default="full", help="which tests run (tests/tiers.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Take the tier from the command line; the workers of xdist get it from the environment."""
    global _IS_WORKER
    _IS_WORKER = hasattr(config, "workerinput")  # not from the environment: a run inside of a test inherits that
    if not _IS_WORKER:
        tiers.choose(config.getoption("--tier"))
    settings.load_profile("soak" if config.getoption("--tier") == "soak" else "repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """End what measures coverage in a worker before it begins to do so itself: what coverage begins in every child
    process, and what its plugin begins in all that it takes for a run without workers. Each would trace all tests once
    more."""
    plugin: Any = session.config.pluginmanager.getplugin("_cov")
    if plugin is not None and plugin.cov_controller is not None:
        # Whenever `sys.path` has changed, coverage looks for the packages again, and takes out of the interpreter what was
        # imported meanwhile: also what another thread is importing, which then fails with a KeyError of importlib.
        sys.modules["coverage.inorout"].sys_modules_saved = contextlib.nullcontext  # type: ignore[attr-defined]
    if not _IS_WORKER or plugin is None or plugin.cov_controller is None:
        return
    plugin.cov_controller.cov.stop()  # the one that began last must end first
    begun = getattr(sys.modules["coverage"].process_startup, "coverage", None)
    if begun is not None:
        begun.stop()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave the files of other tiers unread: to import them takes a fifth of the fast tier's start, and most of the
    one above."""
    return True if tiers.leaves_out(collection_path) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other tiers, and trace only those whose coverage is needed."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        if tiers.is_full_path(item.path):
            item.add_marker("full")
        marks = {mark.name for mark in item.iter_markers()}
        if "full" in marks and not tiers.names_full_tests(item.path):
            raise pytest.UsageError(f"name mark.full in the file of {item.nodeid}: `--tier above` reads no other")
        (kept if tiers.wants(marks) else left).append(item)
        if not tiers.is_traced(item.path, marks):
            item.add_marker("untraced")
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector from going through thousands of modules and tests again and again, while they are collected
    and afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    """Share the files so that the run ends, also when a worker does."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let the processes that a test starts be traced only where their coverage is needed."""
    name = "COVERAGE_PROCESS_CONFIG"
    wanted = item.get_closest_marker("untraced") is None and tiers.are_children_traced(item.path)
    config = None if wanted else os.environ.pop(name, None)
    try:
        return (yield)
    finally:
        if config is not None:
            os.environ[name] = config


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Trace no test whose coverage is not needed, in the thread that it runs in. All others stay traced: `no_cover` of
    coverage's plugin ends the tracing of every thread there is, and those that go on, such as idle workers, are never
    traced again, so that what runs in them later has no coverage."""
    trace = sys.gettrace()
    if trace is None or item.get_closest_marker("untraced") is None:
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(trace)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure when it happens: the summary of a run that is stopped from outside is never printed."""
    if report.failed and not _IS_WORKER:
        print(
            f"\n{time.strftime('%H:%M:%S')} FAILED {report.nodeid} ({report.when})\n{report.longreprtext[-3000:]}",
            flush=True,
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what this run has left on the machine: after a worker that crashed, its children are still there."""
    if not _STARTED_HERE or hasattr(session.config, "workerinput"):
        return
    left = _processes_of_this_run()
    for process in left:
        with contextlib.suppress(psutil.Error):
            print(f"\nended a process that was left behind: {process.pid} {' '.join(process.cmdline())[:200]}")
            process.kill()
    shutil.rmtree(os.environ[_RUN], ignore_errors=True)
    if _RUN_IN_MEMORY in os.environ:
        shutil.rmtree(os.environ[_RUN_IN_MEMORY], ignore_errors=True)


def _processes_of_this_run() -> list[psutil.Process]:
    """Find the processes that inherited this run's environment, but for this one, its parents and its workers."""
    ours = psutil.Process()
    spared = {ours.pid, *(parent.pid for parent in ours.parents())}
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in spared and process.environ().get(_RUN) == os.environ[_RUN]:
                found.append(process)
    workers = {process.pid for process in found if process.ppid() == ours.pid}
    return [process for process in found if process.pid not in workers]


@pytest.fixture
def anyio_backend() -> str:
    """Run all async tests on asyncio."""
    return "asyncio"


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Pytest's own directory, or one in memory where a test has many small files and few large ones."""
    if IN_MEMORY == OWN_TEMP or not tiers.is_in_memory(request.path):
        yield tmp_path
        return
    path = Path(IN_MEMORY, tmp_path.name)
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaks a process, a file descriptor, a thread that would keep the process alive, a directory of
    ours, or the umask. A test that hangs ends its worker, by name: `faulthandler_timeout` in pyproject.toml."""
    before_children = set(_children(os.getpid()))
    before_fds = _open_files()
    before_threads = set(threading.enumerate())
    before_temp = _directories()
    yield
    leaks = _leaks(before_children, before_fds, before_threads, before_temp)
    deadline = time.monotonic() + 30  # only what leaks waits so long; on a machine with other work the rest needs it
    # What a test has just dropped is young as a rule, and to go through all takes a hundred times as long.
    generation = 0
    while leaks and time.monotonic() < deadline:
        gc.collect(generation)
        generation = min(generation + 1, 2)
        time.sleep(0.02 if generation == 2 else 0.002)
        leaks = _leaks(before_children, before_fds, before_threads, before_temp)
    for path in _directories() - before_temp:
        shutil.rmtree(Path(OWN_TEMP) / path, ignore_errors=True)
    if (umask := os.umask(_UMASK)) != _UMASK:  # of this test, or of a fixture that has begun with it
        leaks.append(f"the umask {umask:03o}")
    assert not leaks, f"left behind: {'; '.join(leaks)}"


def _leaks(children: set[int], fds: int, threads: set[threading.Thread], temp: set[str]) -> list[str]:
    found: list[str] = []
    for child in _children(os.getpid()):
        if child not in children:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(child)
                words = " ".join(process.cmdline())
                # A server that other tests use, too, may put a worker in the place of one that it had to kill.
                if not (process.ppid() in children and "wasm.workers" in words):
                    found.append(f"process {child} {words[:100]}")
    if fds and (now := _open_files()) > fds + 3:  # the loop of the next test and caches may hold a few
        found.append(f"{now - fds} file descriptors")
    found += [f"thread {t.name}" for t in set(threading.enumerate()) - threads if not t.daemon and t.is_alive()]
    found += [f"directory {path}" for path in _directories() - temp]
    return found


def _children(pid: int) -> list[int]:
    """List the process's children and theirs, as the kernel keeps them: a walk over all processes takes 2 ms a test."""
    if sys.platform != "linux":
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    if pid == os.getpid():
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
        except ChildProcessError:
            return []  # which is so after most tests; the list has a file for each thread
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            # A thread that has ended in the meantime hides none of the others' children.
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += [int(child) for child in file.read().split()]
    for child in found.copy():
        found += _children(child)
    return found


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def _directories() -> set[str]:
    return {name for name in os.listdir(OWN_TEMP) if name.startswith("toolexec-")}
