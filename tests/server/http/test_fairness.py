"""What one caller does over HTTP takes nothing from the others: sessions, open approvals, and what was approved."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
from mcp_types import CallToolResult, ElicitResult
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule
from toolexec.run.layers.approval import Approval
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings
from toolexec.server.settings import ServeSettings

from .conftest import INITIALIZE, JSON_HEADERS, MODERN, Serve

KEYS = tuple(ApiKey(id=name, sha256=hash_key(f"{name}'s")) for name in ("ann", "bob", "eve"))
AUTH = AuthSettings(api_keys=KEYS)
RUN = {"tool_id": "fs:delete", "args": {"path": "/x"}}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}'s"}


def careful(**settings: Any) -> tuple[ToolServer, list[str]]:
    """A server with one tool that needs approval, and what it has done."""
    done: list[str] = []
    policy = Policy([Rule("ask", tools="fs:delete", reason="it deletes")])
    ex = Exec(gate=Gate(policy=policy, approval=Approval(policy.decide, timeout=60)))
    ex.add(lambda path: done.append(path), "fs:delete")
    return ToolServer(ex, ServeSettings(**settings)), done


class TestSessions:
    """Sessions of the handshake era."""

    async def test_another_caller_gets_one(self, serve: Serve) -> None:
        """A caller with all sessions loses its least used one, to itself and to a caller who has fewer."""
        server = await serve(HttpSettings(port=0, max_sessions=4), AUTH)
        eves = [await server.post(INITIALIZE, bearer("eve")) for _ in range(4)]
        assert [answer.status_code for answer in eves] == [200, 200, 200, 200]
        sessions = [
            {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"} | bearer("eve")
            for answer in eves[:4]
        ]
        assert (await server.post(LIST, sessions[0])).status_code == 200  # so the second one is the oldest
        for name in ("ann", "bob"):
            assert (await server.post(INITIALIZE, bearer(name))).status_code == 200
        assert [(await server.post(LIST, session)).status_code for session in sessions] == [200, 404, 404, 200]
        assert (await server.post(INITIALIZE, bearer("eve"))).status_code == 200
        assert [(await server.post(LIST, session)).status_code for session in sessions] == [404, 404, 404, 200]

    async def test_many_at_the_same_time_take_none_from_others(self, serve: Serve) -> None:
        """Sessions that are being opened count for the caller who opens them, and for no other caller."""
        server = await serve(HttpSettings(port=0, max_sessions=6), AUTH)
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(server.post(INITIALIZE, bearer("eve")))
            others = [
                group.create_task(server.post(INITIALIZE, bearer(name))) for _ in range(2) for name in ("ann", "bob")
            ]
        assert [each.result().status_code for each in others] == [200] * 4

    async def test_sessions_in_use_stay_with_their_caller(self, serve: Serve) -> None:
        """A caller whose sessions all have a stream is refused one more; another caller is not."""
        server = await serve(HttpSettings(port=0, max_sessions=2), AUTH)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx2.AsyncClient(timeout=20, verify=False))
            for _ in range(2):
                opened = await server.post(INITIALIZE, bearer("eve"))
                headers = {
                    "mcp-session-id": opened.headers["mcp-session-id"],
                    "mcp-protocol-version": "2025-11-25",
                    "accept": "text/event-stream",
                }
                await stack.enter_async_context(client.stream("GET", server.url, headers=headers | bearer("eve")))
            refused = await server.post(INITIALIZE, bearer("eve"))
            assert refused.status_code == 503
            assert "all of yours are in use" in refused.text
            assert (await server.post(INITIALIZE, bearer("ann"))).status_code == 200

    async def test_nobody_with_few_loses_any(self, serve: Serve) -> None:
        """Where all have one session each, one more caller is refused."""
        server = await serve(HttpSettings(port=0, max_sessions=2), AUTH)
        answers = [await server.post(INITIALIZE, bearer(name)) for name in ("ann", "bob", "eve")]
        assert [answer.status_code for answer in answers] == [200, 200, 503]


class TestConnections:
    """Connections, which all come from one address here."""

    async def test_others_beside_a_caller_who_opens_all_it_can(self, serve: Serve) -> None:
        """None of 300 calls of others is refused, whether that caller has calls under way or says nothing."""
        server = await serve(HttpSettings(port=0, max_connections=64, shutdown_grace=0), AUTH)
        over = asyncio.Event()
        held, refused = Counter[str](), Counter[bytes]()

        async def hold(name: str, data: bytes) -> None:
            while not over.is_set():
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                held[name] += 1
                answered = asyncio.create_task(_first_line(reader, writer, data))
                ended = asyncio.create_task(over.wait())
                await asyncio.wait([answered, ended], return_when=asyncio.FIRST_COMPLETED)
                refused[answered.result() if answered.done() else b""] += 1
                answered.cancel()
                ended.cancel()
                writer.close()

        async def call(name: str) -> int:
            async with at_once:
                message, headers = _call(1, {}, "echo")
                return (await server.post(message, headers | bearer(name), verify=False)).status_code

        at_once = asyncio.Semaphore(8)
        waiting = _raw(*_call(1, {"seconds": 1e6}, "wait"), "eve")
        eves = [asyncio.create_task(hold("calls", waiting)) for _ in range(100)]
        eves += [asyncio.create_task(hold("nothing", b"")) for _ in range(6)]
        async with asyncio.timeout(60):
            await until(lambda: any(b" 503 " in line for line in refused), 0.01)
        answers = await asyncio.gather(*[call(name) for name in ("ann", "bob") * 150])
        over.set()
        await asyncio.gather(*eves)
        assert answers == [200] * 300
        assert held["nothing"] > 0


async def _first_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    try:
        writer.write(data)
        await writer.drain()
        return await reader.readline()
    except ConnectionError:
        return b""


def _raw(message: dict[str, Any], headers: dict[str, str], name: str) -> bytes:
    """A request as it is sent."""
    body = json.dumps(message).encode()
    every = {**headers, **bearer(name), "host": "127.0.0.1", "content-length": str(len(body))}
    head = "".join(f"{key}: {value}\r\n" for key, value in every.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def _call(number: int, args: dict[str, Any], tool: str = "run_tool") -> tuple[dict[str, Any], dict[str, str]]:
    """A call of the newer era, by a client that can ask its user."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    params = {"name": tool, "arguments": args, "_meta": meta}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool, **JSON_HEADERS}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, headers


