"""Audit: every call, chain and run of code is in the log, however it ended."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, tool
from toolexec.backend import ProviderBackend
from toolexec.discovery.index import Registered
from toolexec.errors import AuditError, PolicyError, ToolExecError, ToolNotFoundError
from toolexec.model import ProviderBinding, Tool
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Caller, Origin, acting
from toolexec.run.audit import AuditLog, read_last, verify
from toolexec.run.gate import Gate, GroupRun
from toolexec.run.layers.audit import Audit
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.types import Result

TRACES: list[str] = []


@tool(namespace="t", read_only=True)
async def look(n: int) -> int:
    """Looks."""
    return n


@tool(namespace="t")
async def work(n: int, password: str = "") -> int:
    """Works."""
    TRACES.append("worked")
    return n


@tool(namespace="t")
async def fail() -> None:
    """Fails."""
    raise ValueError("secret of the handler")


@tool(namespace="t")
async def wait() -> None:
    """Waits."""
    await asyncio.Event().wait()


@tool(namespace="t")
async def count() -> AsyncIterator[int]:
    """Counts."""
    yield 1
    yield 2


@tool(namespace="t")
async def broken() -> AsyncIterator[int]:
    """Breaks while it counts."""
    yield 1
    raise ValueError("no")


class Refuse:
    """A policy that forbids whatever ends in what it is given, and one tool breaks it."""

    def wrap(self, inner: Runner, find: Find) -> Runner:
        return Refusing(inner)

    def shows(self, entry: Registered, origin: Origin) -> bool:
        return True


class Refusing:
    def __init__(self, inner: Runner) -> None:
        self.inner = inner

    async def run(self, call: ToolCall) -> Result:
        if (call.args or {}).get("n") == 13:
            raise PolicyError("not with password=hunter2x", details={"rule": "no-13"})
        if (call.args or {}).get("n") == 14:
            raise RuntimeError("a layer broke")
        return await self.inner.run(call)

    async def stream(self, call: ToolCall) -> AsyncIterator[StreamEvent]:
        if (call.args or {}).get("n") == 13:
            raise PolicyError("no", details={"rule": 5})
        async for event in self.inner.stream(call):
            yield event


class Audited:
    """An Exec with an audit log."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.log = AuditLog.open(path, **settings)
        self.audit = Audit(self.log)
        self.ex = Exec(gate=Gate(audit=self.audit, policy=Refuse()))
        for function in (look, work, fail, wait, count, broken):
            self.ex.add(function)

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the written records, without the header."""
        return read_last(self.path, 100)[1:]

    @property
    def last(self) -> dict[str, Any]:
        """The last record."""
        return self.records[-1]


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    """An Exec with an audit log of redacted arguments, which verifies at the end."""
    TRACES.clear()
    made = Audited(tmp_path / "audit.jsonl", args="redacted")
    yield made
    made.log.close()
    asyncio.run(made.ex.aclose())
    report = verify(made.path)
    assert report.ok, report.problems


async def test_a_call_is_logged_with_who_and_what(audited: Audited) -> None:
    """A record says who called what with which arguments, how it ended and how long it took; sessions and secrets are not in it."""
    caller = Caller(id="ann", roles=("dev",), tenant="acme", method="jwt", scopes=("x",))
    with acting(Origin(caller=caller, session="session-1", client="an IDE")):
        await audited.ex.run_tool("t:work", {"n": 5, "password": "hunter2"})
        await audited.ex.run_tool("t:look", {"n": 5})
    start, end, look_end = audited.records
    assert (start["kind"], start["what"], end["kind"]) == ("start", "call", "call")
    for record in (start, end):
        assert record["run_id"] == start["run_id"]
        assert record["caller"] == {"id": "ann", "roles": ["dev"], "tenant": "acme", "method": "jwt"}
        assert (record["tool"], record["backend"], record["binding"]) == ("t:work", "local", "local")
        assert (record["path"], record["client"]) == ("direct", "an IDE")
        assert record["args"] == {"n": 5, "password": "[REDACTED]"}
    assert (end["outcome"], end["duration_ms"] >= 0, "outcome" in start) == ("ok", True, False)
    assert look_end["kind"] == "call"  # a local tool that only reads needs no record before
    assert look_end["session"] == start["session"]
    assert "session-1" not in audited.path.read_text()


async def test_a_remote_tool_is_not_believed_to_be_read_only(audited: Audited) -> None:
    """The beginning of every remote call is written, whatever its server says of it."""
    audited.ex.backends.register(ProviderBackend("far", lambda name, args: "x"))
    remote = Tool.from_mcp({"name": "r", "inputSchema": {}, "annotations": {"readOnlyHint": True}}, namespace="far")
    audited.ex.add(remote, binding=ProviderBinding("far", "r"))
    await audited.ex.run_tool("far:r")
    assert [r["kind"] for r in audited.records] == ["start", "call"]
    assert (audited.last["backend"], audited.last["binding"]) == ("far", "provider")


@pytest.mark.parametrize(
    ("tool_id", "args", "outcome"),
    [
        ("t:fail", {}, "handler_failed"),
        ("t:work", {"n": "x"}, "validation_input"),
        ("t:work", {"n": 13}, "policy_denied"),
        ("t:work", {"n": 14}, "internal"),
        ("t:none", {}, "tool_not_found"),
        ("sk-abcdefghijklmnopqrstuvwxyz", {}, "tool_not_found"),
    ],
)
async def test_every_failure_is_logged(audited: Audited, tool_id: str, args: dict[str, Any], outcome: str) -> None:
    """A call that fails, is wrong or is refused has its error's code, and no secret."""
    try:
        await audited.ex.run_tool(tool_id, args)
    except (ToolExecError, RuntimeError):
        pass
    assert [record["kind"] for record in audited.records] == ["start", "call"]
    assert audited.last["outcome"] == outcome
    assert "secret of the handler" not in audited.path.read_text()
    assert "abcdefghijkl" not in audited.path.read_text()
    if outcome == "policy_denied":
        assert (audited.last["rule"], audited.last["reason"]) == ("no-13", "not with password=[REDACTED]")


