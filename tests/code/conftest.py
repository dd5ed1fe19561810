"""Tools to call, with a memory of what was called."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NoReturn

import pytest

from toolexec.testing.gateway_exam import GatewayExam, GatewayParts


def _no_gateway(parts: GatewayParts) -> NoReturn:
    raise AssertionError("these tests look at the tools themselves")


@pytest.fixture
async def exam() -> AsyncGenerator[GatewayExam]:
    """Tools to call, and what became of them."""
    exam = GatewayExam(_no_gateway)
    yield exam
    await exam.backends.stop_all()
