"""Runs bash programs for the host, and answers their command `tool`."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - signal takes longer to import
import _socket
import _thread
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ..python.errors import ToolError
from ..python.stream import Line, end_group, move_descriptors, say_hello, set_stdin
from ..python.values import from_text, to_text
from .tool import short_path

_HELP = """\
tool run ID [ARGS]            call a tool; ARGS is a JSON object, or - to read it from stdin; prints the result as JSON
tool search WORD...           the best tools for the words, as JSON
tool describe ID [LEVEL]      what there is to know about a tool: summary, schema or full
tool examples ID              example arguments of a tool
tool namespaces               the namespaces of all tools
tool chain STEPS              a JSON list of {"toolId", "args", "usePrevious"}; prints the last result
tool read HANDLE [PATH]       a part of a result that is too large for a sandbox; HANDLE is what a call has printed in
                              its place, or only the text after "$handle" in that; PATH is a JMESPath
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
            line.send("result", message["id"], to_text(run_program(line, message.get("payload") or {}, os.getcwd())))  # noqa: PTH109


def run_program(line: Line, payload: dict[str, Any], home: str) -> dict[str, Any]:
    """Return the payload of the `result` message; what is needed meanwhile is in a directory below *home*.

    Raises OSError when the disk is full, or when there are too many processes.
    """
    set_stdin(payload.get("stdin"))
    directory = home + "/.toolexec-" + os.urandom(6).hex()
    os.mkdir(directory, 0o700)  # noqa: PTH102 - pathlib takes long to import
    try:
        return _run_in(directory, line, payload)
    finally:
        _remove(directory)


def _run_in(directory: str, line: Line, payload: dict[str, Any]) -> dict[str, Any]:
    script = directory + "/program"
    _write(script, (payload.get("code") or "").encode("utf-8", "replace"))
    problem = _syntax_error(directory, script, payload.get("code") or "")
    if problem is not None:
        return {"error": problem}
    env = {**os.environ, **(payload.get("env") or {})}
    _install_tool(directory, env)
    broker = _Broker(line, directory + "/tools")
    try:
        env["TOOLEXEC_SOCKET"] = broker.path
        code = _wait(_spawn(["bash", script, *(payload.get("args") or [])], env))
    finally:
        broker.close()
    if code != 0:
        how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
        return {"error": {"kind": "ExitStatus", "message": "the program ended " + how}}
    return {"value": broker.value}


def _write(path: str, data: bytes, mode: int = 0o600) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def _spawn(command: list[str], env: Any, actions: Any = ()) -> int:
    default = [_signal.SIGPIPE, _signal.SIGXFSZ]  # Python ignores them, and children would, too
    return os.posix_spawnp(command[0], command, env, file_actions=actions, setsigdef=default)


def _wait(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _remove(directory: str) -> None:
    """Delete a directory of ours; a program may have put things into it."""
    try:
        for name in os.listdir(directory):  # noqa: PTH208
            os.unlink(directory + "/" + name)  # noqa: PTH108
        os.rmdir(directory)  # noqa: PTH106
    except OSError:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)


