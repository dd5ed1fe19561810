"""A thread that brings what was committed to the disk: all of a short time at once."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Final

from toolexec.process.database import move_log

logger: logging.Logger = logging.getLogger(__name__)

_BETWEEN_CHECKPOINTS: Final = 1000
"""In commits; one adds two or three pages to the log."""


class Flusher:
    """Syncs the log of the SQLite database *path*, and moves what is in it into the database.

    A commit does neither then, so that it takes microseconds. With *sync* the log is on the disk at most *delay*
    seconds, and one sync, after a commit. `error` is what a sync failed with: what was committed may not be on the
    disk then. The thread is started by the first `note`.
    """

    def __init__(self, path: Path, *, sync: bool, delay: float = 0.05) -> None:
        self.error: OSError | None = None
        self._path = path
        self._sync = sync
        self._delay = delay
        self._log = -1
        self._commits = 0
        self._is_notified = False
        self._notified = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self) -> None:
        """Record a commit; one thread at a time."""
        self._commits += 1
        if not self._is_notified:
            self._is_notified = True
            self._notified.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="toolexec-journal", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Sync what is left and end the thread; closing twice is fine."""
        self._stopped.set()
        self._notified.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._notified.wait()
            self._stopped.wait(self._delay)
            self._notified.clear()
            self._is_notified = False  # a commit from here on notifies again
            self._sync_log()
            if self._commits >= _BETWEEN_CHECKPOINTS:
                self._commits = 0
                self._checkpoint()
        self._sync_log()

    def _sync_log(self) -> None:
        if not self._sync or self.error is not None:
            return
        try:
            if self._log < 0:
                self._log = os.open(f"{self._path}-wal", os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
                self._sync_directory()
            getattr(os, "fdatasync", os.fsync)(self._log)
        except OSError as error:
            self.error = error
            logger.error("the journal %s cannot be brought to the disk: %s", self._path, error)

    def _sync_directory(self) -> None:
        """Make the name of a new log outlive a power failure."""
        if hasattr(os, "O_DIRECTORY"):
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _checkpoint(self) -> None:
        try:
            move_log(self._path)
        except (OSError, sqlite3.Error) as error:  # a full disk, say; the log goes on growing, and nothing is lost
            logger.warning("the log of the journal %s cannot be moved into it yet: %s", self._path, error)
