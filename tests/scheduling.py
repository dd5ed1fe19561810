"""How a run is shared between workers: a file's tests in one worker, and a worker that ends is no reason to hang."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

__all__ = ["FileScheduling"]


class FileScheduling(LoadFileScheduling):
    """Gives files to workers, and goes on when one of them ends in a test.

    The scheduler of xdist 3.8 gives the finished files of such a worker to the others once more, as empty work that no
    test ever completes, and gives the worker that replaces it a last test that waits for the next: the run then never
    ends (pytest-dev/pytest-xdist#1323, #1327, #1371; mended after 3.8).
    """

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
