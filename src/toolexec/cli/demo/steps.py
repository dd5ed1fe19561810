"""The steps of the demo; each is what it shows, next to the Python line that does the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import aclosing
from time import perf_counter
from typing import Any, Final

from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from toolexec.cli.demo.code_step import PROGRAM, code
from toolexec.cli.demo.stage import Outcome, Stage, Step
from toolexec.cli.demo.tools import TOOLS
from toolexec.cli.manual import manual
from toolexec.cli.tables import backends_table, chain_table, duration_text, plain_table, search_table, value_text
from toolexec.cli.terminal import error_body
from toolexec.errors import BackendUnavailableError, InputValidationError
from toolexec.exec import Step as ChainStep
from toolexec.model.visible import visible_line

_LOCAL_CALLS: Final = 1000
_REMOTE_CALLS: Final = 100


async def connect(stage: Stage) -> Outcome:
    """Add the servers and the functions, start, and show how everything is."""
    root = stage.repository.root
    python = (sys.executable, "-P", "-m")  # -P: a mcp.py or git.py in the repository must not be imported
    stage.ex.add_mcp("git", command=(*python, "mcp_server_git", "--repository", "."), cwd=root, connect_timeout=120)
    stage.ex.add_mcp("time", command=(*python, "mcp_server_time"), cwd=root, connect_timeout=120)
    for function in TOOLS:
        stage.ex.add(function)
    began = perf_counter()
    await stage.ex.start()
    took = perf_counter() - began
    statuses = stage.ex.backend_statuses()
    for status in statuses:
        if not status.available:
            raise BackendUnavailableError(f"the demo's server {status.name} is unavailable: {status.reason}")
    data = {"backends": [status.to_dict() for status in statuses]}
    total = sum(status.tools for status in statuses)
    note = Text(f"{total} tools from {len(statuses)} backends, connected in {duration_text(took)}", style="dim")
    return Outcome(data, (backends_table(statuses), note))


async def search(stage: Stage) -> Outcome:
    """Find tools by words."""
    began = perf_counter()
    found = await stage.ex.search_tools("commit history", limit=8)
    took = perf_counter() - began
    note = Text(f"ranked in {duration_text(took)}", style="dim")
    return Outcome({"tools": [summary.to_dict() for summary in found]}, (search_table(found), note))


async def describe(stage: Stage) -> Outcome:
    """Read a tool's documentation."""
    doc = await stage.ex.get_tool_doc("git:git_log")
    return Outcome(doc.to_dict(), (manual(doc),))


async def run(stage: Stage) -> Outcome:
    """Run one tool."""
    result = await stage.ex.run_tool("git:git_log", {"repo_path": ".", "max_count": 2})
    result.raise_for_error()
    note = Text(f"✓ {result.tool_id} · mcp git · {duration_text(result.duration)}", style="dim")
    text = value_text(result.value)
    text.plain = "\n".join(line for line in text.plain.splitlines() if line.strip())
    return Outcome(result.to_dict(), (text, note))


async def chain(stage: Stage) -> Outcome:
    """Run three tools, each fed by the one before."""
    result = await stage.ex.run_chain(
        [
            ChainStep(tool_id="git:git_log", args={"repo_path": ".", "max_count": 200}, name="log"),
            ChainStep(tool_id="demo:summarise_commits", args={"log": {"$ref": "log"}}),
            ChainStep(tool_id="demo:bar_chart", use_previous=True),
        ]
    )
    result.raise_for_error()
    return Outcome(result.to_dict(), (chain_table(result), Text(), value_text(result.value)))


async def stream(stage: Stage) -> Outcome:
    """Run a tool that says how far it is."""
    reports, value = 0, None
    columns: Any = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns, TextColumn("files"), TimeElapsedColumn(), console=stage.screen.out, disable=stage.screen.as_json
    )
    with bar:
        task = bar.add_task("  counting lines", total=None)
        async with aclosing(
            stage.ex.stream_tool("demo:count_lines", {"directory": str(stage.repository.root)})
        ) as events:
            async for event in events:
                if event.error is not None:
                    raise event.error
                if event.kind == "progress":
                    reports += 1
                    bar.update(task, completed=event.data["progress"], total=event.data["total"])
                else:
                    value = event.data
    note = Text(f"{reports:,} progress events, then the value", style="dim")
    return Outcome({"progressEvents": reports, "value": value}, (Text(), _file_types(value), note))


