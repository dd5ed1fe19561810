"""A Temporal server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from packages.temporal.tests.server.servers import DevServer
from temporalio.runtime import Runtime

from toolexec_temporal import TemporalSettings


@pytest.fixture(scope="session", autouse=True)
def runtime() -> None:
    """Start the threads of Temporal's SDK, which stay, with their files, for the whole process."""
    Runtime.default()


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    """Start the dev server, for one module."""
    server = DevServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def settings(server: DevServer, request: pytest.FixtureRequest) -> TemporalSettings:
    """Settings with task queues of the test's own, and time-outs as short as tests need them."""
    name = request.node.name.replace("[", "-").replace("]", "")
    return TemporalSettings(address=server.address, task_queue=name, prefix=f"{name}-", heartbeat_timeout=3, linger=0.2)
