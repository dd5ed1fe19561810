"""How a run is shared between workers: a file's tests in one worker, long files first, and a worker that ends is no reason to hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["Durations", "FileScheduling", "unit_of"]

# What takes longest where no run has measured it, in that order; the others follow by their number of tests. A long file
# that begins last has one worker busy while the others are done.
LONGEST = (
    "engine kubernetes",
    "engine docker",
    "engine gvisor",
    "engine containerd",
    "engine qemu",
    "engine bubblewrap",
    "tests/contract/test_escape.py",
    "tests/release/test_newest.py",
    "tests/release/test_oldest.py",
    "tests/runtime/images/test_build.py",
    "tests/conformance/test_client.py",
    "tests/durable/temporal/test_backend.py",
    "tests/cli/test_code.py",
    "tests/cli/test_sandbox.py",
    "tests/backend/mcp/test_eras.py",
    "tests/code/test_stubs.py",
    "tests/contract/test_mcp_backend.py",
)
# What a test of an unknown file takes, in seconds: a guess, in the order of half of them.
USUAL = 0.02

# Tests that share servers that take long to start go to one worker: those of one engine in the files for all of them.
_OF_ENGINE = re.compile(
    r"tests/(?:contract|runtime/containers)/test_containers\.py::.*[\[-](bubblewrap|containerd|docker|gvisor|kubernetes|qemu)[\]-]"
)
_REAL_CLUSTER = "tests/runtime/containers/kubernetes/test_real_"


def unit_of(nodeid: str) -> str:
    """Return what a test is given to a worker with: its file, or what shares servers with it."""
    if nodeid.startswith(_REAL_CLUSTER):
        return "engine kubernetes"
    found = _OF_ENGINE.match(nodeid)
    return f"engine {found[1]}" if found else nodeid.partition("::")[0]


class Durations:
    """How many seconds each unit took when it last ran, in a file of the user's cache; a run without it only guesses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._now: dict[str, float] = defaultdict(float)
        self._known: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found = json.loads(path.read_text("utf-8"))
            self._known = {str(name): float(seconds) for name, seconds in found.items()}

    @classmethod
    def of_tier(cls, tier: str) -> Durations:
        """Return those of the runs of one tier, which differ in what they run of a file."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(cache / "toolexec" / "tests" / f"durations-{tier}.json")

    def add(self, unit: str, seconds: float) -> None:
        """Count what a test of *unit* took."""
        self._now[unit] += seconds

    def expected(self, unit: str, tests: int) -> float:
        """Return how many seconds *unit* with that many tests will take."""
        if unit in self._known:
            return self._known[unit]
        return 1e6 - LONGEST.index(unit) if unit in LONGEST else USUAL * tests

    def save(self, unfinished: Collection[str] = ()) -> None:
        """Keep what was counted, but for *unfinished* units; what did not run keeps what it had."""
        ours = {
            unit: round(seconds, 2)
            for unit, seconds in self._now.items()
            if unit not in unfinished and unit.startswith(("tests/", "engine "))
        }
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unready = self._path.with_suffix(f".{os.getpid()}")
            unready.write_text(json.dumps({**self._known, **ours}, indent=0), "utf-8")
            unready.replace(self._path)


class FileScheduling(LoadFileScheduling):
    """Gives files to workers, the longest first, and goes on when one of them ends in a test.

    The scheduler of xdist 3.8 gives the finished files of such a worker to the others once more, as empty work that no
    test ever completes, and gives the worker that replaces it a last test that waits for the next: the run then never
    ends (pytest-dev/pytest-xdist#1323, #1327, #1371; mended after 3.8). It also goes through all tests for each one that
    it gives or that is done, which for 20,000 of them takes a minute.
    """

    def __init__(self, config: pytest.Config, log: Producer | None, durations: Durations) -> None:
        super().__init__(config, log)
        self.durations = durations
        self._places: dict[WorkerController, dict[str, int]] = {}

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the worker what takes longest of what is left."""
        if node not in self._places:
            self._places[node] = {nodeid: place for place, nodeid in enumerate(self.registered_collections[node])}
        unit = max(self.workqueue, key=lambda name: self.durations.expected(name, len(self.workqueue[name])))
        tests = self.workqueue.pop(unit)
        self.assigned_work.setdefault(node, {})[unit] = tests
        node.send_runtest_some([self._places[node][nodeid] for nodeid, done in tests.items() if not done])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Count a test as done, and forget its unit with the last one."""
        nodeid = self.registered_collections[node][item_index]
        unit, work = unit_of(nodeid), self.assigned_work[node]
        self.durations.add(unit, duration)
        work[unit][nodeid] = True
        if all(work[unit].values()):
            del work[unit]
        self._reschedule(node)

    def save_durations(self) -> None:
        """Keep how long the units took that are done."""
        self.durations.save({*self.workqueue, *(unit for units in self.assigned_work.values() for unit in units)})

    def remove_node(self, node: WorkerController) -> str | None:
        """Take the worker's unfinished tests back, but for the one it ended in, and return that one."""
        files = self.assigned_work.pop(node)
        left = {name: [test for test, done in tests.items() if not done] for name, tests in files.items()}
        crashed: str | None = None
        for name, tests in left.items():
            if tests and crashed is None:
                crashed = tests.pop(0)
            if tests:
                self.workqueue[name] = dict.fromkeys(tests, False)
        if crashed is not None:
            for other in self.assigned_work:
                self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        """Give the worker files until two of its tests wait: it begins one only when it knows the next."""
        before = -1
        while not node.shutting_down and (now := self._pending_of(self.assigned_work[node])) != before:
            before = now
            super()._reschedule(node)
