"""How a run is shared between workers: a file's tests in one worker, long files first, and a worker that ends is no reason to hang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# The files that take longest, in that order; the others follow by their number of tests. A long file that begins last
# has one worker busy while the others are done.
LONGEST = (
    "tests/contract/test_containers.py",
    "packages/kubernetes/tests/cluster/",
    "tests/contract/test_escape.py",
    "tests/release/test_newest.py",
    "tests/release/test_oldest.py",
    "tests/runtime/images/test_build.py",
    "tests/runtime/containers/test_containers.py",
    "tests/conformance/test_client.py",
    "packages/temporal/tests/server/test_backend.py",
    "tests/cli/test_code.py",
    "tests/cli/test_sandbox.py",
    "tests/backend/mcp/test_eras.py",
    "tests/code/test_stubs.py",
    "tests/contract/test_mcp_backend.py",
    # These have few tests, and would begin last.
    "tests/runtime/wasm/test_component.py",
    "tests/runtime/images/test_vm.py",
    "tests/server/http/test_many_tools.py",
    "packages/remote/tests/test_simulation.py",
    "tests/test_website.py",
    "tests/runtime/test_large_results.py",
    "packages/temporal/tests/server/test_kills.py",
    "tests/release/test_others.py",
    "packages/temporal/tests/server/test_model.py",
    "packages/temporal/tests/server/test_engine.py",
    "packages/remote/tests/test_many_runs.py",
    "tests/runtime/test_measured.py",
    "packages/valkey/tests/test_two_workers.py",
    "packages/valkey/tests/test_tasks_of_two.py",
    "tests/server/test_removed_keys.py",
    "tests/backend/providers/openapi/test_mock_server.py",
    "tests/durable/test_kills.py",
    "tests/server/test_tasks_restart.py",
    "tests/server/test_other_clients.py",
    "tests/runtime/test_sessions.py",
    "tests/server/test_planted_session.py",
    "tests/fundamentals/test_06_servers.py",
    "tests/server/tools/test_loading.py",
    "tests/test_platform.py",
    "tests/cli/test_serve_keys.py",
    "tests/cli/test_serve_command.py",
)

# Files whose names begin with one of a line go to one worker, under the first name of that line: they share what takes
# long to make, and each worker makes its own. These are servers of Kubernetes, and a component with its code.
TOGETHER = (
    ("packages/kubernetes/tests/cluster/",),
    (
        "tests/runtime/wasm/test_component.py",
        *(f"tests/runtime/wasm/test_{name}" for name in ("instance", "stdlib", "world")),
    ),
)


class FileScheduling(LoadFileScheduling):
    """Gives files to workers, the longest first, and goes on when one of them ends in a test.

    The scheduler of xdist 3.8 gives the finished files of such a worker to the others once more, as empty work that no
    test ever completes, and gives the worker that replaces it a last test that waits for the next: the run then never
    ends (pytest-dev/pytest-xdist#1323, #1327, #1371; mended after 3.8).
    """

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._places: dict[WorkerController, dict[str, int]] = {}

    def _split_scope(self, nodeid: str) -> str:
        """Return what a test is given to a worker with: its file, or the files that share servers with it."""
        file = super()._split_scope(nodeid)
        return next((line[0] for line in TOGETHER if file.startswith(line)), file)

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Keep where each test is in the worker's list: to look for it there took a second per thousand tests."""
        super().add_node_collection(node, collection)
        self._places[node] = {test: place for place, test in enumerate(collection)}

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the worker the longest file that is left."""
        longest = next((name for name in LONGEST if name in self.workqueue), None)
        name = longest or next(iter(self.workqueue))
        file = self.workqueue.pop(name)
        self.assigned_work[node][name] = file
        places = self._places[node]
        node.send_runtest_some([places[test] for test, done in file.items() if not done])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a test that is done, so that those that wait are counted without those that do not."""
        test = self.registered_collections[node][item_index]
        name = self._split_scope(test)
        files = self.assigned_work[node]
        del files[name][test]
        if not files[name]:
            del files[name]
        self._reschedule(node)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Return the number of tests that wait, or run: the others are forgotten."""
        return sum(len(tests) for tests in workload.values())

    def remove_node(self, node: WorkerController) -> str | None:
        """Take the worker's unfinished tests back, but for the one it ended in, and return that one."""
        left = {name: list(tests) for name, tests in self.assigned_work.pop(node).items()}
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
