"""An endpoint beside the main one is a whole server: all that MCP has passes through it, and stays at it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, PromptReference, ResourceTemplateReference, ResourceUpdatedNotification
from tests.server.harness import ERAS
from tests.server.test_endpoints import (
    AUTH,
    MAIN,
    TEAM_B,
    Running,
    directory,  # noqa: F401 - a fixture
    endpoint,
    serving,
)
from tests.server.test_everything_through import CLIENT, compare, itself
from tests.waiting import until

pytestmark = pytest.mark.full

TRUSTED = '[policy]\nremote_destructive = "allow"\n'
DOCS = '[toolsets.docs]\nnamespaces = ["docs"]\n'
ONLY_DOCS = endpoint("team-a", "ann", "both", more='toolsets = ["docs"]\nexpose = "direct"')
OTHER = endpoint("team-b", "bob", "both", more='toolsets = ["shop"]')
URI = "toolexec://docs/shared://same"
YES = {"approval-1": ElicitResult(action="accept", content={"answer": "once"})}


def offers(era: str) -> str:
    """Return the table of a server with resources and prompts."""
    args = [str(Path(__file__).with_name("offers_server.py")), "stdio", era, "0"]
    return f"[mcpServers.docs]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(args)}\n"


async def ready(running: Running) -> None:
    """Start the servers behind the gateway, and wait until all are there."""
    await running.built.ex.start()
    await until(lambda: all(status.available for status in running.built.ex.backend_statuses() if status.enabled))


async def ask(client: Client, what: str, **more: Any) -> Any:
    """Call the tool that needs an approval."""
    args = {"tool_id": "shop:buy", "args": {"thing": what}}
    return await client.session.call_tool("run_tool", args, allow_input_required=True, **more)


async def never(context: Any, params: Any) -> ElicitResult:
    """Be a client that can ask its user, and is not asked on this way."""
    raise NotImplementedError


async def test_every_reply_is_the_one_of_the_server() -> None:
    """All of server-everything passes through an endpoint whose toolset has it, reply by reply, and nothing of it is
    at another one."""
    async with AsyncExitStack() as stack:
        own, command = await stack.enter_async_context(itself())
        server = f"[mcpServers.docs]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
        running = await stack.enter_async_context(serving(MAIN + DOCS + server + AUTH + ONLY_DOCS + TEAM_B))
        await ready(running)
        ann = await stack.enter_async_context(running.client("/team-a/mcp", "ann", **CLIENT))
        await compare(own, ann)
        bob = await stack.enter_async_context(running.client("/team-b/mcp", "bob", **CLIENT))
        with pytest.raises(MCPError):
            await bob.get_prompt("docs:simple-prompt")
        said = await bob.call_tool("run_tool", {"tool_id": "docs:echo", "args": {"message": "hello"}})
        assert said.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_completions_are_those_of_the_toolset(era: str) -> None:
    """An endpoint completes the arguments of its prompts and resources; another one knows of none."""
    prompt = PromptReference(name="docs:review")
    template = ResourceTemplateReference(uri="toolexec://docs/user://{name}/profile")
    async with serving(MAIN + DOCS + offers("new") + AUTH + ONLY_DOCS + OTHER) as running:
        await ready(running)
        async with (
            running.client("/team-a/mcp", "both", era) as one,
            running.client("/team-b/mcp", "both", era) as other,
        ):
            for ref, name in ((prompt, "code"), (template, "name")):
                found = await one.complete(ref, {"name": name, "value": "an"})
                assert found.completion.values == ["ann", "anton"]
                with pytest.raises(MCPError) as refused:
                    await other.complete(ref, {"name": name, "value": "an"})
                assert "ann" not in str(refused.value)


@pytest.mark.parametrize("era", ERAS)
async def test_changes_reach_the_subscribers_of_the_endpoint(era: str) -> None:
    """A change of a resource reaches the client that subscribed at the endpoint which has it, and none that asked for
    it at another one."""
    seen: asyncio.Queue[str] = asyncio.Queue()
    elsewhere: list[str] = []

    async def note(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            seen.put_nowait(str(message.params.uri))

    async def note_elsewhere(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            elsewhere.append(str(message.params.uri))

    async def subscribe(stack: AsyncExitStack, client: Client) -> None:
        if era == "legacy":
            with pytest.warns(match="resources/subscribe"):
                await client.subscribe_resource(URI)
        else:
            await stack.enter_async_context(client.listen(resource_subscriptions=[URI]))

    text = MAIN + DOCS + TRUSTED + offers("old" if era == "legacy" else "new") + AUTH + ONLY_DOCS + OTHER
    async with serving(text) as running, AsyncExitStack() as stack:
        await ready(running)
        one = await stack.enter_async_context(running.client("/team-a/mcp", "both", era, message_handler=note))
        other = await stack.enter_async_context(
            running.client("/team-b/mcp", "both", era, message_handler=note_elsewhere)
        )
        await one.list_resources()
        await subscribe(stack, one)
        with contextlib.suppress(MCPError):  # it may be refused, or never be served
            await subscribe(stack, other)

        async def touched() -> bool:
            assert not (await one.call_tool("docs__touch", {})).is_error
            return not seen.empty()

        await until(touched, 0.05)
        assert seen.get_nowait() == URI
        await other.list_tools()  # whatever was sent before has come
        assert elsewhere == []


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_log_levels_are_those_of_a_session_of_the_endpoint() -> None:
    """The level that a session sets at one endpoint leaves those of the same caller at another as they were."""
    logs: dict[str, list[str]] = {"quiet": [], "usual": []}

    def ear(name: str) -> Any:
        async def note(params: Any) -> None:
            logs[name].append(str(params.data))

        return note

    wide = endpoint("team-a", "both") + endpoint("team-b", "both")
    async with (
        serving(MAIN + TRUSTED + offers("old") + AUTH + wide) as running,
        running.client("/team-a/mcp", "both", "legacy", logging_callback=ear("quiet")) as quiet,
        running.client("/team-b/mcp", "both", "legacy", logging_callback=ear("usual")) as usual,
    ):
        await ready(running)
        await quiet.set_logging_level("error")
        for client in (quiet, usual):
            assert not (await client.call_tool("run_tool", {"tool_id": "docs:speak", "args": {}})).is_error
        await until(lambda: logs["usual"])
        assert ["spoken" in line for line in logs["usual"]] == [True]
        assert logs["quiet"] == []


class TestSuspended:
    """Calls that wait for an answer between two requests, at endpoints with one caller `both`."""

    TEXT = (
        MAIN
        + '[[policy.rules]]\neffect = "ask"\ntools = "shop:buy"\n'
        + AUTH
        + endpoint("team-a", "both", "ann")
        + endpoint("team-b", "both")
    )

    def client(self, running: Running, place: str, who: str = "both") -> Any:
        """Connect with a client that can ask its user."""
        return running.client(f"/{place}/mcp", who, "2026-07-28", elicitation_callback=never)

    async def test_answered_where_it_was_asked(self) -> None:
        """A call that was asked about at one endpoint is made by the answer there, once; at another one, and by
        another caller, the answer is refused and nothing is done."""
        async with (
            serving(self.TEXT) as running,
            self.client(running, "team-a") as one,
            self.client(running, "team-b") as other,
            self.client(running, "team-a", "ann") as ann,
        ):
            state = (await ask(one, "tea")).request_state
            assert state
            for stranger in (other, ann):
                with pytest.raises(MCPError) as refused:
                    await ask(stranger, "tea", input_responses=YES, request_state=state)
                assert "bought" not in str(refused.value)
            made = await ask(one, "tea", input_responses=YES, request_state=state)
            assert "bought tea" in str(made.content)
            with pytest.raises(MCPError):
                await ask(one, "tea", input_responses=YES, request_state=state)

    async def test_after_a_restart(self) -> None:
        """The next process goes on with the call at its own endpoint, and refuses it at the other one."""
        async with serving(self.TEXT) as running, self.client(running, "team-a") as one:
            state = (await ask(one, "tea")).request_state
        async with (
            serving(self.TEXT) as running,
            self.client(running, "team-a") as one,
            self.client(running, "team-b") as other,
        ):
            with pytest.raises(MCPError):
                await ask(other, "tea", input_responses=YES, request_state=state)
            made = await ask(one, "tea", input_responses=YES, request_state=state)
            assert "bought tea" in str(made.content)

    async def test_of_an_endpoint_that_is_closed(self) -> None:
        """A call that waits at an endpoint is answered nowhere once the endpoint is gone."""
        async with (
            serving(self.TEXT) as running,
            self.client(running, "team-b") as one,
            self.client(running, "team-a") as other,
        ):
            state = (await ask(one, "tea")).request_state
            Path("toolexec.toml").write_text(self.TEXT.replace(endpoint("team-b", "both"), ""))
            assert await running.reload() is not None
            for client in (one, other):
                with pytest.raises(Exception):  # noqa: B017 - the client says it in one way or another
                    await ask(client, "tea", input_responses=YES, request_state=state)
