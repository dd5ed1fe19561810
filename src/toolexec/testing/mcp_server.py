"""A scripted MCP server: a real child process that does what a script says, good or bad.

>>> server = ScriptedServer(tools=[ScriptedTool("echo"), ScriptedTool("slow", delay=5)])
>>> # await ex.add_mcp("fake", command=server.command())

It speaks the handshake era of MCP over stdio, needs nothing but the standard library, and starts in the time that
Python does. The script travels on the command line as JSON: `python -m toolexec.testing.mcp_server '{"tools": ...}'`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

Moment: TypeAlias = Literal["start", "initialize", "list", "call"]
_MODERN_QUESTION = "server/discover"
_FOR_EVER = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What goes wrong at a moment, in this order.

    `stderr`: so many bytes are written to stderr. `garbage`: these lines go to stdout as they are. `delay`: seconds
    of waiting. `hang`: no answer ever. `exit`: the process ends with this code. `half`: the first half of the answer is
    written, then the process ends. `line`: a line of so many bytes goes to stdout. The first `after` times nothing goes
    wrong; with `starts` it goes wrong only in the first so many processes (needs a server with `record`).
    """

    stderr: int = 0
    garbage: Sequence[str] = ()
    delay: float = 0.0
    hang: bool = False
    exit: int | None = None
    half: bool = False
    line: int = 0
    after: int = 0
    starts: int | None = None


@dataclass(frozen=True, slots=True)
class ScriptedTool:
    """A tool and its answer.

    `reply` is a whole `CallToolResult`; without one the tool answers with its arguments, as structured content and as
    text. `error` is answered as a JSON-RPC error instead; `raw` is written as the answer's line, with `$ID` replaced
    by the request's ID; `text` is the size of a text to answer with. Before that come `delay` seconds, and `progress`
    notifications spread over them. `changes_tools` makes the server change its tools and say so. `listing` overrides
    keys of the tool's entry in `tools/list`.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    output_schema: Mapping[str, Any] | None = None
    reply: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    raw: str | None = None
    text: int = 0
    delay: float = 0.0
    progress: int = 0
    trouble: Trouble | None = None
    changes_tools: bool = False
    listing: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedServer:
    """A server made of tools and troubles.

    `later_tools` are its tools after a change. `page_size` splits `tools/list` into pages; `pages` `repeat` gives one
    cursor again and again, `endless` always another one. `trouble` says what goes wrong when. `discover` is what it
    does with the newer era's opening question: refuse it, ignore it, or exit. `announce_always` sends a change
    notification with every listing. `ignore_cancel` goes on with cancelled calls; `ignore_eof` and `ignore_sigterm`
    make it hard to stop; `grandchild` starts a process of its own that holds all pipes open. `record` is a file that
    gets a line for each thing that happens; `events` reads it.
    """

    tools: Sequence[ScriptedTool] = (ScriptedTool("echo"),)
    later_tools: Sequence[ScriptedTool] = ()
    page_size: int = 0
    pages: Literal["", "repeat", "endless"] = ""
    trouble: Mapping[Moment, Trouble] = field(default_factory=dict[Moment, Trouble])
    discover: Literal["refuse", "ignore", "exit"] = "refuse"
    announce_always: bool = False
    ignore_cancel: bool = False
    ignore_eof: bool = False
    ignore_sigterm: bool = False
    grandchild: bool = False
    protocol: str = "2025-11-25"
    record: str = ""

    def command(self) -> list[str]:
        """Return the command line for `Exec.add_mcp(name, command=...)`."""
        # By path and isolated: importing the package would cost more than all the rest of the start.
        return [sys.executable, "-I", "-S", __file__, json.dumps(asdict(self))]

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Return what has happened so far in all processes of this server, or only the events of one kind: `start`,
        `initialize`, `list`, `call`, `cancelled`, `eof`, `sigterm`, `grandchild`.
        """
        try:
            text = Path(self.record).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        events = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in events if kind in ("", event["event"])]

    @classmethod
    def from_json(cls, text: str) -> ScriptedServer:
        """Read the server that `command` wrote on the command line; raises TypeError for keys that mean nothing."""
        data = json.loads(text)
        for key in data.keys() & {"tools", "later_tools"}:
            data[key] = [_read_tool(tool) for tool in data[key]]
        if "trouble" in data:
            data["trouble"] = {moment: Trouble(**entry) for moment, entry in data["trouble"].items()}
        return cls(**data)


def _read_tool(data: Mapping[str, Any]) -> ScriptedTool:
    entry: dict[str, Any] = dict(data)
    if entry.get("trouble"):
        entry["trouble"] = Trouble(**entry["trouble"])
    return ScriptedTool(**entry)


