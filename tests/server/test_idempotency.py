"""The idempotency key of a request: equal ones of one caller are one effect, as other toolexec processes expect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.server.harness import ERAS, connect, serving

from toolexec import Exec
from toolexec.backend.mcp.backend import IDEMPOTENCY_KEY
from toolexec.run.effects import EffectLedger
from toolexec.run.gate import Gate
from toolexec.run.layers.ledger import Ledger

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "meta": ("run_tool", {"tool_id": "shop:pay", "args": {"order": 7}}),
    "direct": ("shop__pay", {"order": 7}),
}


async def pay(client: Client, expose: str, key: Any) -> str:
    name, args = CALLS[expose]
    reply = await client.call_tool(name, args, meta={IDEMPOTENCY_KEY: key})
    return reply.content[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("expose", CALLS)
async def test_equal_keys_are_one_effect(era: str, expose: str, tmp_path: Path) -> None:
    """A request that comes again with its key is answered from the ledger, also by the next server; another key, or
    one that makes no sense, is another call."""
    paid: list[int] = []

    def shop() -> Exec:
        ex = Exec(gate=Gate(ledger=Ledger(EffectLedger(tmp_path / "effects.db"))))
        ex.add(lambda order: paid.append(order) or len(paid), "shop:pay")
        return ex

    async with serving(shop(), expose=expose) as server, connect(server, era) as client:
        assert "1" in await pay(client, expose, "order-7/0")
        assert "1" in await pay(client, expose, "order-7/0")
        assert len(paid) == 1
        assert "2" in await pay(client, expose, "order-7/1")
        await pay(client, expose, "")
        await pay(client, expose, 5)
        await pay(client, expose, "x" * 501)
    assert len(paid) == 5
    async with serving(shop(), expose=expose) as server, connect(server, era) as client:
        assert "1" in await pay(client, expose, "order-7/0")
    assert len(paid) == 5


async def test_each_caller_has_its_own() -> None:
    """The same key of another caller is another one, and no other sees what the caller has sent."""
    from toolexec.model.origin import Caller
    from toolexec.server.callers import Requester

    class Context:
        request = None
        meta = {IDEMPOTENCY_KEY: "order-7/0"}

    context: Any = Context()
    names = [
        Requester(Caller(id=name, method="api_key", tenant=tenant), "", "", "", "always").idempotency_key(context)
        for name, tenant in (("ann", ""), ("bob", ""), ("ann", "acme"))
    ]
    names.append(Requester(Caller(), "", "", "", "always").idempotency_key(context))
    assert len({*names}) == 4
    assert all(name.isalnum() for name in names)
