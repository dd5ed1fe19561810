"""Several endpoints in one process: each has its tools, its policy and its callers, and nothing of another's."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from toolexec.backend.secrets.callers import caller_key
from toolexec.config.build import Built, build
from toolexec.config.load import load_settings
from toolexec.config.loaded import LoadedConfig
from toolexec.config.reload import Reload
from toolexec.errors import ConfigurationError
from toolexec.model.origin import Caller
from toolexec.server.app import ToolServer
from toolexec.server.auth import LiveKeys
from toolexec.server.http import serve_http

FILE = Path("toolexec.toml")
TOOLS = '''
from toolexec import tool
from toolexec.model.origin import current_origin


@tool("mail:send", read_only=True)
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@tool("mail:burn", read_only=True)
async def burn() -> str:
    """Burn a letter."""
    return "burnt"


@tool("shop:buy", read_only=True)
async def buy(thing: str) -> str:
    """Buy a thing."""
    return f"bought {thing}"


@tool("shop:list", read_only=True)
async def listed() -> list[str]:
    """List very many things."""
    return [f"thing {number}" for number in range(5000)]
'''
MAIN = """
[sources]
python = ["endpoint_tools.py"]
[server]
transport = "http"
port = 0
[toolsets.mail]
namespaces = ["mail"]
[toolsets.shop]
namespaces = ["shop"]
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a server, in a place of their own."""
    monkeypatch.chdir(tmp_path)


def keys(*names: str) -> str:
    """API keys as a file has them: the key of ann is "key-of-ann"."""
    pairs = [(name, hashlib.sha256(f"key-of-{name}".encode()).hexdigest()) for name in names]
    return ", ".join(f'{{ id = "{name}", sha256 = "{digest}" }}' for name, digest in pairs)


def endpoint(name: str, *callers: str, more: str = "") -> str:
    """Return the table of an endpoint for these callers."""
    return f"[endpoints.{name}]\n{more}\n[endpoints.{name}.auth]\napi_keys = [{keys(*callers)}]\n"


AUTH = f"[auth]\napi_keys = [{keys('root')}]\n"
TEAM_A = endpoint("team-a", "ann", "both", more='toolsets = ["mail"]\nexpose = "direct"')
TEAM_B = endpoint("team-b", "bob", "both", more='toolsets = ["shop"]')


def read() -> LoadedConfig:
    """Read the settings as a server does."""
    return load_settings([FILE], environment={}, serving=True)


@dataclass
class Running:
    """A server that is up."""

    built: Built
    reload: Reload
    root: str

    @asynccontextmanager
    async def client(self, path: str, who: str, era: str = "auto", **callbacks: Any) -> AsyncGenerator[Client]:
        """Connect with the official client."""
        async with AsyncExitStack() as stack:
            headers = {"x-api-key": f"key-of-{who}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20, verify=False))
            transport = streamable_http_client(f"{self.root}{path}", http_client=http)
            yield await stack.enter_async_context(Client(transport, mode=era, **callbacks))  # type: ignore[arg-type]

    async def status(self, path: str, who: str = "", session: str = "") -> int:
        """Return the status that a call with a key gets."""
        headers = {"accept": "application/json, text/event-stream"} | ({"x-api-key": f"key-of-{who}"} if who else {})
        headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"} if session else {}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list" if session else "ping"}
        async with httpx2.AsyncClient(timeout=20, verify=False) as client:
            return (await client.post(f"{self.root}{path}", json=message, headers=headers)).status_code


@asynccontextmanager
async def serving(text: str, **flags: Any) -> AsyncGenerator[Running]:
    """Serve what the file says, as the command does."""
    FILE.write_text(text)
    Path("endpoint_tools.py").write_text(TOOLS)
    built = build(read(), serving=True, state=Path("state").absolute())
    settings = built.serve
    server = ToolServer(built.ex, settings, results=built.results, index=lambda: built.index)
    api_keys, endpoints = LiveKeys(settings.auth), built.endpoints(settings)
    reload = Reload(built, read, keys=api_keys, notify=server.notify_changes, endpoints=endpoints)
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    try:
        async with server, aclosing(endpoints):
            work = serve_http(
                server,
                settings.http,
                settings.auth,
                keys=api_keys,
                logins=server.logins,
                ready=address.set_result,
                stop=stop,
                running=endpoints.serve_at,
            )
            task = asyncio.create_task(work)
            await asyncio.wait([task, address], return_when=asyncio.FIRST_COMPLETED)
            try:
                if task.done():
                    await task
                yield Running(built, reload, address.result().removesuffix("/mcp"))
            finally:
                stop.set()
                await task
                await reload.aclose()
    finally:
        built.close()


def text_of(result: Any) -> str:
    """Return all text of a result."""
    return " ".join(getattr(part, "text", "") for part in result.content)


async def test_each_endpoint_has_its_tools_and_its_callers() -> None:
    """A key of one opens no other, and the main endpoint is where it was, with all tools."""
    async with serving(MAIN + AUTH + TEAM_A + TEAM_B) as running:
        assert await running.status("/mcp", "root") != 401
        for path, who in [
            ("/mcp", "ann"), ("/team-a/mcp", "root"), ("/team-a/mcp", "bob"), ("/team-b/mcp", "ann"), ("/team-a/mcp", ""),
        ]:  # fmt: skip
            assert await running.status(path, who) == 401, f"{who!r} came in at {path}"
        async with running.client("/team-a/mcp", "ann") as ann, running.client("/mcp", "root") as root:
            assert {tool.name for tool in (await ann.list_tools()).tools} >= {"mail__send", "mail__burn"}
            assert "shop" not in " ".join(tool.name for tool in (await ann.list_tools()).tools)
            assert "sent to eve" in text_of(await ann.call_tool("mail__send", {"to": "eve"}))
            with pytest.raises(Exception, match="Unknown tool"):
                await ann.call_tool("shop__buy", {"thing": "tea"})
            found = await root.call_tool("run_tool", {"tool_id": "shop:buy", "args": {"thing": "tea"}})
            assert "bought tea" in text_of(found)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("run_tool", {"tool_id": "mail:send", "args": {"to": "eve"}}),
        ("describe_tool", {"tool_id": "mail:send"}),
        ("run_chain", {"steps": [{"tool_id": "mail:send", "args": {"to": "eve"}}]}),
        ("search_tools", {"query": "send a letter"}),
        ("list_tools", {}),
        ("list_namespaces", {}),
    ],
)
async def test_what_is_not_in_the_toolset_of_an_endpoint_is_not_there(name: str, args: dict[str, Any]) -> None:
    """No meta-tool leads to it, or suggests it."""
    async with (
        serving(MAIN + AUTH + TEAM_A + TEAM_B) as running,
        running.client("/mcp", "root") as root,
        running.client("/team-b/mcp", "bob") as bob,
    ):
        seen = text_of(await root.call_tool(name, args))
        assert "mail" in seen or "sent to eve" in seen
        said = text_of(await bob.call_tool(name, args))
        assert "Send a letter" not in said
        assert "sent to eve" not in said
        assert "burn" not in said
        assert said.count("mail") <= said.count("mail:send")  # what was asked for may be named


async def test_an_error_says_the_same_of_what_is_elsewhere_and_of_what_is_nowhere() -> None:
    """No caller can find out whether there is such a tool at another endpoint."""
    async with serving(MAIN + AUTH + TEAM_A + TEAM_B) as running, running.client("/team-b/mcp", "bob") as bob:
        elsewhere = text_of(await bob.call_tool("run_tool", {"tool_id": "mail:send"}))
        nowhere = text_of(await bob.call_tool("run_tool", {"tool_id": "mail:sand"}))
    assert elsewhere == nowhere.replace("mail:sand", "mail:send")


async def test_code_reaches_the_tools_of_its_endpoint_only() -> None:
    """A workflow of team-b calls a tool of team-a, and it is not there."""
    async with serving(MAIN + AUTH + TEAM_A + TEAM_B) as running, running.client("/team-b/mcp", "bob") as bob:
        good = {"code": 'run("shop:buy", {thing: "tea"})', "language": "workflow"}
        bad = {"code": 'run("mail:send", {to: "eve"})', "language": "workflow"}
        assert "bought tea" in text_of(await bob.call_tool("execute_code", good))
        said = text_of(await bob.call_tool("execute_code", bad))
        assert "sent to eve" not in said
        assert "no tool" in said or "not found" in said or "tool_not_found" in said, said


async def test_the_rules_of_an_endpoint_come_beside_those_of_all() -> None:
    """A call that [policy] denies stays denied, and each endpoint denies more for its own callers."""
    policy = '[[policy.rules]]\neffect = "deny"\ntools = "mail:burn"\nreason = "never"\n'
    rules = 'policy = { rules = [{ effect = "deny", tools = "shop:buy", reason = "no money" },'
    rules += ' { effect = "allow", tools = "mail:burn" }] }'
    text = MAIN + policy + AUTH + endpoint("team-a", "ann", more=rules) + TEAM_B
    async with serving(text) as running:
        async with running.client("/team-a/mcp", "ann") as ann:
            assert "no money" in text_of(
                await ann.call_tool("run_tool", {"tool_id": "shop:buy", "args": {"thing": "t"}})
            )
            assert "never" in text_of(await ann.call_tool("run_tool", {"tool_id": "mail:burn"}))
        async with running.client("/team-b/mcp", "bob") as bob:
            said = await bob.call_tool("run_tool", {"tool_id": "shop:buy", "args": {"thing": "tea"}})
            assert "bought tea" in text_of(said)


async def test_the_same_id_at_two_endpoints_is_two_callers() -> None:
    """Results that one keeps cannot be read by the other, though both prove to be `both`."""
    wide = endpoint("team-a", "both") + endpoint("team-b", "both")
    async with (
        serving(f"{MAIN}[results]\nmax_bytes = 2000\n{AUTH}{wide}") as running,
        running.client("/team-a/mcp", "both") as one,
        running.client("/team-b/mcp", "both") as other,
    ):
        result = await one.call_tool("run_tool", {"tool_id": "shop:list"})
        handle = json.loads(json.dumps(result.structured_content))["handle"]
        assert "thing" in text_of(await one.call_tool("read_result", {"handle": handle}))
        said = await other.call_tool("read_result", {"handle": handle})
        assert said.is_error
        assert "thing 1" not in text_of(said)


async def test_a_session_of_one_endpoint_is_none_at_another() -> None:
    """Its ID is not found there, and it goes on where it is."""
    wide = endpoint("team-a", "both") + endpoint("team-b", "both")
    async with serving(MAIN + AUTH + wide) as running:
        async with httpx2.AsyncClient(timeout=20, verify=False) as http:
            headers = {"accept": "application/json, text/event-stream", "x-api-key": "key-of-both"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            answer = await http.post(f"{running.root}/team-a/mcp", json=message, headers=headers)
        session = answer.headers["mcp-session-id"]
        assert await running.status("/team-b/mcp", "both", session) == 404
        assert await running.status("/team-a/mcp", "both", session) == 200


async def test_endpoints_come_and_go_and_change_while_others_are_used() -> None:
    """One is opened, one gets other tools, keys and rules, and one is closed; sessions of those that stay go on."""
    async with serving(MAIN + AUTH + TEAM_A) as running, running.client("/team-a/mcp", "ann", "legacy") as ann:
        assert await running.status("/team-b/mcp", "bob") in (401, 404)
        FILE.write_text(MAIN + AUTH + TEAM_A.replace('"mail"', '"shop"') + TEAM_B)
        changes = await running.reload()
        assert changes is not None
        assert (changes.opened, changes.keys, changes.restart) == (("team-b",), ("endpoints.team-a.toolsets",), ())
        names = {tool.name for tool in (await ann.list_tools()).tools}
        assert "shop__buy" in names
        assert "mail__send" not in names
        assert "bought tea" in text_of(await ann.call_tool("shop__buy", {"thing": "tea"}))
        async with running.client("/team-b/mcp", "bob") as bob:
            assert "shop" in text_of(await bob.call_tool("list_namespaces", {}))
        FILE.write_text(MAIN + AUTH + endpoint("team-b", "eve", more='toolsets = ["shop"]'))
        changes = await running.reload()
        assert changes is not None
        assert (changes.closed, changes.keys) == (("team-a",), ("endpoints.team-b.auth.api_keys",))
        assert await running.status("/team-b/mcp", "bob") == 401
        assert await running.status("/team-b/mcp", "eve") != 401
        assert await running.status("/team-a/mcp", "root") == 404  # known to the main endpoint, which has nothing there
        with pytest.raises(Exception):  # noqa: B017 - the client says it in one way or another
            await ann.call_tool("shop__buy", {"thing": "tea"})


async def test_a_reload_with_one_wrong_endpoint_changes_nothing_of_any() -> None:
    """The keys of jwt cannot be read, or an endpoint is left open; the other changes are not made either."""
    async with serving(MAIN + AUTH + TEAM_A) as running:
        broken = '[endpoints.open]\n[endpoints.open.auth.jwt]\nissuer = "i"\naudience = "a"\njwks_file = "none.json"\n'
        for wrong in (broken, "[endpoints.open]\n", '[endpoints.team-c]\npath = "/team-a/mcp"\n'):
            FILE.write_text(MAIN + AUTH + endpoint("team-a", "eve") + TEAM_B + wrong)
            assert await running.reload() is None
            assert running.reload.problem
            assert await running.status("/team-a/mcp", "ann") != 401
            assert await running.status("/team-b/mcp", "root") == 404


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[endpoints.a]\n", r"would let everybody in"),
        (endpoint("a", "ann", more='toolsets = ["nail"]'), "there is no toolset 'nail'; did you mean mail"),
        (endpoint("a", "ann", more='path = "/mcp"'), "at /mcp, and so is the server"),
        (endpoint("a", "ann", more='expos = "meta"'), "unknown key endpoints.a.expos; did you mean expose"),
        (endpoint("a", "ann", more="policy = { rules = [{ effect = 'perhaps' }] }"), r"endpoints\.a: .*perhaps"),
        ('[endpoints."a/b"]\nauth = { allow_anonymous = true }\n', "must be 1 to 64 letters"),
    ],
)
def test_an_endpoint_that_makes_no_sense_is_refused(text: str, why: str) -> None:
    """The message says where, and what would do."""
    FILE.write_text(MAIN.replace("[sources]", "").replace('python = ["endpoint_tools.py"]', "") + AUTH + text)
    with pytest.raises(ConfigurationError, match=why):
        read()


@pytest.mark.full
async def test_resources_and_prompts_are_those_of_the_toolset() -> None:
    """An endpoint whose toolset has nothing of a server lists and reads none of it; the main one does."""
    script = Path(__file__).with_name("offers_server.py")
    server = f'[mcpServers.offers]\ncommand = "{sys.executable}"\nargs = ["{script}", "stdio", "modern", "0"]\n'
    async with (
        serving(MAIN + AUTH + TEAM_B + server) as running,
        running.client("/mcp", "root") as root,
        running.client("/team-b/mcp", "bob") as bob,
    ):
        await running.built.ex.start()
        known = (await root.list_resources()).resources
        assert known
        assert (await root.read_resource(known[0].uri)).contents
        assert (await root.list_prompts()).prompts
        assert not (await bob.list_resources()).resources
        assert not (await bob.list_resource_templates()).resource_templates
        assert not (await bob.list_prompts()).prompts
        with pytest.raises(MCPError):
            await bob.read_resource(known[0].uri)


async def test_a_task_of_one_endpoint_is_none_at_another() -> None:
    """Not even for a caller with the same ID, and not in the list."""
    wide = endpoint("team-a", "both") + endpoint("team-b", "both")
    async with serving(MAIN + AUTH + wide) as running, httpx2.AsyncClient(timeout=20, verify=False) as http:

        async def ask(name: str, method: str, params: dict[str, Any], session: str = "") -> httpx2.Response:
            headers = {"accept": "application/json, text/event-stream", "x-api-key": "key-of-both"}
            headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"} if session else {}
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return await http.post(f"{running.root}/{name}/mcp", json=message, headers=headers)

        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        sessions = {
            name: (await ask(name, "initialize", hello)).headers["mcp-session-id"] for name in ("team-a", "team-b")
        }
        call = {"name": "run_tool", "arguments": {"tool_id": "shop:buy", "args": {"thing": "tea"}}, "task": {}}
        made = await ask("team-a", "tools/call", call, sessions["team-a"])
        found = re.search(r'"taskId":\s*"([^"]+)"', made.text)
        assert found is not None, made.text
        for name, knows in (("team-a", True), ("team-b", False)):
            got = await ask(name, "tasks/get", {"taskId": found[1]}, sessions[name])
            assert ('"status"' in got.text) is knows, got.text
            assert (found[1] in (await ask(name, "tasks/list", {}, sessions[name])).text) is knows


def test_no_two_callers_have_one_realm() -> None:
    """Whatever a tenant is called, it is not that of an endpoint; nor are the names of their credentials the same."""
    callers = [
        Caller(id=name, tenant=tenant, endpoint=place)
        for name in ("ann", "team-a/ann", "/team-a/ann", "team-a:ann", ":ann", "x:ann", "%3Aann")
        for tenant in ("", "team-a", "/team-a/", "//team-a/", "team-a:x", "x")
        for place in ("", "team-a", "x")
    ]
    realms = {(caller.tenant, caller.endpoint): caller.realm for caller in callers}
    assert len({*realms.values()}) == len(realms)
    named = [key for caller in callers if (key := caller_key(caller))]
    assert len({*named}) == len(named)
