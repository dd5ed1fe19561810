"""Run tools in sequence, and pass values between the steps.

    python examples/chain.py

Prints:

    5 + 3 = 8, times 10 = 80
    order 7 of Ada Lovelace: 59.70
    step 0 shop:find_order ok
    step 1 shop:find_customer ok
    step 2 shop:invoice ok
    stopped: shop:find_order raised LookupError: there is no order 8
    steps: failed, skipped
"""

import asyncio
from typing import Any

from toolexec import Exec, Step, tool

ORDERS = {7: {"customer": "c1", "items": [{"price": 19.9}, {"price": 39.8}]}}
CUSTOMERS = {"c1": {"name": "Ada Lovelace"}}


@tool(namespace="math")
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@tool(namespace="math")
async def scale(previous: float, factor: float) -> float:
    """Multiplies the previous number by a factor."""
    return previous * factor


@tool(namespace="shop", read_only=True)
async def find_order(number: int) -> dict[str, Any]:
    """Looks up an order."""
    if number not in ORDERS:
        raise LookupError(f"there is no order {number}")
    return {"number": number, **ORDERS[number]}


@tool(namespace="shop", read_only=True)
async def find_customer(id: str) -> dict[str, Any]:
    """Looks up a customer."""
    return CUSTOMERS[id]


@tool(namespace="shop")
async def invoice(order: int, name: str, prices: list[float]) -> str:
    """Writes the line of an invoice."""
    return f"order {order} of {name}: {sum(prices):.2f}"


async def main() -> None:
    async with Exec() as ex:
        for function in (add, scale, find_order, find_customer, invoice):
            ex.add(function)

        # `use_previous` passes the value of the preceding step as the argument `previous`.
        chain = await ex.run_chain(
            [
                Step(tool_id="math:add", args={"a": 5, "b": 3}),
                Step(tool_id="math:scale", args={"factor": 10}, use_previous=True),
            ]
        )
        print(f"5 + 3 = {chain.steps[0].value:g}, times 10 = {chain.value:g}")

        # A reference selects any part of any earlier step's value, by the step's name or number.
        billing = [
            Step(tool_id="shop:find_order", args={"number": 7}, name="order", retries=2),
            Step(tool_id="shop:find_customer", args={"id": {"$ref": "order.customer"}}),
            Step(
                tool_id="shop:invoice",
                args={
                    "order": {"$ref": "order.number"},
                    "name": {"$ref": "steps.1.name"},
                    "prices": {"$ref": "order.items[*].price"},
                },
            ),
        ]
        chain = await ex.run_chain(billing)
        print(chain.value)
        for step in chain.steps:
            print("step", step.index, step.tool_id, "ok" if step.ok else step.error)

        # A failure stops the chain; the completed steps are in the result, the rest are reported as skipped.
        chain = await ex.run_chain(
            [
                Step(tool_id="shop:find_order", args={"number": 8}),
                Step(tool_id="shop:find_customer", args={"id": {"$ref": "steps.0.customer"}}),
            ]
        )
        print("stopped:", chain.error)
        print("steps:", ", ".join("skipped" if s.skipped else "ok" if s.ok else "failed" for s in chain.steps))


if __name__ == "__main__":
    asyncio.run(main())