async def test_a_cancelled_call_and_one_out_of_time_are_logged(audited: Audited) -> None:
    """Cancellation and time limits are outcomes, too."""
    task = asyncio.create_task(audited.ex.run_tool("t:wait"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert audited.last["outcome"] == "cancelled"
    await audited.ex.run_tool("t:wait", timeout=0.01)
    assert audited.last["outcome"] == "timeout"


async def test_streams_are_logged(audited: Audited) -> None:
    """A stream is logged at its end: finished, failed, refused, left early, or left after its last event."""
    assert [event.kind async for event in audited.ex.stream_tool("t:count")] == ["chunk", "chunk", "done"]
    assert audited.last["outcome"] == "ok"
    assert [event.kind async for event in audited.ex.stream_tool("t:broken")] == ["chunk", "error"]
    assert audited.last["outcome"] == "handler_failed"
    async with aclosing(audited.ex.stream_tool("t:count")) as events:
        await anext(events)
    assert audited.last["outcome"] == "cancelled"
    async with aclosing(audited.ex.stream_tool("t:look", {"n": 1})) as events:
        await anext(events)
    assert audited.last["outcome"] == "ok"
    with pytest.raises(PolicyError):
        await anext(audited.ex.stream_tool("t:work", {"n": 13}))
    assert audited.last["outcome"] == "policy_denied"
    assert "rule" not in audited.last


async def test_chains_are_logged_with_their_calls(audited: Audited) -> None:
    """A chain has a record of its own, and its calls name it as their parent."""
    await audited.ex.run_chain([{"tool": "t:look", "args": {"n": 1}}, {"tool": "t:fail"}])
    start, first, _, second, end = audited.records
    assert (start["kind"], start["what"], end["kind"]) == ("start", "chain", "chain")
    assert start["run_id"] == end["run_id"] == first["parent"] == second["parent"]
    assert (first["path"], end["path"]) == ("chain", "direct")
    assert end["details"] == {"steps": 2}
    assert end["outcome"] == "handler_failed"


async def test_code_is_logged_by_its_digest(audited: Audited) -> None:
    """A run of code has a record with its language, size and digest, not its text."""
    end = audited.audit.begin(
        GroupRun(kind="code", run_id="r1", origin=Origin(), details={"language": "python", "bytes": 5, "sha256": "ab"})
    )
    end(None)
    assert (audited.last["kind"], audited.last["run_id"], audited.last["outcome"]) == ("code", "r1", "ok")
    assert audited.last["details"] == {"language": "python", "bytes": 5, "sha256": "ab"}
    audited.audit.begin(GroupRun(kind="chain", run_id="r2", origin=Origin()))(asyncio.CancelledError())
    assert (audited.last["outcome"], "details" in audited.last) == ("cancelled", False)


async def test_what_cannot_be_logged_is_not_done(audited: Audited) -> None:
    """With a log that cannot be written no call is made, and no chain begun."""
    audited.log.close()
    with pytest.raises(AuditError) as caught:
        await audited.ex.run_tool("t:work", {"n": 1})
    assert caught.value.tool_id == "t:work"
    with pytest.raises(AuditError):
        await audited.ex.run_chain([{"tool": "t:work", "args": {"n": 1}}])
    with pytest.raises(AuditError):
        await anext(audited.ex.stream_tool("t:work", {"n": 1}))
    assert TRACES == []


async def test_the_result_of_what_was_done_is_not_lost(
    audited: Audited, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When only the end cannot be written, the result comes all the same; then nothing runs until it is written."""
    real = audited.log._append
    fails = True

    def append(body: str, moment: str = "") -> None:
        if fails and '"kind":"call"' in body:
            raise AuditError("the disk is full")
        real(body, moment)

    monkeypatch.setattr(audited.log, "_append", append)
    assert (await audited.ex.run_tool("t:work", {"n": 7})).value == 7
    assert "could not be logged" in caplog.text
    for tool_id in ("t:work", "t:look"):
        with pytest.raises(AuditError):
            await audited.ex.run_tool(tool_id, {"n": 1})
    fails = False
    assert (await audited.ex.run_tool("t:look", {"n": 1})).value == 1
    assert [r["kind"] for r in audited.records] == ["start", "call", "call"]
    assert TRACES == ["worked"]


async def test_a_tool_that_is_replaced_is_logged_as_it_is_now(audited: Audited) -> None:
    """Cached tools and origins do not outlive their objects, however many there are."""
    audited.audit._origins = {(number,): "" for number in range(10_000)}
    for schema in ({"properties": {"pin": {"type": "string"}}}, {"properties": {"pin": {"writeOnly": True}}}):
        audited.ex.index.replace(*_local(schema))
        audited.ex.local.register("t:pin", lambda args: None)
        await audited.ex.run_tool("t:pin", {"pin": "1234"})
    assert [r["args"]["pin"] for r in audited.records] == ["1234", "1234", "[REDACTED]", "[REDACTED]"]
    assert len(audited.audit._origins) == 1
    with pytest.raises(ToolNotFoundError):
        await audited.ex.run_tool("t:gone")


async def test_the_origin_of_a_call_is_not_kept(audited: Audited) -> None:
    """Free what a served call knows of its request once the call is over; its records name caller and session."""

    class Request:
        def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
            return "no"

    kept: list[weakref.ref[Request]] = []
    for name in ("ann", "bob", "ann"):
        request = Request()
        kept.append(weakref.ref(request))
        with acting(Origin(caller=Caller(id=name, method="api_key"), session="s1", ask=request)):
            await audited.ex.run_tool("t:work", {"n": 1})
        del request
    gc.collect()
    assert [reference() for reference in kept] == [None, None, None]
    calls = [record for record in audited.records if record["kind"] == "call"]
    assert [record["caller"]["id"] for record in calls] == ["ann", "bob", "ann"]
    assert len({record["session"] for record in calls}) == 1


def _local(schema: dict[str, Any]) -> tuple[Tool, Any]:
    from toolexec.model import LocalBinding

    return Tool(name="pin", namespace="t", input_schema={"type": "object", **schema}), LocalBinding("t:pin")
