"""The contract suite for indexes against every index, with each searcher."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolexec.discovery import BM25Searcher, InMemoryIndex, LexicalSearcher
from toolexec.model import Binding, Tool
from toolexec.testing.index_suite import INDEX_CHECKS, MakeIndex, check_index


class Small:
    """An index with nothing but what the protocol asks for."""

    def __init__(self) -> None:
        self._index = InMemoryIndex()
        for name in ("register", "unregister", "find", "search", "tools", "on_change"):
            setattr(self, name, getattr(self._index, name))

    @property
    def version(self) -> int:
        return self._index.version

    def __len__(self) -> int:
        return len(self._index)


MAKERS: dict[str, MakeIndex] = {
    "default": InMemoryIndex,
    "bm25": lambda: InMemoryIndex(BM25Searcher()),
    "lexical": lambda: InMemoryIndex(LexicalSearcher()),
    "small": Small,  # type: ignore[dict-item]
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("check", INDEX_CHECKS, ids=lambda check: check.__name__)
def test_index_keeps_the_contract(check: Callable[[MakeIndex], None], make: MakeIndex) -> None:
    """Each index passes each check."""
    check(make)


class _Forgetful(InMemoryIndex):
    """Drops second bindings."""

    def register(self, tool: Tool, binding: Binding) -> None:
        if tool.id not in self._entries:
            super().register(tool, binding)


class _Shut(InMemoryIndex):
    def namespaces(self) -> list[str]:
        raise RuntimeError("closed")


def _report(caught: pytest.ExceptionInfo[ExceptionGroup]) -> str:
    """Every failure with the notes that name its check."""
    return "\n".join(f"{error}; {' '.join(getattr(error, '__notes__', []))}" for error in caught.value.exceptions)


class TestCheckIndex:
    @pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
    def test_a_good_index_passes(self, make: MakeIndex) -> None:
        """All checks at once, without known gaps."""
        check_index(make)

    def test_every_failure_is_reported_by_name(self) -> None:
        """Broken promises are listed together, kept ones are not."""
        with pytest.raises(ExceptionGroup) as caught:
            check_index(_Forgetful)
        report = _report(caught)
        assert "index check: keeps_several_bindings" in report
        assert "another description must raise ToolConflictError" in report
        assert "lists_namespaces" not in report

    def test_a_check_that_crashes_is_a_failure(self) -> None:
        """An exception of the index does not end the run of the suite."""
        with pytest.raises(ExceptionGroup) as caught:
            check_index(_Shut)
        assert "closed; index check: lists_namespaces" in _report(caught)

    def test_gaps_are_excused_and_closed_ones_reported(self) -> None:
        """Known gaps do not count as failures; one that passes is reported, one that does not exist is refused."""
        with pytest.raises(ExceptionGroup) as caught:
            check_index(_Forgetful, known_gaps={"keeps_several_bindings", "lists_namespaces"})
        report = _report(caught)
        assert "keeps_several_bindings" not in report
        assert "lists_namespaces is listed as a known gap, but it passes" in report
        with pytest.raises(ValueError, match="there are no checks flies"):
            check_index(_Forgetful, known_gaps={"flies"})
