"""Calls of sync handlers that a guest does not wait for one by one: threads beside its own make them.

One helper makes all of them as long as it gets on. Where handlers block, each call gets a helper of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Final, TypeAlias

from toolexec.code.tools import AdmittedCall
from toolexec.process.threads import Job, NoThreadError, WorkerThreads
from toolexec.runtime.protocol.loop_calls import LoopCalls
from toolexec.runtime.protocol.messages import Message

SharedCall: TypeAlias = tuple[Message, AdmittedCall]
_PATIENCE_SECONDS: Final = 0.001
_BUSY_CALLS: Final = 3
_MOST_HELPERS: Final = 63
_GRACE_SECONDS: Final = 0.1


class SharedCalls:
    """The calls of one run for *helpers*; those that none of them can make are begun by *calls*, on its event loop.

    *make* makes a call, keeps its answer and returns whether it did; *ring* lets the guest know that there are answers.
    """

    def __init__(
        self,
        helpers: WorkerThreads,
        calls: LoopCalls,
        make: Callable[[Message, AdmittedCall], bool],
        ring: Callable[[], None],
    ) -> None:
        self._helpers = helpers
        self._calls = calls
        self._make = make
        self._ring = ring
        self._waiting: deque[SharedCall] = deque()
        self._jobs: list[Job] = []  # touched in the guest's thread, and after its end
        self._lock = threading.Lock()  # guards the count
        self._done = 0  # how many calls were made

    def __bool__(self) -> bool:
        return bool(self._waiting)

    # -- in the guest's thread ------------------------------------------------------------------------------------

    def begin(self, calls: Iterable[SharedCall]) -> None:
        """Have these calls made."""
        self._waiting.extend(calls)
        self._enlist()  # a helper that works already may be about to end

    def recruit(self, event: threading.Lock, left: float) -> None:
        """Wait a moment, at most *left* seconds, for *event*; below 0, *left* has no end. Where the helpers get nowhere
        their handlers block, and each call needs a helper of its own."""
        done = self._done
        patience = _PATIENCE_SECONDS if left < 0 else min(left, _PATIENCE_SECONDS)
        if not event.acquire(timeout=patience) and self._done - done < _BUSY_CALLS:
            for _ in range(min(len(self._waiting), _MOST_HELPERS)):
                self._enlist()

    def _enlist(self) -> None:
        """Have one more helper make calls; without a thread for it they go to the event loop."""
        try:
            job = self._helpers.start(self._help)
        except NoThreadError:
            left: list[tuple[Message, AdmittedCall | None]] = []
            with suppress(IndexError):
                while True:
                    left.append(self._waiting.popleft())
            self._calls.loop.call_soon_threadsafe(self._calls.begin, left)
            return
        self._jobs = [*(job for job in self._jobs if job.state in ("waiting", "running")), job]

    # -- in a helper's thread -------------------------------------------------------------------------------------

    def _help(self) -> None:
        self._calls.context.copy().run(self._make_all)

    def _make_all(self) -> None:
        """Make calls until there are none left."""
        rang = monotonic()
        while not self._calls.stopped:
            try:
                message, admitted = self._waiting.popleft()
            except IndexError:
                return
            if not self._make(message, admitted):  # what its tool is has changed meanwhile
                self._calls.loop.call_soon_threadsafe(self._calls.begin, [(message, admitted)])
                continue
            with self._lock:
                self._done += 1
            now = monotonic()
            if not self._waiting or now - rang > _PATIENCE_SECONDS:
                rang = now
                self._ring()

    # -- on the event loop ----------------------------------------------------------------------------------------

    def end(self) -> None:
        """Give up, after a moment, the threads of helpers whose handlers hang."""
        self._make, self._ring = _dropped, _nothing  # a cycle would keep what the run has until the next collection
        if any(job.state in ("waiting", "running") for job in self._jobs):
            self._calls.loop.call_later(_GRACE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        for job in self._jobs:
            self._helpers.abandon(job)


def _dropped(_message: Message, _admitted: AdmittedCall) -> bool:
    """Take a call for which nothing waits any more."""
    return True


def _nothing() -> None:
    """Do nothing."""
