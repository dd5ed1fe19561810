"""Several tools, one after the other, with values travelling between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolexec import Exec, Step, tool


@tool(namespace="shop")
def orders(customer: str) -> dict[str, Any]:
    """List a customer's orders."""
    return {"customer": customer, "items": [{"id": 7, "price": 30}, {"id": 9, "price": 12}]}


@tool(namespace="shop")
def refund(order: int) -> str:
    """Pay an order back."""
    if order == 9:
        raise ValueError("too late")
    return f"refunded {order}"


@tool(namespace="shop")
def total(prices: list[int]) -> int:
    """Add prices up."""
    return sum(prices)


@tool(namespace="shop")
def describe(previous: Any) -> str:
    """Say what the step before gave."""
    return f"the step before gave {previous}"


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """A small shop."""
    async with Exec() as ex:
        for function_tool in (orders, refund, total, describe):
            ex.add(function_tool)
        yield ex


async def test_chain(ex: Exec) -> None:
    """A chain gives the value of its last step, and what happened in each."""
    result = await ex.run_chain(
        [
            Step("shop:refund", {"order": 7}),
            Step("shop:describe", use_previous=True),
        ]
    )
    assert result.value == "the step before gave refunded 7"
    assert [step.value for step in result.steps] == ["refunded 7", "the step before gave refunded 7"]


async def test_references(ex: Exec) -> None:
    """An argument may refer to any part of any earlier step, by number or by name."""
    result = await ex.run_chain(
        [
            Step("shop:orders", {"customer": "Ada"}, name="found"),
            Step("shop:refund", {"order": {"$ref": "found.items[0].id"}}),
            Step("shop:total", {"prices": {"$ref": "steps.0.items[*].price"}}),
        ]
    )
    assert result.value == 42


async def test_a_failure_stops_the_chain(ex: Exec) -> None:
    """Steps before the failure stay in the result; those after it are skipped."""
    result = await ex.run_chain(
        [
            Step("shop:refund", {"order": 7}),
            Step("shop:refund", {"order": 9}),
            Step("shop:describe", use_previous=True),
        ]
    )
    assert not result.ok
    assert "too late" in str(result.error)
    assert [step.value for step in result.steps] == ["refunded 7", None, None]
    assert result.steps[2].skipped


async def test_a_step_may_fail(ex: Exec) -> None:
    """With `stop_on_error=False` the chain goes on with the last value there was."""
    result = await ex.run_chain(
        [
            Step("shop:refund", {"order": 7}),
            Step("shop:refund", {"order": 9}, stop_on_error=False),
            Step("shop:describe", use_previous=True),
        ]
    )
    assert result.ok
    assert result.value == "the step before gave refunded 7"
