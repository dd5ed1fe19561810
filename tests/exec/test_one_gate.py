"""One policy table, on every path to a tool: the verdicts and the error codes are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.backend import ProviderBackend
from toolexec.errors import ToolExecError, ToolNotFoundError
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Approver, Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy, Rule

ANY = {"type": "object"}
READS = ToolAnnotations(read_only=True)
WRITES = ToolAnnotations(destructive=False)
DESTROYS = ToolAnnotations(destructive=True)

POLICY = Policy(
    [
        Rule("deny", tools="files:delete_*"),
        Rule("deny", namespaces="secret"),
        Rule("deny", tags="Old Ways"),
        Rule("deny", open_world=True, idempotent=True),
        Rule("deny", backends="provider:banned"),
        Rule("deny", tools="files:audit", callers="guest-*"),
        Rule("deny", tools="files:write", when={"path": {"glob": "/etc/*"}}),
        Rule("ask", tools="files:publish"),
        Rule("ask", tools="mail:send", when={"to": {"not": "me@example.org"}}),
        Rule("allow", tools="shop:refund"),
        Rule("deny", tools="files:old:1.*"),
        Rule("allow", roles="admin"),
    ],
    default="allow",
)


def _says(answer: str) -> Approver:
    def ask(request: ApprovalRequest) -> ApprovalAnswer:
        return answer  # type: ignore[return-value]

    return ask


def _breaks(request: ApprovalRequest) -> ApprovalAnswer:
    raise RuntimeError("nobody home")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A call, and what must become of it: an error's code, or nothing when it is made; and whether it can be known."""

    tool: str
    code: str = ""
    args: Mapping[str, Any] = field(default_factory=dict[str, Any])
    caller: str = "ann"
    roles: tuple[str, ...] = ()
    ask: Approver | None = None
    shown: bool = True

    @property
    def origin(self) -> Origin:
        return Origin(caller=Caller(id=self.caller, roles=self.roles), session="s", ask=self.ask)


DENIED, REQUIRED, REFUSED = "policy_denied", "approval_required", "approval_denied"
TABLE = {
    "nothing matches": Row(tool="files:read"),
    "denied by ID": Row(tool="files:delete_all", code=DENIED, shown=False),
    "denied by ID, and a role does not help": Row(tool="files:delete_all", roles=("admin",), code=DENIED, shown=False),
    "denied by namespace": Row(tool="secret:look", code=DENIED, shown=False),
    "denied by tag": Row(tool="files:tagged", code=DENIED, shown=False),
    "denied by annotations": Row(tool="files:hinted", code=DENIED, shown=False),
    "denied by backend": Row(tool="banned:peek", code=DENIED, shown=False),
    "denied by caller": Row(tool="files:audit", caller="guest-7", code=DENIED, shown=False),
    "another caller": Row(tool="files:audit"),
    "denied by arguments": Row(tool="files:write", args={"path": "/etc/passwd"}, code=DENIED),
    "denied by arguments in disguise": Row(tool="files:write", args={"path": "/srv/../etc/passwd"}, code=DENIED),
    "denied by arguments of another type": Row(tool="files:write", args={"path": ["/srv/a", "/etc/b"]}, code=DENIED),
    "other arguments": Row(tool="files:write", args={"path": "/srv/a"}),
    "approved": Row(tool="files:publish", ask=_says("once")),
    "not approved": Row(tool="files:publish", ask=_says("no"), code=REFUSED),
    "answered with nonsense": Row(tool="files:publish", ask=_says("sure"), code=REFUSED),
    "asking fails": Row(tool="files:publish", ask=_breaks, code=REFUSED),
    "nobody to ask": Row(tool="files:publish", code=REQUIRED),
    "asked for some arguments": Row(tool="mail:send", args={"to": "you@example.org"}, code=REQUIRED),
    "not asked for others": Row(tool="mail:send", args={"to": "me@example.org"}),
    "remote and destructive": Row(tool="shop:wipe", code=REQUIRED),
    "remote and destructive, allowed to a role only": Row(tool="shop:wipe", roles=("admin",), code=REQUIRED),
    "remote and destructive, approved": Row(tool="shop:wipe", ask=_says("once")),
    "remote, says nothing": Row(tool="shop:unsaid", code=REQUIRED),
    "remote, reads": Row(tool="shop:list"),
    "remote and destructive, allowed by ID": Row(tool="shop:refund"),
    "local and destructive": Row(tool="files:shred"),
    "a version by its own ID": Row(tool="files:old:1.0.0", code=DENIED, shown=False),
    "a version by the ID of all": Row(tool="files:old", code=DENIED, shown=False),
}