class _Process:
    """The running server."""

    def __init__(self, script: ScriptedServer) -> None:
        self._script = script
        self._tools = list(script.tools)
        self._lock = threading.Lock()
        self._cancelled: dict[Any, threading.Event] = {}
        self._seen: dict[str, int] = {}
        self._starts = len(script.events("start")) + 1 if script.record else 1

    def serve(self) -> None:
        script = self._script
        self._note("start", pid=os.getpid())
        if script.ignore_sigterm:
            signal.signal(signal.SIGTERM, lambda *_: self._note("sigterm"))
        if script.grandchild:
            self._start_grandchild()
        self._suffer("start", None, None)
        for line in sys.stdin.buffer:
            self._receive(json.loads(line))
        self._note("eof")
        while script.ignore_eof:
            time.sleep(1)

    def _receive(self, message: dict[str, Any]) -> None:
        method, request_id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method == "initialize":
            info = {"name": "scripted", "version": "1"}
            result = {
                "protocolVersion": self._script.protocol,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info,
            }
            self._note("initialize")
            self._answer_at("initialize", request_id, result)
        elif method == "tools/list":
            self._note("list")
            self._answer_at("list", request_id, self._page(params.get("cursor")))
            if self._script.announce_always:
                self._announce()
        elif method == "tools/call":
            self._note("call", name=params.get("name"), id=request_id)
            self._cancelled[request_id] = threading.Event()
            threading.Thread(target=self._call, args=(request_id, params), daemon=True).start()
        elif method == "notifications/cancelled":
            self._note("cancelled", id=params.get("requestId"))
            if not self._script.ignore_cancel:
                self._cancelled.setdefault(params.get("requestId"), threading.Event()).set()
        elif method == _MODERN_QUESTION and self._script.discover != "refuse":
            if self._script.discover == "exit":
                _leave(1)
        elif request_id is not None:
            self._send({"id": request_id, "error": {"code": -32601, "message": f"unknown method {method}"}})

    def _page(self, cursor: str | None) -> dict[str, Any]:
        entries = [_entry(tool) for tool in self._tools]
        size = self._script.page_size or len(entries) or 1
        start = int(cursor) if cursor else 0
        if self._script.pages == "repeat":
            return {"tools": entries if not cursor else [], "nextCursor": "1"}
        if self._script.pages == "endless":
            return {"tools": [{**_entry(ScriptedTool(f"tool{start}"))}], "nextCursor": str(start + 1)}
        page: dict[str, Any] = {"tools": entries[start : start + size]}
        return page | {"nextCursor": str(start + size)} if start + size < len(entries) else page

    def _call(self, request_id: Any, params: Mapping[str, Any]) -> None:
        tool = next((tool for tool in self._tools if tool.name == params.get("name")), None)
        if tool is None:
            error = {"code": -32602, "message": f"unknown tool {params.get('name')}"}
            self._send({"id": request_id, "error": error})
            return
        token = params.get("_meta", {}).get("progressToken")
        for step in range(1, tool.progress + 1):
            self._wait(request_id, tool.delay / tool.progress)
            data = {"progressToken": token, "progress": step, "total": tool.progress, "message": f"step {step}"}
            if token is not None:
                self._send({"method": "notifications/progress", "params": data})
        if not tool.progress:
            self._wait(request_id, tool.delay)
        answer = _answer(tool, params.get("arguments", {}))
        self._suffer("call", request_id, answer)
        self._suffer_trouble(f"tool {tool.name}", tool.trouble, request_id, answer)
        if self._cancelled.pop(request_id).is_set():
            return
        if tool.raw is not None:
            self._write(tool.raw.replace("$ID", str(request_id)).encode() + b"\n")
        else:
            self._send({"id": request_id, **answer})
        if tool.changes_tools:
            self._tools = list(self._script.later_tools)
            self._announce()

    def _announce(self) -> None:
        self._send({"method": "notifications/tools/list_changed"})

    def _answer_at(self, moment: Moment, request_id: Any, result: dict[str, Any]) -> None:
        answer = {"result": result}
        self._suffer(moment, request_id, answer)
        self._send({"id": request_id, **answer})

    def _suffer(self, moment: Moment, request_id: Any, answer: dict[str, Any] | None) -> None:
        self._suffer_trouble(moment, self._script.trouble.get(moment), request_id, answer)

    def _suffer_trouble(self, key: str, trouble: Trouble | None, request_id: Any, answer: Any) -> None:
        if trouble is None:
            return
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] <= trouble.after or (trouble.starts is not None and self._starts > trouble.starts):
            return
        if trouble.stderr:
            sys.stderr.write("e" * (trouble.stderr - 4) + "end\n")
            sys.stderr.flush()
        for line in trouble.garbage:
            self._write(line.encode() + b"\n")
        self._wait(request_id, _FOR_EVER if trouble.hang else trouble.delay)
        if trouble.exit is not None:
            _leave(trouble.exit)
        if trouble.half:
            whole = _encode({"id": request_id, **(answer or {})})
            self._write(whole[: len(whole) // 2])
            _leave(1)
        if trouble.line:
            self._write(b"x" * trouble.line + b"\n")

    def _wait(self, request_id: Any, seconds: float) -> None:
        if seconds > 0:
            self._cancelled.setdefault(request_id, threading.Event()).wait(seconds)

    def _start_grandchild(self) -> None:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(_FOR_EVER)
            os._exit(0)
        self._note("grandchild", pid=pid)

    def _send(self, message: dict[str, Any]) -> None:
        self._write(_encode(message))

    def _write(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def _note(self, event: str, **data: Any) -> None:
        if self._script.record:
            line = json.dumps({"event": event, **data}) + "\n"
            with Path(self._script.record).open("a", encoding="utf-8") as file:
                file.write(line)


def _entry(tool: ScriptedTool) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": tool.name, "inputSchema": tool.input_schema}
    if tool.description:
        entry["description"] = tool.description
    if tool.output_schema is not None:
        entry["outputSchema"] = tool.output_schema
    return entry | dict(tool.listing)


def _answer(tool: ScriptedTool, args: Mapping[str, Any]) -> dict[str, Any]:
    if tool.error is not None:
        return {"error": dict(tool.error)}
    if tool.reply is not None:
        return {"result": dict(tool.reply)}
    if tool.text:
        return {"result": {"content": [{"type": "text", "text": "t" * tool.text}]}}
    return {"result": {"content": [{"type": "text", "text": json.dumps(args)}], "structuredContent": args}}


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _leave(code: int) -> None:
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve the script given as the only argument until stdin ends."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m toolexec.testing.mcp_server SCRIPT, where SCRIPT is the JSON of a ScriptedServer")
    _Process(ScriptedServer.from_json(sys.argv[1])).serve()
    _leave(0)


if __name__ == "__main__":
    main()
