"""The table on the terminal, and the page for the documentation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figure, Outcome
from benchmarks.machine import describe_load, describe_machine, describe_versions
from benchmarks.rows import GROUPS, NAMES, TIMES, Row, show
from benchmarks.sandbox_rows import SANDBOX_GROUPS, SANDBOX_NAMES
from benchmarks.search_rows import SEARCH_GROUPS, SEARCH_NAMES
from benchmarks.seen import seen

__all__ = ["print_table", "write_page"]

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
TEMPLATE = Path(__file__).with_name("page.md")
HEADINGS = ("What", "Median", "Lowest", "Bar", "Verdict", "Beside it")
WAYS = {"cpu": "CPU", "paused": "After a pause", "at_once": "At once"}
"""The columns that only those tables have that it was measured for: what is behind the `@` of a figure's key."""
ALL_GROUPS = GROUPS | SEARCH_GROUPS | SANDBOX_GROUPS
ALL_NAMES = NAMES | SEARCH_NAMES | SANDBOX_NAMES
_SHORT = {"cpu": "CPU", "paused": "paused", "at_once": "at once"}
_PEERS = ("fastmcp", "pydantic-ai-slim", "langchain-core", "bm25s", "tantivy")


def print_table(outcome: Outcome) -> None:
    """Show the rows that were measured, and what could not be."""
    console = Console()
    console.width = max(console.width, 150)
    table = Table(*_headings(WAYS), title=describe_machine(), title_justify="left")
    for group, rows in ALL_GROUPS.items():
        lines = [_cells(row, outcome, WAYS) for row in rows if row.key in outcome.figures]
        if lines:
            table.add_section()
            table.add_row(f"[bold]{group}[/bold]")
            for *others, verdict, beside in lines:
                style = {"missed": "red", "met": "green"}.get(verdict, "")
                table.add_row(*others, f"[{style}]{verdict}[/{style}]" if style else verdict, beside)
            if line := seen(group, outcome):
                table.add_row(f"[italic]{line}[/italic]")
    console.print(table)
    for name, problem in outcome.problems.items():
        console.print(f"[red]not measured: {name}: {problem}[/red]", highlight=False)


def write_page(outcome: Outcome, *, rounds: int, load: str) -> Path:
    """Write docs/benchmarks.md and return its path."""
    peers = {name: outcome.facts[name] for name in _PEERS if name in outcome.facts}
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(
        TEMPLATE.read_text(encoding="utf-8")
        .replace("{{date}}", datetime.now(UTC).date().isoformat())
        .replace("{{machine}}", describe_machine())
        .replace("{{load}}", f"{load} before, {describe_load()} after")
        .replace("{{versions}}", describe_versions(peers))
        .replace("{{rounds}}", str(rounds))
        .replace("{{meaning}}", "\n".join(_meaning(outcome)))
        .replace("{{tables}}", "\n".join(_tables(outcome)))
        .replace("{{shortfall}}", "\n".join(_shortfall(outcome, load))),
        encoding="utf-8",
    )
    return PAGE


def _headings(ways: Iterable[str]) -> list[str]:
    return [*HEADINGS[:3], *(WAYS[way] for way in ways), *HEADINGS[3:]]


def _ways(rows: Iterable[Row], outcome: Outcome) -> list[str]:
    """Return the ways in which any of the rows was measured."""
    return [way for way in WAYS if any(f"{row.key}@{way}" in outcome.figures for row in rows)]


def _cells(row: Row, outcome: Outcome, ways: Iterable[str]) -> list[str]:
    figure = outcome.figures[row.key]
    value, verdict = row.value(figure), _verdict(row, figure)
    lowest = show(figure.lowest, row.unit) if row.unit in ("time", "ratio") else ""
    sign = "≥" if row.unit == "share" else "≤"
    bar = "" if row.bar is None else f"{sign} {show(row.bar, row.unit)}" if row.bar else "0"
    if row.limit is not None:
        bar += f" ({show(row.limit, row.unit)})"
    beside = "; ".join(_compared(row, key, value, outcome) for key in row.beside if key in outcome.figures)
    others = [_shown(f"{row.key}@{way}", outcome) for way in ways]
    return [row.what, show(value, row.unit), lowest, *others, bar, verdict, beside]


def _shown(key: str, outcome: Outcome) -> str:
    figure = outcome.figures.get(key)
    return show(figure.median, "time") if figure is not None else ""


def _verdict(row: Row, figure: Figure) -> str:
    if row.met(figure) is None:
        return ""
    if not row.met(figure):
        return "missed"
    return "met" if row.reached(figure) else "within the limit"


