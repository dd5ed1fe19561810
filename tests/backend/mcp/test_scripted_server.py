"""The scripted server itself, run in this process, line by line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from toolexec.testing import mcp_server
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble


class Left(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def talk(monkeypatch) -> Callable[..., list[dict[str, Any]]]:
    """Say these messages to a server and give what it answers; a request is followed by a wait for its answer."""

    def run(script: ScriptedServer, *messages: dict[str, Any], raw: bool = False) -> Any:
        written, left = io.BytesIO(), threading.Event()

        def answered(request_id: Any) -> bool:
            return f'"id": {request_id},'.encode() in written.getvalue() or left.is_set()

        def lines() -> Iterator[bytes]:
            for message in messages:
                wait = message.pop("wait", True)
                yield json.dumps({"jsonrpc": "2.0", **message}).encode()
                deadline = time.monotonic() + 10
                while "id" in message and wait and not answered(message["id"]) and time.monotonic() < deadline:
                    time.sleep(0.001)

        def leave(code: int) -> None:
            left.set()
            raise Left(code)

        monkeypatch.setattr(sys, "argv", ["server", json.dumps(json.loads(script.command()[-1]))])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=lines()))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
        monkeypatch.setattr(mcp_server, "_leave", leave)
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        with pytest.raises(Left):
            mcp_server.main()
        text = written.getvalue()
        return text if raw else [json.loads(line) for line in text.splitlines()]

    return run


def ask(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"id": number, "method": method, "params": params}


def use(name: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    return ask("tools/call", number, name=name, arguments=arguments)


def test_handshake_listing_and_call(talk):
    """The three steps of every session."""
    hello, listing, answer = talk(ScriptedServer(), ask("initialize", 1), ask("tools/list", 2), use("echo", 3, a=1))
    assert hello["result"]["protocolVersion"] == "2025-11-25"
    assert listing["result"] == {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    assert answer["result"]["structuredContent"] == {"a": 1}


def test_what_it_does_not_know(talk):
    """Unknown methods and tools are refused; the newer era's question too, unless the script says otherwise."""
    assert [a["error"]["code"] for a in talk(ScriptedServer(), ask("server/discover"), use("nope", 2))] == [
        -32601,
        -32602,
    ]
    assert talk(ScriptedServer(discover="ignore"), ask("server/discover") | {"wait": False}) == []
    assert talk(ScriptedServer(discover="exit"), ask("server/discover")) == []


def test_pages(talk):
    """Listings in pages, the same page again and again, and pages without end."""
    tools = [ScriptedTool(name, description=name, output_schema={}) for name in "abc"]
    pages = talk(ScriptedServer(tools=tools, page_size=2), ask("tools/list"), ask("tools/list", 2, cursor="2"))
    assert [[tool["name"] for tool in page["result"]["tools"]] for page in pages] == [["a", "b"], ["c"]]
    assert [page["result"].get("nextCursor") for page in pages] == ["2", None]
    (page,) = talk(ScriptedServer(pages="repeat"), ask("tools/list", cursor="1"))
    assert page["result"] == {"tools": [], "nextCursor": "1"}
    (page,) = talk(ScriptedServer(pages="endless"), ask("tools/list", cursor="7"))
    assert page["result"]["nextCursor"] == "8"


def test_kinds_of_answers(talk):
    """A whole reply, an error, a text of some size, and a line as it is."""
    tools = [
        ScriptedTool("reply", reply={"content": [], "isError": True}),
        ScriptedTool("error", error={"code": 5, "message": "no"}),
        ScriptedTool("text", text=10),
        ScriptedTool("raw", raw='{"id": $ID, "x": 1}'),
    ]
    answers = talk(ScriptedServer(tools=tools), *(use(tool.name, n) for n, tool in enumerate(tools)))
    assert answers[0]["result"] == {"content": [], "isError": True}
    assert answers[1]["error"] == {"code": 5, "message": "no"}
    assert answers[2]["result"]["content"][0]["text"] == "t" * 10
    assert answers[3] == {"id": 3, "x": 1}


def test_progress(talk):
    """Notifications carry the caller's token; without a token there are none."""
    server = ScriptedServer(tools=[ScriptedTool("t", progress=2, delay=0.01)])
    call = ask("tools/call", 1, name="t", arguments={}, _meta={"progressToken": 9})
    *notes, _ = talk(server, call)
    assert [(note["params"]["progressToken"], note["params"]["progress"]) for note in notes] == [(9, 1), (9, 2)]
    assert len(talk(server, use("t"))) == 1


def test_changing_tools(talk):
    """After a change there is a notification, and another listing."""
    server = ScriptedServer(tools=[ScriptedTool("t", changes_tools=True)], later_tools=[ScriptedTool("new")])
    answers = talk(server, use("t"), {"method": "notifications/x"}, ask("tools/list", 2))
    assert {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"} in answers
    server = ScriptedServer(announce_always=True)
    assert talk(server, ask("tools/list"))[-1]["method"] == "notifications/tools/list_changed"


def test_cancelling(talk, tmp_path):
    """A cancelled call has no answer, and both are on record."""
    server = ScriptedServer(tools=[ScriptedTool("slow", delay=60)], record=str(tmp_path / "events"))
    answers = talk(
        server,
        use("slow", 1) | {"wait": False},
        {"method": "notifications/cancelled", "params": {"requestId": 1}},
    )
    assert answers == []
    assert [event["event"] for event in server.events()] == ["start", "call", "cancelled", "eof"]
    assert server.events("cancelled") == [{"event": "cancelled", "id": 1}]


def test_no_record_no_events(tmp_path):
    """Nothing has happened as long as there is no file."""
    assert ScriptedServer(record=str(tmp_path / "none")).events() == []


def test_troubles(talk, capsys, tmp_path):
    """Floods, garbage, long lines, halves and ends happen in the order of the script."""
    trouble = Trouble(stderr=10, garbage=["{nope"], delay=0.001, line=5)
    text = talk(ScriptedServer(trouble={"initialize": trouble}), ask("initialize"), raw=True)
    assert text.startswith(b"{nope\nxxxxx\n{")
    assert capsys.readouterr().err == "eeeeeeend\n"
    text = talk(ScriptedServer(tools=[ScriptedTool("t", trouble=Trouble(half=True))]), use("t"), raw=True)
    assert text
    assert b"\n" not in text
    assert talk(ScriptedServer(trouble={"call": Trouble(exit=3)}), use("echo")) == []
    assert talk(ScriptedServer(trouble={"start": Trouble(exit=3)})) == []


def test_trouble_later_and_trouble_at_first(talk, tmp_path):
    """`after` lets so many go well; `starts` is over after so many processes."""
    server = ScriptedServer(trouble={"list": Trouble(exit=1, after=1)})
    assert len(talk(server, ask("tools/list", 1), ask("tools/list", 2))) == 1
    server = ScriptedServer(trouble={"list": Trouble(exit=1, starts=1)}, record=str(tmp_path / "events"))
    assert talk(server, ask("tools/list")) == []
    assert len(talk(server, ask("tools/list"))) == 1


def test_the_command_line_wants_one_script():
    """Run by name without a script, it says what it is for."""
    command = [sys.executable, "-m", "toolexec.testing.mcp_server"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "usage: python -m toolexec.testing.mcp_server SCRIPT" in done.stderr


def test_the_command_line_takes_an_empty_script():
    """Everything in a script has a default."""
    command = [sys.executable, "-m", "toolexec.testing.mcp_server", "{}"]
    done = subprocess.run(
        command, input=json.dumps(ask("initialize")) + "\n", capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "scripted"
