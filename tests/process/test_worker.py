"""The program inside a worker process, looked at from inside."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.waiting import until_blocking

from toolexec.process import worker, workers

pytestmark = pytest.mark.usefixtures("killable")


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Any:
    """Handlers that a test loads are forgotten after it."""
    yield
    worker._load.cache_clear()
    worker._load_script.cache_clear()


def ask(
    function: str,
    *,
    module: str = "killable_handlers",
    typed: bool = False,
    script: str | None = None,
    **args: Any,
) -> dict[str, Any]:
    """The reply to a request."""
    return worker._answer({"module": module, "function": function, "typed": typed, "script": script, "args": args})


def test_a_typed_function_that_is_declared_elsewhere() -> None:
    """A plain function is called by name when it was declared as a tool in another place."""
    assert ask("repeat", typed=True, word="ab", times=2.0) == {"kind": "value", "value": "abab"}


def test_a_value_is_answered() -> None:
    """A typed function and one that takes a mapping are called as they want."""
    assert ask("add", a=1, b=2) == {"kind": "value", "value": 3}
    assert ask("Group.double", number=2) == {"kind": "value", "value": 4}
    assert ask("mirror", point={"x": 1, "y": 2}, colour="blue", when="2026-01-31")["value"] == {"x": 2, "y": 1}


def test_a_reply_in_parts_stays_one() -> None:
    """A ToolReply travels in MCP's spelling."""
    reply = ask("give", what="reply")
    assert reply["kind"] == "reply"
    assert reply["value"]["structuredContent"] == {"ok": True}


def test_a_failure_is_described() -> None:
    """Type, text and the end of the traceback."""
    reply = ask("fail", how="raise")
    assert reply["kind"] == "raised"
    assert reply["value"][:2] == ["ValueError", "no luck"]
    assert reply["value"][2].endswith("ValueError: no luck\n")
    assert ask("fail", how="unreadable")["value"][1] == "(it has no readable text)"
    assert ask("fail", how="SystemExit")["value"][:2] == ["SystemExit", "4"]


def test_a_result_that_is_not_json() -> None:
    """The answer says where."""
    assert ask("give", what="object") == {
        "kind": "invalid",
        "value": "the result is not JSON at /deep/1: function is not a JSON type",
    }


def test_a_typed_result_that_has_no_json_form(monkeypatch: pytest.MonkeyPatch, killable: ModuleType) -> None:
    """A failing conversion of a result is not the handler's exception."""
    finish = killable.mirror.handler.finish

    def lie(_: Any) -> Any:
        return finish(object())

    target = worker._load("killable_handlers", "mirror", False, None)
    monkeypatch.setattr(target, "handler", type(target.handler)(call=lambda _: 1, kind="sync", finish=lie))
    reply = ask("mirror", point={"x": 1, "y": 2}, colour="blue", when="2026-01-31")
    assert reply["kind"] == "invalid"
    assert "object is not a JSON type" in reply["value"]


def test_what_cannot_be_loaded() -> None:
    """That is another matter than a handler that fails."""
    assert ask("nothing")["kind"] == "unloadable"
    assert ask("x", module="no_such_module")["value"][0] == "ModuleNotFoundError"


def test_the_main_script_is_loaded_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs once, does not start the program, and its names can be looked up later."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.delitem(sys.modules, "__toolexec_main__", raising=False)
    script = tmp_path / "program.py"
    script.write_text(
        "import toolexec.process.workers as p\n"
        "loading = p.loading_main\n"
        "def name(args): return [__name__, loading]\n"
        "def again(args): import __main__; return __main__.name({})\n"
        "if __name__ == '__main__': raise SystemExit\n"
    )
    assert ask("name", module="__main__", script=str(script))["value"] == ["__toolexec_main__", True]
    assert ask("again", module="__main__", script=str(script))["value"] == ["__toolexec_main__", True]
    assert workers.loading_main is False
    del sys.modules["__toolexec_main__"]


def test_a_reply_that_is_too_large_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place takes an answer that says so."""
    monkeypatch.setattr(worker, "MAX_FRAME", 100)
    frame = worker._frame({"kind": "value", "value": "x" * 200})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert json.loads(frame[4:]) == {"kind": "invalid", "value": "the result has 230 bytes as JSON, more than 100"}


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record what would have killed us; the thread that wanted it ends."""
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: kills.append((group, number)))
    return kills


