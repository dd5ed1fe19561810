"""How a run is shared between workers: a file's tests in one worker, long files first, and a worker that ends is no reason to hang."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["FileScheduling"]

# The files that take longest, in that order; the others follow by their number of tests. A long file that begins last
# has one worker busy while the others are done.
LONGEST = (
    "tests/contract/test_containers.py",
    "tests/runtime/containers/kubernetes/test_real_",
    "tests/contract/test_escape.py",
    "tests/release/test_newest.py",
    "tests/release/test_oldest.py",
    "tests/runtime/images/test_build.py",
    "tests/runtime/containers/test_containers.py",
    "tests/conformance/test_client.py",
    "tests/durable/temporal/test_backend.py",
    "tests/cli/test_code.py",
    "tests/cli/test_sandbox.py",
    "tests/backend/mcp/test_eras.py",
    "tests/code/test_stubs.py",
    "tests/contract/test_mcp_backend.py",
)

# Files whose names begin with one of these go to one worker: they share servers that take long to start.
TOGETHER = ("tests/runtime/containers/kubernetes/test_real_",)


class FileScheduling(LoadFileScheduling):
    """Gives files to workers, the longest first, and goes on when one of them ends in a test.

    The scheduler of xdist 3.8 gives the finished files of such a worker to the others once more, as empty work that no
    test ever completes, and gives the worker that replaces it a last test that waits for the next: the run then never
    ends (pytest-dev/pytest-xdist#1323, #1327, #1371; mended after 3.8).
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return what a test is given to a worker with: its file, or the files that share servers with it."""
        file = super()._split_scope(nodeid)
        return next((beginning for beginning in TOGETHER if file.startswith(beginning)), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the worker the longest file that is left."""
        if longest := next((name for name in LONGEST if name in self.workqueue), None):
            self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

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