def _compared(row: Row, key: str, value: float, outcome: Outcome) -> str:
    """Something else that was measured, and how many times as much as *value* it is."""
    other = outcome.figures[key].median
    if row.unit == "share":
        return f"{ALL_NAMES[key]} {show(other, row.unit)}"
    unit, times = "bytes" if row.unit == "bytes" else "time", other / value
    ways = [f"{name} {text}" for way, name in _SHORT.items() if (text := _shown(f"{key}@{way}", outcome))]
    more = f"; {', '.join(ways)}" if ways else ""
    return f"{ALL_NAMES[key]} {show(other, unit)} ({times:.{0 if times >= 10 else 2}f}{TIMES}{more})"


def _tables(outcome: Outcome) -> Iterator[str]:
    for group, rows in ALL_GROUPS.items():
        measured = [row for row in rows if row.key in outcome.figures]
        if measured:
            ways = _ways(measured, outcome)
            headings = _headings(ways)
            yield f"### {group}\n"
            if line := seen(group, outcome):
                yield f"*{line}*\n"
            yield f"| {' | '.join(headings)} |"
            yield f"|{' --- |' * len(headings)}"
            for row in measured:
                yield f"| {' | '.join(_cells(row, outcome, ways))} |"
            yield ""


def _meaning(outcome: Outcome) -> Iterator[str]:
    """The page's first lines: the figures that answer what people ask."""
    figures = outcome.figures

    def took(key: str) -> str:
        return show(figures[key].median, "time")

    if "calls.facade_echo" in figures:
        calls = round(1 / figures["calls.facade_echo"].median, -4)
        yield (
            f"- A call of an async function costs {took('calls.facade_echo')}, with arguments and result checked: "
            f"some {calls:,.0f} calls a second on one core. A step of a chain costs {took('calls.chain_step')}. Next "
            "to a model's answer, which takes a second, you will not find it."
        )
        yield (
            f"- A sync function runs in a thread, so that it cannot block the others: {took('calls.facade_thread')}. "
            f"If it never waits, declare it `inline`: {took('calls.facade_inline')}. A killable one, in a process, "
            f"takes {took('worker.call')}."
        )
    if "mcp.time_ratio" in figures:
        yield (
            f"- A tool of an MCP server costs {show(figures['mcp.time_ratio'].median, 'ratio')} what it costs with the "
            "bare SDK: the server and the pipe are what you wait for."
        )
    if "search.10000.index.mean" in figures and "ranking.toolexec.test.all.recall5" in figures:
        right = figures["ranking.toolexec.test.all.recall5"].median
        yield (
            f"- A search among 10,000 tools takes {took('search.10000.index.mean')}, right after one was added "
            f"{took('search.10000.add.median')}. For {right:.0%} of the queries that nobody tuned it for, a right tool "
            "is among the first five of a thousand."
        )
    if "sandbox.bubblewrap.cold" in figures:
        yield (
            f"- Code with a tool call takes {took('sandbox.bubblewrap.cold')} in a new container of bubblewrap, and "
            f"{took('sandbox.bubblewrap.warm')} in one that is kept ready; one more call of a tool adds "
            f"{took('sandbox.bubblewrap.call')}. Docker, containerd and gVisor have tables below."
        )
    if "imports.toolexec:Exec" in figures:
        yield (
            f"- `from toolexec import Exec` takes {took('imports.toolexec:Exec')} and loads nothing for MCP or HTTP; "
            "the `mcp` SDK is imported when the first server is added."
        )


def _shortfall(outcome: Outcome, load: str) -> Iterator[str]:
    missed = [
        (row, outcome.figures[row.key])
        for rows in ALL_GROUPS.values()
        for row in rows
        if row.key in outcome.figures and row.met(outcome.figures[row.key]) is False
    ]
    if not missed:
        yield "Every bar was met in this run."
    for row, figure in missed:
        mark = row.bar if row.limit is None else row.limit
        assert mark is not None
        group = next(name for name, rows in ALL_GROUPS.items() if row in rows)
        yield (
            f"- {group}: **{row.what}** is at {show(row.value(figure), row.unit)}, "
            f"{'under' if row.unit == 'share' else 'over'} its bar of {show(mark, row.unit)}. {row.note}".rstrip()
        )
    if float(load) > (os.cpu_count() or 1) / 2:
        yield "- The machine was busy with other work when this run began; *lowest* says more than *median* then."
    for name, problem in outcome.problems.items():
        yield f"- Not measured: {name} ({problem})."
