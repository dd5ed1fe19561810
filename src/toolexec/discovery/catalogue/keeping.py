"""Notes which tools of an index have changed, and has them written a moment later, together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from toolexec.discovery.index import ChangeEvent, Index
from toolexec.errors import CatalogueError
from toolexec.model.forks import forks

logger: logging.Logger = logging.getLogger(__name__)


class Keeper:
    """Gathers the IDs of changed tools, and gives them to *write*: *delay* seconds after the first of them, from a
    thread that ends when nothing is left to do. *write* also receives the version of the index up to which all changes
    have been given to it by then.

    What cannot be written is logged and tried again with the next change.
    """

    def __init__(self, index: Index, write: Callable[[set[str], int], None], delay: float) -> None:
        self._write = write
        self._delay = delay
        self._changed: set[str] = set()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._reached = index.version  # read before listening: a change in between is not counted as reached
        self._forget = index.on_change(self._hear)
        forks.renew(self)

    def renew(self) -> None:
        """Implement `Renewed.renew`: what the parent was about to write is left to it."""
        self._lock, self._writing, self._stop = threading.Lock(), threading.Lock(), threading.Event()
        self._thread, self._changed = None, set()

    def note(self, tool_ids: set[str]) -> None:
        """Have these tools written, too."""
        with self._lock:
            self._changed |= tool_ids
            if self._changed and self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="toolexec-catalogue", daemon=True)
                self._thread.start()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Write nothing meanwhile; changes are gathered."""
        with self._writing:
            yield

    def flush(self) -> None:
        """Write all that has changed. Raises as *write* does; nothing is forgotten then."""
        with self._writing:
            with self._lock:
                changed, self._changed = self._changed, set()
                reached = self._reached
            try:
                if changed:
                    self._write(changed, reached)
            except BaseException:
                with self._lock:
                    self._changed |= changed
                raise

    def close(self) -> None:
        """Stop following changes, write those that there are, and end the thread. Raises as *write* does."""
        self._end()
        self.flush()

    def abandon(self) -> None:
        """Stop following changes, forget those that there are, and end the thread."""
        self._changed.clear()
        self._end()

    def _end(self) -> None:
        self._forget()
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _hear(self, event: ChangeEvent) -> None:
        if event.tool_id:
            self.note({event.tool_id})
        with self._lock:
            self._reached = max(self._reached, event.version)

    def _run(self) -> None:
        while not self._stop.wait(self._delay):
            try:
                self.flush()
            except CatalogueError as error:
                logger.error("changes of the tools are not in the catalogue yet: %s", error)
                break
            with self._lock:
                if not self._changed:
                    self._thread = None
                    return
        with self._lock:
            self._thread = None
