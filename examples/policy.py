"""Apply one policy to every path to a tool: single calls, chains, code, and what a caller can find.

    python examples/policy.py

Prints:

    ann finds:    bank:balance, bank:transfer, shop:order
    guest finds:  bank:balance, shop:order
    ann transfers 50: sent 50 to bob
      (asked: may ann call bank:transfer with {'to': 'eve', 'amount': 500}? large sums)
    ann transfers 500: approval_denied
    a chain transfers 5000: policy_denied
    code of the guest: policy_denied
    shop:order, which may destroy data elsewhere: approval_required
    the third balance within a minute: rate_limited, again in 30 s
"""

import asyncio

from toolexec import Exec, Tool, ToolExecError, tool
from toolexec.backend import ProviderBackend
from toolexec.model.origin import ApprovalRequest, Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.rate_limit import RateLimit
from toolexec.run.policy import Policy, Rule

POLICY = Policy(
    [
        Rule("deny", tools="bank:transfer", callers="guest", reason="guests may only look"),
        Rule("ask", tools="bank:transfer", when={"amount": {"above": 100}}, reason="large sums"),
        Rule("deny", tools="bank:transfer", when={"amount": {"above": 1000}}),
    ]
)

CODE = """
try:
    tools.run("bank:transfer", {"to": "eve", "amount": 1})
except ToolError as error:
    __out = error.code
"""


def ask(request: ApprovalRequest) -> str:
    who, what = request.caller.id, request.tool_id
    print(f"  (asked: may {who} call {what} with {request.args}? {request.reason})")
    return "no"  # eve is not trusted


@tool(namespace="bank")
async def transfer(to: str, amount: float) -> str:
    """Sends money."""
    return f"sent {amount:g} to {to}"


@tool(namespace="bank", read_only=True)
async def balance() -> float:
    """Returns the balance."""
    return 1000.0


async def attempt(what: str, work) -> None:
    try:
        print(f"{what}:", (await work).raise_for_error().value)
    except ToolExecError as error:
        wait = f", again in {error.details['retry_after']} s" if "retry_after" in error.details else ""
        print(f"{what}: {error.code}{wait}")


async def main() -> None:
    approval = Approval(POLICY.decide, ask=ask)
    limits = RateLimit(rules={"bank:balance": "2/min"})
    gate = Gate(policy=POLICY, approval=approval, rate_limit=limits)
    order = Tool(name="order", namespace="shop", input_schema={"type": "object"})
    ann, guest = (Origin(caller=Caller(id=name)) for name in ("ann", "guest"))

    async with Exec(gate=gate) as ex:
        ex.add(transfer)
        ex.add(balance)
        await ex.add_backends(ProviderBackend("shop", lambda name, args: "ordered", tools=[order]))

        for origin in (ann, guest):
            with acting(origin):
                found = ", ".join(sorted(summary.id for summary in await ex.search_tools("")))
            print(f"{origin.caller.id} finds:".ljust(13), found)

        with acting(ann):
            await attempt("ann transfers 50", ex.run_tool("bank:transfer", {"to": "bob", "amount": 50}))
            await attempt("ann transfers 500", ex.run_tool("bank:transfer", {"to": "eve", "amount": 500}))
            step = {"tool": "bank:transfer", "args": {"to": "eve", "amount": 5000}}
            await attempt("a chain transfers 5000", ex.run_chain([step]))

        with acting(guest):
            await attempt("code of the guest", ex.execute_code(CODE))

        approval.ask = None  # there is no approver any more
        await attempt("shop:order, which may destroy data elsewhere", ex.run_tool("shop:order"))
        for _ in range(2):
            await ex.run_tool("bank:balance")
        await attempt("the third balance within a minute", ex.run_tool("bank:balance"))


if __name__ == "__main__":
    asyncio.run(main())
