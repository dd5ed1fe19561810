"""Using an Exec: results, chains, streams, search, documentation, statuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_type

from toolexec import (
    ChainResult,
    CodeResult,
    Exec,
    Filters,
    InputValidationError,
    MCPServer,
    Options,
    Progress,
    Result,
    Step,
    StreamEvent,
    Summary,
    SyncExec,
    Tool,
    ToolDoc,
    ToolExecError,
    ToolNotFoundError,
)
from toolexec.backend import BackendStatus
from toolexec.discovery import SearchResults
from toolexec.errors import Violation
from toolexec.model import Binding
from toolexec.run import StepResult, TraceEvent


def on_progress(progress: Progress) -> None:
    """A callback for progress."""
    assert_type(progress.done, float)
    assert_type(progress.total, float | None)


def trace(event: TraceEvent) -> None:
    """A hook for traces."""
    assert_type(event.result, Result | None)
    assert_type(event.error, BaseException | None)


async def run() -> None:
    """One tool."""
    async with Exec(default_timeout=5, trace=trace) as ex:
        assert_type(ex, Exec)
        result = await ex.run_tool("math:add", {"a": 1}, timeout=2, on_progress=on_progress)
        assert_type(result, Result)
        assert_type(result.ok, bool)
        assert_type(result.error, ToolExecError | None)
        assert_type(result.duration, float)
        assert_type(result.binding, Binding | None)
        assert_type(result.warnings, Sequence[Violation])
        assert_type(result.content, Sequence[Mapping[str, Any]])
        assert_type(result.raise_for_error(), Result)
        await ex.run_tool("math:add", ["a"])  # pyright: ignore[reportArgumentType]
        await ex.run_tool("math:add", timeout="2")  # pyright: ignore[reportArgumentType]


async def chain(ex: Exec) -> ChainResult:
    """Several tools."""
    steps = [
        Step(tool_id="a", args={"x": 1}, name="first"),
        Step(tool_id="b", args={"y": {"$ref": "first.items[0]"}}, retries=2, timeout=1.5),
        Step(tool_id="c", use_previous=True, stop_on_error=False),
    ]
    result = await ex.run_chain(steps, on_progress=on_progress)
    assert_type(result.steps, list[StepResult])
    assert_type(result.steps[0].skipped, bool)
    Step("a", {"x": 1}, True)  # pyright: ignore[reportCallIssue]
    Step(5)  # pyright: ignore[reportArgumentType]
    await ex.run_chain([{"tool": "a"}, Step("b")])
    Step(tool_id="a", stop=True)  # pyright: ignore[reportCallIssue]
    return result.raise_for_error()


async def stream(ex: Exec) -> None:
    """One tool, piece by piece."""
    async for event in ex.stream_tool("t", fallback=False):
        assert_type(event, StreamEvent)
        if event.kind == "finished":  # pyright: ignore[reportUnnecessaryComparison]
            return


async def find(ex: Exec) -> None:
    """Search and documentation."""
    found = await ex.search_tools("words", 5, filters=Filters(namespace="git", read_only=True, tags=("fast",)))
    assert_type(found, SearchResults)
    assert_type(found[0], Summary)
    doc = await ex.get_tool_doc(found[0].id, "schema")
    assert_type(doc, ToolDoc)
    assert_type(doc.tool, Tool | None)
    await ex.get_tool_doc("t", "everything")  # pyright: ignore[reportArgumentType]


async def servers(ex: Exec) -> None:
    """MCP servers."""
    statuses = await ex.add_mcp("git", command=["mcp-server-git"], env={"A": "b"})
    assert_type(statuses, list[BackendStatus])
    ex.add_mcp("remote", url="http://localhost:8000/mcp", headers={"Authorization": "Bearer x"})
    await ex.remove("git")


def options() -> None:
    """Settings as a value."""
    ex = Exec(Options(default_timeout=None, validate_output="warn"), validate_input=False)
    Options(validate_output="loud")  # pyright: ignore[reportArgumentType]
    Options(security_profile="none")  # pyright: ignore[reportArgumentType]
    MCPServer(name="a", transport="pigeon")  # pyright: ignore[reportArgumentType]
    with ex.sync as blocking:
        assert_type(blocking, SyncExec)
        assert_type(blocking.run_tool("t"), Result)


async def failures(ex: Exec) -> None:
    """Errors carry data."""
    try:
        await ex.run_tool("t")
    except InputValidationError as error:
        assert_type(error.violations, tuple[Violation, ...])
        assert_type(error.violations[0].path, str)
    except ToolNotFoundError as error:
        assert_type(error.tool_id, str | None)
        assert_type(error.to_dict(), dict[str, Any])


async def misspelt_and_mistyped() -> None:
    """Type checkers see the mistakes that the front door refuses at run time."""
    Exec(default_timout=5)  # pyright: ignore[reportCallIssue]
    Exec(enable_code_execution="no")  # pyright: ignore[reportArgumentType]
    ex = Exec()
    ex.reconfigure(trase=None)  # pyright: ignore[reportCallIssue]
    ex.add_mcp("git", command="git-server", conect_timeout=5)  # pyright: ignore[reportCallIssue]
    await ex.execute_code("1", allowed_tool=[])  # pyright: ignore[reportCallIssue]
    await ex.execute_code("1", allowed_tools=[3])  # pyright: ignore[reportArgumentType]
    with ex.sync.session(timeout="5") as session:  # pyright: ignore[reportArgumentType]
        session.execute_code("1", langauge="python")  # pyright: ignore[reportCallIssue]
    assert_type(await ex.execute_code("1", allowed_tools=None, timeout=5), CodeResult)