def _file_types(rows: Any) -> Table:
    table = plain_table(("Type", {}), ("Files", {"justify": "right"}), ("Lines", {"justify": "right"}), ("", {}))
    most = max((row["lines"] for row in rows), default=0) or 1
    for row in rows[:6]:
        bar = Text("█" * round(30 * row["lines"] / most), style="cyan")
        table.add_row(Text(visible_line(row["type"], 30)), f"{row['files']:,}", f"{row['lines']:,}", bar)
    return table


async def refuse(stage: Stage) -> Outcome:
    """Call a tool the wrong way."""
    try:
        await stage.ex.run_tool("demo:bar_chart", {"titel": "Q1", "counts": {"May": "x"}})
    except InputValidationError as error:
        panel = Panel(error_body(error), title=Text("InputValidationError"), title_align="left", border_style="red")
        note = Text("Nothing has run; a model can repair its call from this at once.", style="dim")
        return Outcome({"error": error.to_dict()}, (panel, note))
    raise AssertionError("a wrong call went through")


async def measure(stage: Stage) -> Outcome:
    """Time many calls, arguments and results checked as always."""
    local = await _time(stage, "demo:double", {"n": 21}, _LOCAL_CALLS)
    remote = await _time(stage, "time:get_current_time", {"timezone": "UTC"}, _REMOTE_CALLS)
    table = plain_table(
        ("Tool", {}),
        ("Calls", {"justify": "right"}),
        ("Total", {"justify": "right"}),
        ("Per call", {"justify": "right"}),
    )
    rows = {"demo:double": (_LOCAL_CALLS, local), "time:get_current_time": (_REMOTE_CALLS, remote)}
    for name, (calls, seconds) in rows.items():
        each = Text(duration_text(seconds / calls), style="bold")
        table.add_row(Text(name, style="cyan"), f"{calls:,}", duration_text(seconds), each)
    data = {name: {"calls": n, "perCallUs": round(seconds / n * 1e6, 2)} for name, (n, seconds) in rows.items()}
    note = Text("A Python function here, an MCP server's tool over a pipe there; both with all checks.", style="dim")
    return Outcome(data, (table, note))


async def _time(stage: Stage, tool_id: str, args: Mapping[str, object], calls: int) -> float:
    """Return the seconds that *calls* calls take, one after the other."""
    (await stage.ex.run_tool(tool_id, args)).raise_for_error()
    began = perf_counter()
    for _ in range(calls):
        await stage.ex.run_tool(tool_id, args)
    return perf_counter() - began


_CODE: Final = {
    "connect": """
ex.add_mcp("git", command="python -m mcp_server_git --repository .")
ex.add_mcp("time", command="python -m mcp_server_time")
ex.add(summarise_commits)  # and three more Python functions
await ex.start()""",
    "chain": """
await ex.run_chain([
    Step(tool_id="git:git_log", name="log",
         args={"repo_path": ".", "max_count": 200}),
    Step(tool_id="demo:summarise_commits", args={"log": {"$ref": "log"}}),
    Step(tool_id="demo:bar_chart", use_previous=True),
])""",
    "stream": """
async for event in ex.stream_tool("demo:count_lines", {"directory": "."}):
    ...  # progress, progress, ..., done""",
    "measure": """
for _ in range(1000):
    await ex.run_tool("demo:double", {"n": 21})""",
}

STEPS: Final[tuple[tuple[str, str, Step], ...]] = (
    ("Connect", _CODE["connect"].strip(), connect),
    ("Search", 'await ex.search_tools("commit history", limit=8)', search),
    ("Describe", 'await ex.get_tool_doc("git:git_log")', describe),
    ("Run", 'await ex.run_tool("git:git_log", {"repo_path": ".", "max_count": 2})', run),
    ("Chain", _CODE["chain"].strip(), chain),
    ("Stream", _CODE["stream"].strip(), stream),
    ("Code: many calls, one value", f"await ex.execute_code('''\n{PROGRAM}\n''')", code),
    ("A wrong call", 'await ex.run_tool("demo:bar_chart", {"titel": "Q1", "counts": {"May": "x"}})', refuse),
    ("A thousand calls", _CODE["measure"].strip(), measure),
)
"""Title, equivalent Python code, and what to do."""
