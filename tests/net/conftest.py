"""The service that providers call in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.backend.providers.service import Service, serving


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    """One service for the tests of a file."""
    with serving() as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """The service, with nothing seen yet."""
    running.seen.clear()
    return running