async def _post(server: Any, name: str, **params: Any) -> dict[str, Any]:
    message, headers = _call(1, RUN)
    message["params"] |= params
    answer = await server.post(message, headers | (bearer(name) if name else {}))
    data = json.loads(answer.text.partition("data:")[2] or answer.text)
    return data.get("result") or data["error"]


class TestOpenApprovals:
    """Calls that wait for an answer between two requests."""

    async def test_another_caller_is_asked(self, serve: Serve) -> None:
        """The caller with most of them gets no more, with a true reason, and loses the oldest to a caller who has
        fewer.
        """
        tools, done = careful(suspended_max=4)
        async with tools:
            server = await serve(HttpSettings(port=0), AUTH, tools)
            first = [await _post(server, "eve") for _ in range(4)]
            assert [answer["resultType"] for answer in first] == ["input_required"] * 4
            refused = (await _post(server, "eve"))["structuredContent"]["error"]
            assert refused["code"] == "approval_required"
            assert "nobody was asked: 4 of your calls wait for approval already" in refused["message"]
            assert "said no" not in refused["message"]
            for name in ("ann", "bob"):
                assert (await _post(server, name))["resultType"] == "input_required"
            late = await _post(server, "eve", requestState=first[0]["requestState"])
            assert "nobody has answered" in late["structuredContent"]["error"]["message"]
            yes = {"approval-1": {"action": "accept", "content": {"answer": "once"}}}
            kept = await _post(server, "eve", requestState=first[3]["requestState"], inputResponses=yes)
            assert not kept.get("isError")
            assert done == ["/x"]
            await server.end()


class Person:
    """Answers every form, and keeps which answers were offered."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.offered: list[list[str]] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.offered.append(params.requested_schema["properties"]["answer"]["enum"])
        return ElicitResult(action="accept", content={"answer": self.answer})


class TestApproved:
    """What was approved for longer than one call."""

    @pytest.mark.parametrize(
        ("era", "offered"), [("legacy", ["no", "once", "session"]), (MODERN, ["no", "once"])], ids=["legacy", "modern"]
    )
    @pytest.mark.parametrize("answer", ["session", "always"])
    async def test_callers_without_a_key_share_nothing(
        self, serve: Serve, era: str, offered: list[str], answer: str
    ) -> None:
        """An answer of one is for its own session, or for its call where it has no session; only that is offered."""
        tools, _ = careful()
        async with tools:
            server = await serve(HttpSettings(port=0), server=tools)
            for _ in range(2):
                person = Person(answer)
                async with server.client(era, elicitation_callback=person) as client:
                    for _ in range(2):
                        reply: CallToolResult = await client.call_tool("run_tool", RUN)
                        assert not reply.is_error
                assert person.offered == [offered] * (1 if era == "legacy" else 2)
            await server.end()

    @pytest.mark.parametrize("era", ["legacy", MODERN])
    async def test_a_caller_with_a_key(self, serve: Serve, era: str) -> None:
        """Such a caller is known, so that its answers last, and are not those of others."""
        tools, _ = careful()
        async with tools:
            server = await serve(HttpSettings(port=0), AUTH, tools)
            asked = []
            for name in ("ann", "ann", "bob"):
                person = Person("always")
                async with server.client(era, elicitation_callback=person, **bearer(name)) as client:
                    assert not (await client.call_tool("run_tool", RUN)).is_error
                asked.append(len(person.offered))
            assert asked == [1, 0, 1]
            await server.end()
