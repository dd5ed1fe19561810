"""A shop whose policy asks for refunds, for the tests of frameworks' approvals."""

from __future__ import annotations

from typing import Any

from toolexec import Exec
from toolexec.model.origin import ApprovalRequest, Approver
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy, Rule


def asking_shop(ask: Approver | None = None) -> tuple[Exec, list[dict[str, Any]]]:
    """Return an Exec whose policy asks before each refund, and the refunds that were made."""
    made: list[dict[str, Any]] = []
    policy = Policy([Rule("ask", tools="shop:refund", reason="it is money"), Rule("allow")])
    ex = Exec(gate=Gate(policy=policy, approval=Approval(policy.decide, ask=ask)))

    async def refund(order: int, token: str = "") -> str:
        """Gives the money of an order back."""
        made.append({"order": order, "token": token})
        return f"refunded {order}"

    ex.add(refund, "shop:refund")
    ex.add(lambda item: 3, "shop:price")
    return ex, made


class Person:
    """An approver of the gate's own that answers no; `asked` is what it was asked."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    def __call__(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        return "no"
