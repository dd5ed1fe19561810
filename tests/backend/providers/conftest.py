"""The service that providers call in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.backend.providers.service import Service, serving


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    """Run one service for the tests of a file."""
    with serving() as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """Return the service, with nothing seen yet."""
    running.seen.clear()
    return running
