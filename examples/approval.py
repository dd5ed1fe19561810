"""Have a workflow wait for a person: its process ends, the answer comes to another one, and that finishes the work.

    python examples/approval.py

Prints:

    refund 120 to ann: waits for approve:0.2
    the clerk sees: shop:refund {'order': 7, 'sum': 120}, as it is a large sum
    refund 120 to ann: done, refunded 120 for order 7
    refund 900 to eve: waits for approve:0.2
    refund 900 to eve: approval_denied
    refunded: [120]
"""

import asyncio
import tempfile
from pathlib import Path

from toolexec import Exec
from toolexec.errors import RunWaitingError
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule

FLOW = """
input order: integer
found := run("shop:order", {order: order})
return run("shop:refund", {order: order, sum: found.sum})
"""
POLICY = Policy([Rule("ask", tools="shop:refund", when={"sum": {"above": 100}}, reason="it is a large sum")])
ORDERS: dict[int, dict[str, str | int]] = {7: {"who": "ann", "sum": 120}, 8: {"who": "eve", "sum": 900}}
REFUNDED: list[int] = []


def order(order: int) -> dict[str, str | int]:
    """Returns an order."""
    return ORDERS[order]


def refund(order: int, sum: int) -> str:
    """Sends money back."""
    REFUNDED.append(sum)
    return f"refunded {sum} for order {order}"


def shop(directory: Path) -> Exec:
    """Return an Exec, as each process has its own; they share the journal."""
    ex = Exec(journal=directory / "runs.db", gate=Gate(policy=POLICY), linger=0.05)
    ex.add(order, "shop:order")
    ex.add(refund, "shop:refund")
    return ex


async def ask_for(directory: Path, number: int) -> str:
    """Begin a refund: it stops where an approver must be asked."""
    async with shop(directory) as ex:
        result = await ex.run_workflow(FLOW, {"order": number}, durable=f"refund-{number}")
    assert isinstance(result.error, RunWaitingError)
    return f"waits for {result.error.waits[0]['name']}"


async def answer(directory: Path, number: int, word: str) -> str:
    """Answer for the clerk, days later and elsewhere, and finish the work."""
    async with shop(directory) as ex:
        run = await ex.runs.get(f"refund-{number}")
        details = run.waits[0].details or {}
        if number == 7:
            print(f"the clerk sees: {details['tool']} {details['args']}, as {details['reason']}")
        await ex.runs.signal(run.id, run.waits[0].name, word)
        result = (await ex.runs.resume_due())[run.id]
    return f"done, {result.value}" if result.error is None else getattr(result.error.__cause__, "code", "failed")


async def main(directory: Path) -> None:
    """Ask for two refunds: one is allowed, one is not."""
    for number, word in ((7, "once"), (8, "no")):
        title = f"refund {ORDERS[number]['sum']} to {ORDERS[number]['who']}"
        print(f"{title}: {await ask_for(directory, number)}")
        print(f"{title}: {await answer(directory, number, word)}")
    print("refunded:", REFUNDED)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
