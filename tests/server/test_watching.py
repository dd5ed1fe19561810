"""Subscriptions to resources go by the rules and by the servers of the moment, also where these are exchanged."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceUpdatedNotification
from tests.server.harness import ERAS
from tests.server.test_endpoints import FILE, MAIN, Running, directory, keys, serving  # noqa: F401 - a fixture
from tests.waiting import until

pytestmark = pytest.mark.full

URI = "toolexec://docs/shared://same"
POLICY = '[policy]\nremote_destructive = "allow"\n'
RULE = '[[policy.rules]]\neffect = "deny"\ntools = "docs:*:+resource"\ncallers = "ann"\n'
CALLERS = f"[auth]\napi_keys = [{keys('root', 'ann')}]\n"
UNDER = 'when = { uri = { matches = "shared://.*" } }\n'


def settings(rules: str = "", label: str = "one") -> str:
    """Return the settings of a server in front of one that has a resource."""
    args = [str(Path(__file__).with_name("offers_server.py")), "stdio", "new", "0"]
    docs = f"[mcpServers.docs]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n"
    return f'{MAIN}{POLICY}{rules}{docs}env = {{ LABEL = "{label}" }}\n{CALLERS}'


async def reload(running: Running, text: str) -> None:
    """Have a running server go by other settings."""
    FILE.write_text(text)
    assert await running.reload()


async def touch(client: Client) -> None:
    """Have the server say that its resource has changed."""
    said = await client.call_tool("run_tool", {"tool_id": "docs:touch", "args": {}})
    assert not said.is_error, said


@asynccontextmanager
async def watching(running: Running, who: str, era: str) -> AsyncGenerator[list[str]]:
    """Subscribe to the resource, and give the URIs of the notices."""
    seen: list[str] = []

    async def note(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            seen.append(str(message.params.uri))

    async with running.client("/mcp", who, era, message_handler=note) as client:
        if era == "legacy":
            with pytest.warns(match="resources/subscribe"):
                await client.subscribe_resource(URI)
            yield seen
        else:
            async with client.listen(resource_subscriptions=[URI]):
                yield seen


@asynccontextmanager
async def served(text: str) -> AsyncGenerator[tuple[Running, Client]]:
    """Run a server whose backends are there, with a client of root."""
    async with serving(text) as running:
        await running.built.ex.start()
        async with running.client("/mcp", "root") as root:
            yield running, root


@pytest.mark.parametrize("rule", [RULE, RULE + UNDER], ids=["all", "by its URI"])
@pytest.mark.parametrize("era", ERAS)
async def test_changes_reach_only_those_who_may_read_the_resource(era: str, rule: str) -> None:
    """Subscribers are notified until a rule forbids it, and again once none does; others are of each change."""
    async with served(settings()) as (running, root), watching(running, "ann", era) as ann:
        async with watching(running, "root", era) as seen:
            await touch(root)
            await until(lambda: len(ann) == len(seen) == 1)
            await reload(running, settings(rule))
            await touch(root)
            await until(lambda: len(seen) == 2)
            await reload(running, settings())
            await touch(root)
            await until(lambda: len(ann) > 1)
        assert ann == [URI] * 2


async def test_a_rule_about_the_uri_refuses_the_subscription() -> None:
    """Subscribing is refused as reading is."""
    async with served(settings(RULE + UNDER)) as (running, _), running.client("/mcp", "ann", "legacy") as ann:
        for ask in (ann.read_resource, ann.subscribe_resource):
            with pytest.warns(match="resources/subscribe") if ask == ann.subscribe_resource else nullcontext():
                with pytest.raises(MCPError, match=r"the policy .* forbids") as refused:
                    await ask(URI)
            assert refused.value.error.data["code"] == "policy_denied"


@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_goes_on_at_a_server_that_takes_the_place_of_another(era: str) -> None:
    """The client is notified that the resource may have changed meanwhile, and then of each change, as after a restart."""
    async with served(settings()) as (running, root), watching(running, "ann", era) as ann:
        await touch(root)
        await until(lambda: len(ann) == 1)
        await reload(running, settings(label="two"))
        await until(lambda: len(ann) == 2)
        await touch(root)
        await until(lambda: len(ann) == 3)
        await running.reload.restart("docs")
        await until(lambda: len(ann) == 4)
        await touch(root)
        await until(lambda: len(ann) == 5)
