"""The runs that another number of processes had behind this port: with the number, the home of a run by POST changes,
and a request that is repeated must not find a process that knows nothing of it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from toolexec.errors import ConfigurationError
from toolexec.remote import open_for_reading
from toolexec_remote.server.journal import FILE, Journal

logger: logging.Logger = logging.getLogger(__name__)


def take_over(journal: Journal, directory: Path, is_ours: Callable[[str], bool], *, is_part: bool) -> None:
    """Write down in *journal*, which is in *directory*, the runs of the journals beside it whose ID *is_ours*.

    *is_part* says whether this is one of several processes, each with a directory in that of the server. Raises
    ConfigurationError where one cannot be read: its runs would be started a second time.
    """
    whole = directory.parent if is_part else directory
    for path in _journals(whole, directory):
        try:
            found = _runs(path, is_ours)
            journal.add_lost(found)
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"the runs in {path}, which another number of processes has written, cannot be taken over: {error}; "
                "remove the file once no request from then is repeated any more"
            ) from error
        if found:
            logger.info("%d runs were taken by another number of processes; they are not started again", len(found))


def _runs(path: Path, is_ours: Callable[[str], bool]) -> list[tuple[str, str, bytes, float, str]]:
    with closing(open_for_reading(path)) as rows:
        if not rows.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchall():
            return []  # its process is starting now, too
        runs = rows.execute("SELECT account, id, digest, changed, incarnation FROM runs")
        return [run for run in runs if is_ours(run[1])]


def _journals(whole: Path, own: Path) -> Iterator[Path]:
    for directory in (whole, *sorted(whole.glob("process-*"))):
        path = directory / FILE
        if directory != own and path.is_file():
            yield path