def build(calls: list[str]) -> Exec:
    """An Exec with all tools of the table, behind the policy; *calls* notes what is run."""

    async def at_home(args: dict[str, Any]) -> str:
        calls.append("local")
        return "done"

    async def remote(name: str, args: Mapping[str, Any]) -> str:
        calls.append(name)
        return "done"

    ex = Exec(gate=Gate(policy=POLICY, approval=Approval(POLICY.decide)))
    for namespace, name, hints, tags, version in (
        ("files", "read", READS, (), ""),
        ("files", "delete_all", WRITES, (), ""),
        ("files", "tagged", WRITES, ("old-ways",), ""),
        ("files", "hinted", ToolAnnotations(idempotent=True), (), ""),
        ("files", "audit", READS, (), ""),
        ("files", "write", WRITES, (), ""),
        ("files", "publish", WRITES, (), ""),
        ("files", "shred", DESTROYS, (), ""),
        ("files", "old", WRITES, (), "1.0.0"),
        ("secret", "look", READS, (), ""),
        ("mail", "send", WRITES, (), ""),
    ):
        tool = Tool(name=name, namespace=namespace, version=version, annotations=hints, tags=tags, input_schema=ANY)
        ex.add(tool, handler=at_home)
    shop = [("wipe", DESTROYS), ("unsaid", None), ("list", READS), ("refund", DESTROYS)]
    for provider, tools in (("shop", shop), ("banned", [("peek", READS)])):
        offered = [Tool(name=name, namespace=provider, annotations=hints, input_schema=ANY) for name, hints in tools]
        ex.add_backends(ProviderBackend(provider, remote, tools=offered))
    return ex


@pytest.fixture
async def counted() -> AsyncIterator[tuple[Exec, list[str]]]:
    """The Exec, started, and what was run so far."""
    calls: list[str] = []
    async with build(calls) as ex:
        yield ex, calls


async def direct(ex: Exec, row: Row) -> str:
    """`run_tool`."""
    (await ex.run_tool(row.tool, row.args)).raise_for_error()
    return ""


async def streamed(ex: Exec, row: Row) -> str:
    """`stream_tool`."""
    events = [event async for event in ex.stream_tool(row.tool, row.args)]
    return "" if events[-1].kind == "done" else events[-1].data["code"]


async def chained(ex: Exec, row: Row) -> str:
    """`run_chain`."""
    result = await ex.run_chain([{"tool": "files:read"}, {"tool": row.tool, "args": row.args}])
    return "" if result.ok else result.error.code  # type: ignore[union-attr]


async def retried(ex: Exec, row: Row) -> str:
    """A step of a chain that may fail."""
    result = await ex.run_chain([{"tool": row.tool, "args": row.args, "stop_on_error": False}])
    return result.steps[0].error.code if result.steps[0].error else ""


PATHS: list[Callable[[Exec, Row], Awaitable[str]]] = [direct, streamed, chained, retried]


async def outcome(path: Callable[[Exec, Row], Awaitable[str]], ex: Exec, row: Row) -> str:
    """The code of what a call ends with."""
    try:
        with acting(row.origin):
            return await path(ex, row)
    except ToolExecError as error:
        return error.code


EXPECTED = {name: row.code for name, row in TABLE.items()}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_calls(counted: tuple[Exec, list[str]], path: Callable[[Exec, Row], Awaitable[str]]) -> None:
    """Single calls, streams and chains: the verdict is that of the table, and a refused call has not run."""
    ex, calls = counted
    found: dict[str, str] = {}
    for name, row in TABLE.items():
        before = len(calls)
        found[name] = await outcome(path, ex, row)
        ran = len(calls) - before - (path is chained)
        assert ran == (not row.code), f"{name}: {ran} calls"
    assert found == EXPECTED


SNIPPET = """
codes = {{}}
for name, tool, args in {calls}:
    try:
        tools.{how}
        codes[name] = ""
    except ToolError as error:
        codes[name] = error.code
codes
"""


@pytest.mark.parametrize("how", ["run(tool, args)", 'run_chain([{"tool_id": tool, "args": args}])'])
async def test_code(counted: tuple[Exec, list[str]], how: str) -> None:
    """Code in the sandbox, its own chains included: the verdicts are the same."""
    ex, calls = counted
    found: dict[str, str] = {}
    for name, row in TABLE.items():
        listed = [[name, row.tool, dict(row.args)]]
        with acting(row.origin):
            result = await ex.execute_code(SNIPPET.format(calls=json.dumps(listed), how=how))
        assert result.error is None
        found |= result.value
    assert found == EXPECTED
    assert len(calls) == sum(not row.code for row in TABLE.values())


