"""The contract suite for journals, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from toolexec.durable.sqlite import SQLiteJournal
from toolexec.testing.journal_suite import JOURNAL_CHECKS, MakeStore, check_journal


def _sqlite(directory: Path, sync: str) -> MakeStore:
    numbers = iter(range(100))

    def make() -> Callable[[], SQLiteJournal]:
        path = directory / f"{next(numbers)}.db"
        return lambda: SQLiteJournal(path, sync=sync)  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("sync", ["batch", "each"])
@pytest.mark.parametrize("check", JOURNAL_CHECKS, ids=lambda check: check.__name__)
def test_sqlite_keeps_the_contract(check: Callable[[MakeStore], None], sync: str, tmp_path: Path) -> None:
    """The store in a file passes each check."""
    check(_sqlite(tmp_path, sync))


class _Forgetful(SQLiteJournal):
    """Does not look at who writes."""

    def _owned(self, execute, run_id, owner, *, cancelled_too=False):  # type: ignore[no-untyped-def]
        _, _, holder, *_ = self._held(execute, run_id)
        return super()._owned(execute, run_id, holder, cancelled_too=True)


def test_suite_reports_a_journal_without_fences(tmp_path: Path) -> None:
    """The suite names each promise that a journal breaks."""
    numbers = iter(range(100))

    def make() -> Callable[[], SQLiteJournal]:
        path = tmp_path / f"{next(numbers)}.db"
        return lambda: _Forgetful(path)

    with pytest.raises(ExceptionGroup) as caught:
        check_journal(make)
    notes = " ".join(" ".join(error.__notes__) for error in caught.value.exceptions)
    assert "keeps_others_from_writing" in notes
    assert "passes_a_run_on_after_its_lease" in notes