def _syntax_error(directory: str, script: str, code: str) -> Any:
    """What `bash -n` says about a program, if it says anything."""
    said_in = directory + "/said"
    told = (os.POSIX_SPAWN_OPEN, 2, said_in, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    if _wait(_spawn(["bash", "-n", script], os.environ, [told])) == 0:
        return None
    import re

    with open(said_in, "rb") as file:  # noqa: PTH123
        said = file.read().decode("utf-8", "replace").replace(script + ": ", "").strip()
    found = re.search(r"line (\d+):", said)
    number = int(found.group(1)) if found else 0
    lines = code.splitlines()
    source = lines[number - 1] if 0 < number <= len(lines) else ""
    return {"kind": "SyntaxError", "message": said[:2000], "line": number, "source": source}


def _install_tool(directory: str, env: dict[str, str]) -> None:
    """Put the command `tool` into *directory*, and on the PATH."""
    from . import tool

    loader: Any = tool.__loader__
    program = directory + "/tool.py"
    _write(program, loader.get_source(tool.__name__).encode())
    command = f'{_quoted(sys.executable)} -I -S {_quoted(program)} "$@"'
    _write(directory + "/tool", f"#!/bin/sh\nexec {command}\n".encode(), 0o700)
    env["PATH"] = directory + os.pathsep + env.get("PATH", os.defpath)
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:  # then it cannot be run as a file
        env["BASH_FUNC_tool%%"] = "() { " + command + "; }"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


class _UsageError(Exception):
    """The command line makes no sense."""


class _Broker:
    """Answers the commands of a program over a socket, each in a thread of its own."""

    def __init__(self, line: Line, path: str) -> None:
        self.path = path
        self.value: Any = None
        self._line = line
        self._closed = False
        self._socket = _socket.socket(_socket.AF_UNIX)
        address = short_path(path)
        self._socket.bind(address)
        if address != path:
            os.close(int(address.split("/")[4]))
        self._socket.listen(64)
        _thread.start_new_thread(self._accept, ())

    def close(self) -> None:
        """Take no more commands."""
        self._closed = True
        try:
            self._socket.shutdown(_socket.SHUT_RDWR)  # which wakes the one who waits for commands
        except OSError:  # not every kernel can: then that one waits until this process ends
            pass
        self._socket.close()

    def _accept(self) -> None:
        accept: Any = self._socket._accept  # type: ignore[attr-defined] # noqa: SLF001 - as socket.socket.accept does
        while not self._closed:
            try:
                descriptor, _ = accept()
            except OSError:  # it was closed, or there is no descriptor left for now
                time.sleep(0.01)
                continue
            connection = _socket.socket(fileno=descriptor)
            try:
                _thread.start_new_thread(self._answer, (connection,))
            except RuntimeError:  # there are as many threads as there may be
                self._answer(connection)

    def _answer(self, connection: Any) -> None:
        try:
            connection.settimeout(None)
            answer = self._answer_to(_line_of(connection))
            if answer is not None:
                connection.sendall(to_text(answer).encode() + b"\n")
        except (OSError, ValueError, KeyError, TypeError, StopIteration):  # it makes no sense, or is gone
            pass
        finally:
            connection.close()

    def _answer_to(self, text: str) -> Any:
        try:
            return {"stdout": self._do(from_text(text)), "stderr": "", "exit": 0}
        except ToolError as error:
            return {"stdout": "", "stderr": to_text(_error_data(error)) + "\n", "exit": 1}
        except _UsageError as error:
            return {"stdout": "", "stderr": f"tool: {error}\n", "exit": 2}

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
        import json

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
    handle = _word(words, 0, "a handle")
    if handle.startswith("{"):
        handle = _json(words, 0, "a handle").get("$handle")
        if not isinstance(handle, str):
            raise _UsageError('a handle is the text after "$handle" in what a call has printed, or all of that')
    return "read_result", {"handle": handle, "path": path}, "structured"


_COMMANDS: dict[str, Callable[[list[str]], tuple[str, Any, str]]] = {
    "run": _run_tool,
    "chain": _run_chain,
    "search": _search,
    "describe": _describe,
    "examples": _examples,
    "namespaces": _namespaces,
    "read": _read,
}


def _line_of(connection: Any) -> str:
    parts = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = connection.recv(1 << 16)
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def _word(words: list[str], index: int, what: str) -> str:
    if len(words) <= index:
        raise _UsageError(f"{what} is missing; see tool help")
    return words[index]


def _json(words: list[str], index: int, what: str) -> Any:
    import json

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
    if handle is None:
        return answer.get(key)
    return {"$handle": handle["id"], **{name: said for name, said in handle.items() if name != "id"}}


def _error_data(error: ToolError) -> dict[str, Any]:
    data = {"error": error.message, "code": error.code, "retryable": error.retryable}
    fields = (("toolId", error.tool_id), ("op", error.op), ("backend", error.backend), ("details", error.details))
    return {**data, **{key: value for key, value in fields if value}}