@pytest.mark.parametrize("rest", [b"", b"\x00\x00", b"\x00\x00\x00\x09{}"])
def test_when_the_parent_hangs_up_the_group_ends(ended: list[tuple[int, int]], rest: bytes) -> None:
    """Requests are taken in order; after the last one, or in the middle of one, it is over."""
    ours, theirs = socket.socketpair()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    with ours, theirs:
        ours.sendall(b"\x00\x00\x00\x02{}" + rest)
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(SystemExit):
            worker._read(theirs, inbox)
    assert ended == [(0, signal.SIGKILL)]
    assert inbox.get_nowait() == {}
    assert inbox.empty()


def test_a_broken_line_ends_the_group_too(ended: list[tuple[int, int]]) -> None:
    """An error of the socket is as good as its end."""
    ours, theirs = socket.socketpair()
    theirs.close()
    broken = socket.socket()
    with ours, broken, pytest.raises(SystemExit):  # it is not connected
        worker._read(broken, queue.SimpleQueue())
    assert ended == [(0, signal.SIGKILL)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # in place of the process's end
def test_serving_until_the_answer_cannot_be_sent(ended: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop reads, calls and answers; a parent that no longer listens is its end."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(worker, "_take_over_stdin", lambda: theirs)
    monkeypatch.setattr(worker, "_die_with_parent", lambda: None)
    request = {"module": "killable_handlers", "function": "add", "typed": False, "script": None, "args": {"a": 1}}
    body = json.dumps(request).encode()
    serving = threading.Thread(target=worker.main, daemon=True)
    with theirs, ours:
        serving.start()
        ours.sendall(len(body).to_bytes(4, "big") + body)
        size = int.from_bytes(ours.recv(4), "big")
        assert json.loads(ours.recv(size)) == {"kind": "value", "value": 2}
        ours.shutdown(socket.SHUT_RD)
        ours.sendall(len(body).to_bytes(4, "big") + body)
        serving.join()
        assert ended == [(0, signal.SIGKILL)]
    until_blocking(
        lambda: len(ended) >= 2
    )  # the reading thread must not come to its end when the real one is back in place


def test_taking_over_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line moves away from where handlers could touch it; stdout goes where stderr goes."""
    hooks: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda after_in_child: hooks.append(after_in_child))
    kept = [os.dup(number) for number in (0, 1)]
    ours, theirs = socket.socketpair()
    try:
        os.dup2(theirs.fileno(), 0)
        with worker._take_over_stdin() as line, ours, theirs:
            ours.sendall(b"hello")
            assert line.recv(5) == b"hello"
            assert os.read(0, 1) == b""
            assert os.fstat(1).st_ino == os.fstat(2).st_ino
            assert [hook.args for hook in hooks] == [(line.fileno(),)]
    finally:
        for number, copy in enumerate(kept):
            os.dup2(copy, number)
            os.close(copy)


def test_the_system_is_asked_to_end_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a copy of the lifeline, where the system can do that; it may also refuse."""
    asked: list[tuple[Any, ...]] = []

    def fcntl(*request: Any) -> int:
        asked.append(request)
        if len(asked) == 7:
            raise OSError("not here")
        return 0

    names = {"F_SETOWN": 8, "F_SETSIG": 10, "F_SETFL": 4, "F_GETFL": 3}
    monkeypatch.setattr("toolexec.process.child.fcntl", SimpleNamespace(fcntl=fcntl, **names))
    worker._die_with_parent()
    lifeline = asked[0][0]
    assert asked == [
        (lifeline, 8, -os.getpgrp()),
        (lifeline, 10, signal.SIGKILL),
        (lifeline, 3),
        (lifeline, 4, os.O_ASYNC),
    ]
    worker._die_with_parent()
    assert len(asked) == 7
    for copy in {request[0] for request in asked}:
        os.close(copy)
    monkeypatch.setattr("toolexec.process.child.fcntl", SimpleNamespace())
    worker._die_with_parent()


def test_a_descriptor_that_is_closed_already() -> None:
    """A forked child may have closed the line itself."""
    read, write = os.pipe()
    os.close(write)
    worker._close(read)
    worker._close(read)
