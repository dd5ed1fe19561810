"""Tools to call, with a memory of what was called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NoReturn

import pytest

from toolexec.testing.gateway_testbed import GatewayParts, GatewayTestbed


def _no_gateway(parts: GatewayParts) -> NoReturn:
    raise AssertionError("these tests make their own gateways, or need none")


@pytest.fixture
async def testbed() -> AsyncGenerator[GatewayTestbed]:
    """Tools to call, and what became of them."""
    testbed = GatewayTestbed(_no_gateway)
    yield testbed
    await testbed.backends.stop_all()
