"""All of server-everything, through the gateway and directly, reply by reply, in both eras."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    TextContent,
)
from tests.server.harness import ERAS, connect
from tests.server.test_offers import here, plain
from tests.servers import EVERYTHING, require_npm_server, server_environment

from toolexec import Exec
from toolexec.server.app import ToolServer
from toolexec.server.settings import ServeSettings

pytestmark = pytest.mark.full

ASKING: dict[str, dict[str, object]] = {
    "get-roots-list": {},
    "trigger-sampling-request": {"prompt": "Say something"},
    "trigger-elicitation-request": {},
    "trigger-url-elicitation": {"url": "https://example.com/sign-in"},
}
"""Arguments for the tools that are there for clients that can be asked."""
TEMPLATE = "demo://resource/dynamic/text/{resourceId}"


async def sampled(context: Any, params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="sampled"), model="m")


async def answered(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ann", "check": True})


async def rooted(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///project", name="project")])


CLIENT: dict[str, Any] = {
    "sampling_callback": sampled,
    "elicitation_callback": answered,
    "list_roots_callback": rooted,
}


@asynccontextmanager
async def itself() -> AsyncIterator[tuple[Client, list[str]]]:
    """Yield a client of the server itself, and the command that starts another one."""
    command = require_npm_server("everything")
    env = {name: value for name, value in server_environment().items() if name in ("HOME", "PATH", "TERM", "USER")}
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=env)
    async with Client(parameters, mode="legacy", **CLIENT) as own:
        yield own, command


@asynccontextmanager
async def both(era: str) -> AsyncIterator[tuple[Client, Client]]:
    """Yield clients of the server itself, and of a gateway in front of another one."""
    async with AsyncExitStack() as stack:
        own, command = await stack.enter_async_context(itself())
        ex = Exec()
        server = await stack.enter_async_context(ToolServer(ex, ServeSettings(expose="direct")))
        await ex.add_mcp("docs", command=command)
        yield own, await stack.enter_async_context(connect(server, era, **CLIENT))


def steady(value: Any) -> Any:
    """Return a reply without what differs each time: times, and random IDs, and the environment of the process."""
    if isinstance(value, list):
        return [steady(item) for item in value]
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    text = re.sub(r"\d{1,2}:\d\d:\d\d\s[AP]M|\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{8}-[0-9a-f-]{27}", "*", value)
    return text if os.environ.get("HOME", "/") not in text else "*"


async def compare(own: Client, client: Client) -> None:
    """Fail unless all that the server has is there through the gateway, with the reply that it has directly."""
    tools = {tool.name for tool in (await own.list_tools()).tools}
    # The SDK's own client cannot run tasks, which the gateway does for its clients.
    calls = {name: args for name, args in (EVERYTHING | ASKING).items() if name != "simulate-research-query"}
    assert tools == {*calls, "simulate-research-query"}
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {f"docs__{name}" for name in tools} <= names
    for name, args in calls.items():
        direct = steady(here(plain(await own.call_tool(name, args))))
        through = steady(plain(await client.call_tool(f"docs__{name}", args)))
        assert through["content"] == direct["content"], name
        assert through.get("structuredContent") == direct.get("structuredContent"), name
    research = await client.call_tool("docs__simulate-research-query", {"topic": "tools"})
    assert "Research Report: tools" in str(research.content)

    for method, key, number in (
        ("list_resources", "resources", 8),  # one of them is made by a tool
        ("list_resource_templates", "resourceTemplates", 2),
    ):
        direct, through = plain(await getattr(own, method)()), plain(await getattr(client, method)())
        assert len(through[key]) == number
        assert through[key] == here(direct[key])
    uris = [resource.uri for resource in (await own.list_resources()).resources]
    for uri in (*uris, TEMPLATE.replace("{resourceId}", "1"), "demo://resource/dynamic/blob/2"):
        direct = steady(here(plain(await own.read_resource(uri))))
        assert steady(plain(await client.read_resource(f"toolexec://docs/{uri}")))["contents"] == direct["contents"]

    prompts = (await own.list_prompts()).prompts
    assert len(prompts) == 4
    filled = {"resourceType": "Text", "resourceId": "1"}
    for prompt in prompts:
        args = {argument.name: filled.get(argument.name, "Sales") for argument in prompt.arguments or ()}
        direct = steady(here(plain(await own.get_prompt(prompt.name, args))))
        through = steady(plain(await client.get_prompt(f"docs:{prompt.name}", args)))
        assert through["messages"] == direct["messages"], prompt.name
    department = {"name": "department", "value": "S"}
    found = await client.complete(PromptReference(name="docs:completable-prompt"), department)
    assert plain(found) == plain(await own.complete(PromptReference(name="completable-prompt"), department))
    number = {"name": "resourceId", "value": "1"}
    direct = plain(await own.complete(ResourceTemplateReference(uri=TEMPLATE), number))
    found = await client.complete(ResourceTemplateReference(uri=f"toolexec://docs/{TEMPLATE}"), number)
    assert plain(found) == direct


@pytest.mark.parametrize("era", ERAS)
async def test_every_reply_is_the_one_of_the_server(era: str):
    """17 of 17 tools, 7 resources, 2 templates and 4 prompts: each has the definition and the reply that it has
    directly, but for names and URIs."""
    async with both(era) as (own, client):
        await compare(own, client)
