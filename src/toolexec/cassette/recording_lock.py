"""One process records a cassette at a time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from toolexec.errors import CassetteError
from toolexec.errors.extras import unix_needed


class RecordingLock:
    """The right to write the cassette *path*: a lock on a file beside it, which is there only as long as it is held."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f".{path.name}.lock")
        self._cassette = path
        self._file: int | None = None

    def take(self) -> None:
        """Take it, unless it is held by this already. Raises CassetteError where another process, or another cassette
        of this one, holds it, and ConfigurationError where files cannot be locked so."""
        with unix_needed("recording a cassette"):  # a replay needs no lock
            from toolexec.process.lock import try_lock

        while self._file is None:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise CassetteError(f"the cassette {self._cassette} cannot be recorded: {error}") from error
            try:
                if not try_lock(file):
                    raise CassetteError(
                        f"the cassette {self._cassette} is being recorded by another process; wait until that has "
                        "ended, or give each its own file",
                        code="cassette_busy",
                        retryable=True,
                    )
                if self._is_there(file):
                    self._file = file
            finally:
                if self._file is None:
                    os.close(file)

    def release(self) -> None:
        """Give it up, if it is held."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                self.path.unlink()
            os.close(file)

    def _is_there(self, file: int) -> bool:
        """Return whether the file is still that of the path: its last holder removes it."""
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except OSError:
            return False
