"""Run in the environment of `requirements.txt` here: the agent of the Claude Agent SDK uses the tools of an Exec. It is
the SDK's own program, with a server on this machine in place of the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolResultBlock,
    UserMessage,
)
from tests.integrations.asking import Person, asking_shop
from tests.integrations.frameworks.page import lines_of
from tests.integrations.shop import Guard, make_shop

from toolexec import Filters
from toolexec.errors import ConfigurationError
from toolexec.integrations.claude_agent_sdk import options
from toolexec.model.origin import Caller, Origin

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Model(ThreadingHTTPServer):
    """A server of the API of messages: asks for the calls of `turns`, one a turn, and then says "done"."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.turns: list[tuple[str, Any]] = []
        self.asked: list[Any] = []

    def answer(self, request: Any) -> JSONList:
        self.asked.append(request)
        results = [
            part
            for message in request["messages"]
            if isinstance(message["content"], list)
            for part in message["content"]
            if part["type"] == "tool_result"
        ]
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": request["model"], "content": []}
        started = {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}
        if request.get("tools") and len(results) < len(self.turns):
            name, args = self.turns[len(results)]
            block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": name, "input": {}}
            delta, reason = {"type": "input_json_delta", "partial_json": json.dumps(args)}, "tool_use"
        else:
            block, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}, "end_turn"
        return [
            started,
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]


JSONList = list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Model

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            return self.reply("application/json", b'{"input_tokens": 1}')
        events = self.server.answer(request)
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return self.reply("text/event-stream", text.encode())

    def do_GET(self) -> None:
        self.reply("application/json", b"{}")

    do_HEAD = do_GET

    def reply(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def base(model: Model, tmp_path: Path) -> ClaudeAgentOptions:
    """Options of an agent that talks to the model alone, and reads no settings of this machine."""
    url = f"http://127.0.0.1:{model.server_address[1]}"
    home = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "config")}
    quiet = dict.fromkeys(["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"], "1")
    env = {**home, **quiet, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "ENABLE_TOOL_SEARCH": "false"}
    return ClaudeAgentOptions(
        tools=[], setting_sources=[], strict_mcp_config=True, cwd=tmp_path, env=env, model="claude-sonnet-4-5"
    )


async def run(made: ClaudeAgentOptions, model: Model, *turns: tuple[str, Any]) -> list[tuple[str, bool]]:
    """Have the agent make these calls; what it read for each, and whether that was an error."""
    model.turns = [(f"mcp__toolexec__{name}", args) for name, args in turns]
    read: list[tuple[str, bool]] = []
    async with ClaudeSDKClient(made) as client:
        await client.query("go")
        async for message in client.receive_response():
            if isinstance(message, UserMessage) and isinstance(message.content, list):
                blocks = [block for block in message.content if isinstance(block, ToolResultBlock)]
                read += [(_text(block.content), bool(block.is_error)) for block in blocks]
            elif isinstance(message, ResultMessage):
                assert message.result == "done"
    return read


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", f"<{part['type']}>") for part in content)


async def test_calls_go_through_the_gate_for_the_origin(base: ClaudeAgentOptions, model: Model) -> None:
    """Calls run behind the gate for the origin, without the agent's own questions; what fails has a code."""
    guard, origin = Guard(), Origin(caller=Caller(id="ann"))
    async with make_shop(guard) as ex:
        read = await run(
            options(ex, base, origin=origin),
            model,
            ("shop__price", {"item": "tea", "currency": None}),
            ("shop__refund", {"order": 1}),
            ("shop__broken", {}),
            ("shop__price", {"itm": "tea"}),
            ("shop__photo", {"item": "cup"}),
        )
    assert json.loads(read[0][0]) == {"item": "tea", "price": 3, "currency": "EUR"}
    codes = [json.loads(text)["error"]["code"] for text, failed in read[1:4] if failed]
    assert codes == ["policy_denied", "handler_failed", "validation_input"]
    assert read[4][0].startswith("a cup")
    assert "image" in json.dumps(model.asked[-1]["messages"][-1])
    assert {call.origin.caller.id for call in guard.calls} == {"ann"}
    shown = {tool["name"]: tool for tool in model.asked[0]["tools"]}["mcp__toolexec__shop__price"]
    assert shown["description"].endswith("the price of an item.")
    assert shown["input_schema"]["required"] == ["item"]


async def test_code_mode_works(base: ClaudeAgentOptions, model: Model) -> None:
    """A program runs in the sandbox, with the tools that the filters let through."""
    guard = Guard()
    async with make_shop(guard) as ex:
        code = {"code": "tools.shop.price(item='tea')['price'] + 1"}
        made = options(ex, base, mode="code", filters=Filters(namespace="shop"))
        found, coded = await run(
            made, model, ("search_tools", {"query": "price of everything"}), ("execute_code", code)
        )
    assert "shop:price" in found[0]
    assert "stock:everything" not in found[0]
    assert json.loads(coded[0]) == {"value": 4}
    assert [call.origin.path for call in guard.calls] == ["code"]


async def test_the_user_of_the_agent_approves(base: ClaudeAgentOptions, model: Model) -> None:
    """`can_use_tool` is asked about each call that the gate would ask about, and about no other; a yes is for one call
    with the arguments that it gives, and the gate asks no more."""
    person, asked = Person(), []
    ex, made = asking_shop(person)
    changed = PermissionResultAllow(updated_input={"order": 9})
    answers = iter([PermissionResultAllow(), PermissionResultDeny("no"), changed])

    async def can_use_tool(tool_name: str, given: Any, context: Any) -> Any:
        asked.append((tool_name, given))
        return next(answers)

    base.can_use_tool = can_use_tool
    async with ex:
        calls = [("shop__price", {"item": "tea"}), *[("shop__refund", {"order": 1})] * 3]
        read = await run(options(ex, base), model, *calls)
    assert asked == [("mcp__toolexec__shop__refund", {"order": 1})] * 3
    assert [text.strip('"') for text, failed in read[-3:] if not failed] == ["refunded 1", "refunded 9"]
    assert read[-2][1]
    assert [each["order"] for each in made] == [1, 9]
    assert person.asked == []


async def test_without_an_own_question_the_gate_asks(base: ClaudeAgentOptions, model: Model) -> None:
    """The gate's approver is asked while the agent waits."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        ((text, failed),) = await run(options(ex, base), model, ("shop__refund", {"order": 1}))
    assert failed
    assert "approval_denied" in text
    assert len(person.asked) == 1
    assert made == []


async def test_the_options_are_kept(base: ClaudeAgentOptions) -> None:
    """All that the options have is still there; a second server of the name, and servers in a file, are refused."""
    async with make_shop() as ex:
        made = options(ex, options(ex, base), name="other")
        assert [*made.mcp_servers] == ["toolexec", "other"]
        assert [matcher.matcher for matcher in made.hooks["PreToolUse"]] == ["mcp__toolexec__.*", "mcp__other__.*"]
        assert base.mcp_servers == {}
        assert (made.model, made.env) == (base.model, base.env)
        with pytest.raises(ConfigurationError, match="another name"):
            options(ex, made)
        with pytest.raises(ConfigurationError, match="dict"):
            options(ex, ClaudeAgentOptions(mcp_servers="servers.json"))


async def test_the_lines_of_the_page() -> None:
    """The lines that the documents show make a client."""
    async with make_shop() as ex:
        names: dict[str, Any] = {"ex": ex}
        exec(lines_of("Claude Agent SDK"), names)
        assert [*names["client"].options.mcp_servers] == ["toolexec"]