def test_blocking() -> None:
    """The blocking twin: the verdicts are the same."""
    calls: list[str] = []
    found: dict[str, str] = {}
    with build(calls).sync as ex:
        for name, row in TABLE.items():
            try:
                with acting(row.origin):
                    ex.run_tool(row.tool, row.args).raise_for_error()
                found[name] = ""
            except ToolExecError as error:
                found[name] = error.code
    assert found == EXPECTED


async def test_what_can_be_known(counted: tuple[Exec, list[str]]) -> None:
    """Search, lists, namespaces and descriptions show exactly the tools that some arguments may let the caller call."""
    ex, _ = counted
    for name, row in TABLE.items():
        with acting(row.origin):
            index, docs = ex.visible()
            full = row.tool if row.tool != "files:old" else "files:old:1.0.0"
            name_only = full.split(":")[1]
            seen = {
                "search": full in {found.id for found in await ex.search_tools(name_only, 50)},
                "list": full in {entry.tool.id for entry in index.tools()},
                "find": index.find(row.tool) is not None,
                "namespace": full.split(":")[0] in index.namespaces(),
            }
            if full.split(":")[0] == "files":
                del seen["namespace"]  # others of it are shown
            try:
                seen["describe"] = docs.describe(row.tool, "summary").id == full
            except ToolNotFoundError:
                seen["describe"] = False
        assert seen == dict.fromkeys(seen, row.shown), name


async def test_code_sees_what_its_caller_sees(counted: tuple[Exec, list[str]]) -> None:
    """Code finds no hidden tool, by search or by list."""
    ex, _ = counted
    code = '[[t["id"] for t in tools.search("", 100)], [t["id"] for t in tools.search("files", 100)], tools.list_namespaces()]'
    with acting(Origin(caller=Caller(id="guest-7"))):
        result = await ex.execute_code(code)
    assert result.error is None
    found, listed, namespaces = result.value
    hidden = {row.tool for row in TABLE.values() if not row.shown} | {"files:old:1.0.0"}
    assert hidden.isdisjoint(found)
    assert hidden.isdisjoint(listed)
    assert namespaces == ["files", "mail", "shop"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_a_misspelt_hidden_tool_is_not_suggested(
    counted: tuple[Exec, list[str]], path: Callable[[Exec, Row], Awaitable[str]]
) -> None:
    """The error about a tool that there is not suggests others, but no hidden one."""
    ex, _ = counted
    for misspelt, close in (("secret:loo", set()), ("files:delete_al", {"files:read", "files:write"})):
        error: ToolExecError | None = None
        with acting(Origin(caller=Caller(id="ann"))):
            if path in (chained, retried):
                error = (await ex.run_chain([{"tool": misspelt}])).error
            else:
                with pytest.raises(ToolNotFoundError) as caught:
                    await path(ex, Row(tool=misspelt))
                error = caught.value
        assert isinstance(error, ToolNotFoundError)
        assert set(error.details["close"]) <= close
        assert not any(hidden in str(error) for hidden in ("files:delete_all", "secret:look"))


async def test_all_at_once(counted: tuple[Exec, list[str]]) -> None:
    """Calls of many callers at the same time do not mix up."""
    ex, _ = counted
    rows = list(TABLE.items()) * 20
    found = await asyncio.gather(*(asyncio.create_task(outcome(direct, ex, row)) for _, row in rows))
    assert [(name, code) for (name, _), code in zip(rows, found, strict=True)] == [(n, r.code) for n, r in rows]


async def test_code_by_attributes(counted: tuple[Exec, list[str]]) -> None:
    """To code that names tools by attributes, a hidden one is refused or not there; none of them is run."""
    ex, calls = counted
    found: dict[str, str] = {}
    for name, row in TABLE.items():
        how = f"{row.tool.replace(':', '.').replace('.1.0.0', '')}(**args)"
        with acting(row.origin):
            result = await ex.execute_code(
                SNIPPET.format(calls=json.dumps([[name, row.tool, dict(row.args)]]), how=how)
            )
        assert result.error is None
        found |= result.value
    for name, row in TABLE.items():
        assert found[name] in ({row.code} if row.shown else {row.code, "tool_not_found"}), name
    assert len(calls) == sum(not row.code for row in TABLE.values())
