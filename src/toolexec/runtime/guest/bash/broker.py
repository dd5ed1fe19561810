"""Runs bash programs for the host, and answers their command `tool`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..python.errors import ToolError
from ..python.stream import Line, end_group, move_descriptors, say_hello, set_stdin

__all__ = ["serve"]

_HELP = """\
tool run ID [ARGS]            call a tool; ARGS is a JSON object, or - to read it from stdin; prints the result as JSON
tool search WORD...           the best tools for the words, as JSON
tool describe ID [LEVEL]      what there is to know about a tool: summary, schema or full
tool examples ID              example arguments of a tool
tool namespaces               the namespaces of all tools
tool chain STEPS              a JSON list of {"toolId", "args", "usePrevious"}; prints the last result
tool read HANDLE [PATH]       a part of a result that is too large for a sandbox; PATH is a JMESPath
tool return JSON              the value of this program; --text TEXT for plain text; the last one counts
A call that fails prints the error as JSON to stderr and exits with 1; a wrong command line exits with 2.
"""


def serve(read_fd: int, write_fd: int) -> None:
    """Run programs until the host says bye or is gone; see `toolexec_guest.python.stream.serve`."""
    line = Line(*move_descriptors(read_fd, write_fd), end_group)
    say_hello(line, ["bash"])
    while True:
        message = line.inbox.get()
        if message is None or message.get("type") == "bye":
            return
        if message.get("type") == "execute":
            result = _run(line, message.get("payload") or {})
            line.send("result", message["id"], json.dumps(result))


def _run(line: Line, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of the `result` message."""
    set_stdin(payload.get("stdin"))
    folder = Path(tempfile.mkdtemp(prefix=".toolexec-", dir=Path.cwd()))
    broker = _Broker(line, str(folder / "tools"))
    try:
        script = str(folder / "program")
        Path(script).write_bytes((payload.get("code") or "").encode("utf-8", "replace"))
        problem = _syntax_error(script, payload.get("code") or "")
        if problem is not None:
            return {"error": problem}
        _install_tool(folder)
        env = {**os.environ, **(payload.get("env") or {})}
        env["PATH"] = str(folder) + os.pathsep + env.get("PATH", os.defpath)
        env["TOOLEXEC_SOCKET"] = broker.path
        code = subprocess.call(["bash", script, *(payload.get("args") or [])], env=env)  # noqa: S603, S607
    finally:
        broker.close()
        shutil.rmtree(folder, ignore_errors=True)
    if code != 0:
        how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
        return {"error": {"kind": "ExitStatus", "message": "the program ended " + how}}
    return {"value": broker.value}


def _syntax_error(script: str, code: str) -> Any:
    """What `bash -n` says about a program, if it says anything."""
    checked = subprocess.run(["bash", "-n", script], stderr=subprocess.PIPE, check=False)  # noqa: S603, S607
    if checked.returncode == 0:
        return None
    said = checked.stderr.decode("utf-8", "replace").replace(script + ": ", "").strip()
    found = re.search(r"line (\d+):", said)
    number = int(found.group(1)) if found else 0
    lines = code.splitlines()
    source = lines[number - 1] if 0 < number <= len(lines) else ""
    return {"kind": "SyntaxError", "message": said[:2000], "line": number, "source": source}


def _install_tool(folder: Path) -> None:
    """Put the command `tool` into *folder*."""
    from . import tool

    loader: Any = tool.__loader__
    program = folder / "tool.py"
    program.write_text(loader.get_source(tool.__name__), "utf-8")
    command = folder / "tool"
    command.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(program))} "$@"\n', "utf-8"
    )
    command.chmod(0o700)


class _UsageError(Exception):
    """The command line makes no sense."""


class _Broker:
    """Answers the commands of a program over a socket, each in a thread of its own."""

    def __init__(self, line: Line, path: str) -> None:
        self.path = path
        self.value: Any = None
        self._line = line
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more commands."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            try:
                request = json.loads(requests.readline())
                answer = {"stdout": self._do(request), "stderr": "", "exit": 0}
            except ToolError as error:
                answer = {"stdout": "", "stderr": json.dumps(_error_data(error)) + "\n", "exit": 1}
            except _UsageError as error:
                answer = {"stdout": "", "stderr": f"tool: {error}\n", "exit": 2}
            except (OSError, ValueError, KeyError, TypeError):
                return
            try:
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return

    def _do(self, request: dict[str, Any]) -> str:
        """What a command prints."""
        argv = [request["stdin"] if word == "-" else word for word in request["argv"]]
        if not argv or argv[0] in ("help", "-h", "--help"):
            return _HELP
        name, words = argv[0], argv[1:]
        if name == "return":
            self.value = words[1] if len(words) == 2 and words[0] == "--text" else _json(words, 0, "the value")
            return ""
        if name not in _COMMANDS:
            raise _UsageError(f"there is no command {name!r}; see tool help")
        kind, payload, shown = _COMMANDS[name](words)
        answer = self._line.ask(kind, payload)
        return json.dumps(_shown(answer, shown), ensure_ascii=False) + "\n"


def _run_tool(words: list[str]) -> tuple[str, Any, str]:
    args = _json(words, 1, "the arguments") if len(words) > 1 else None
    if args is not None and not isinstance(args, dict):
        raise _UsageError("the arguments of a tool are a JSON object")
    return "run_tool", {"id": _word(words, 0, "the ID of a tool"), "args": args}, "structured"


def _run_chain(words: list[str]) -> tuple[str, Any, str]:
    return "run_chain", {"steps": _json(words, 0, "the steps")}, "structured"


def _search(words: list[str]) -> tuple[str, Any, str]:
    return "search_tools", {"query": " ".join(words), "limit": 10}, "results"


def _describe(words: list[str]) -> tuple[str, Any, str]:
    level = words[1] if len(words) > 1 else "full"
    return "describe_tool", {"id": _word(words, 0, "the ID of a tool"), "level": level}, ""


def _examples(words: list[str]) -> tuple[str, Any, str]:
    return "list_tool_examples", {"id": _word(words, 0, "the ID of a tool"), "max": 10}, "examples"


def _namespaces(words: list[str]) -> tuple[str, Any, str]:
    return "list_namespaces", {}, "namespaces"


def _read(words: list[str]) -> tuple[str, Any, str]:
    path = words[1] if len(words) > 1 else ""
    return "read_result", {"handle": _word(words, 0, "a handle"), "path": path}, "structured"


_COMMANDS: dict[str, Callable[[list[str]], tuple[str, Any, str]]] = {
    "run": _run_tool,
    "chain": _run_chain,
    "search": _search,
    "describe": _describe,
    "examples": _examples,
    "namespaces": _namespaces,
    "read": _read,
}


def _word(words: list[str], index: int, what: str) -> str:
    if len(words) <= index:
        raise _UsageError(f"{what} is missing; see tool help")
    return words[index]


def _json(words: list[str], index: int, what: str) -> Any:
    text = _word(words, index, what)
    try:
        return json.loads(text)
    except ValueError as error:
        raise _UsageError(f"{what} must be JSON: {error}") from None


def _shown(answer: dict[str, Any], key: str) -> Any:
    """The part of an answer that a command prints."""
    if not key:
        return answer
    handle = answer.get("handle")
    return {"$handle": handle["id"], **handle} if handle is not None else answer.get(key)


def _error_data(error: ToolError) -> dict[str, Any]:
    data = {"error": error.message, "code": error.code, "retryable": error.retryable}
    fields = (("toolId", error.tool_id), ("op", error.op), ("backend", error.backend), ("details", error.details))
    return {**data, **{key: value for key, value in fields if value}}
