"""A searcher that can be closed is closed with its Exec."""

from __future__ import annotations

import pytest

from toolexec import Exec, InMemoryIndex
from toolexec.discovery import LexicalSearcher
from toolexec.errors import ConfigurationError


class Closing(LexicalSearcher):
    """Counts how often it is closed, and fails at it."""

    closed = 0

    def close(self) -> None:
        """Fail."""
        self.closed += 1
        raise OSError("the vectors are on a disk that is gone")


async def test_backends_end_even_if_the_searcher_does_not_close() -> None:
    """The failure is told, and nothing is left running for it."""
    searcher = Closing()
    ex = Exec(index=InMemoryIndex(searcher))
    with pytest.raises(OSError, match="disk that is gone"):
        await ex.aclose()
    assert searcher.closed == 1
    with pytest.raises(ConfigurationError):
        await ex.start()
