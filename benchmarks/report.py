"""The table on the terminal, and the page for the documentation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness import PROGRAMS, Figure, Outcome
from benchmarks.machine import describe_load, describe_machine, versions
from benchmarks.meaning import MEANINGS
from benchmarks.page import Page, marked, read_page
from benchmarks.rows import TIMES, Row, show
from benchmarks.seen import seen
from benchmarks.tables import ALL_GROUPS, ALL_NAMES, keys_of

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
TEMPLATE = Path(__file__).with_name("page.md")
HEADINGS = ("What", "Median", "Lowest", "Bar", "Verdict", "Beside it")
WAYS = {"cpu": "CPU", "paused": "After a pause", "at_once": "At once"}
"""The columns that only those tables have that it was measured for: what is behind the `@` of a figure's key."""
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


def check_page() -> None:
    """Raise ValueError for a page in which no table could be replaced: before anything is measured."""
    read_page(PAGE.read_text(encoding="utf-8"), ALL_GROUPS)


def write_page(outcome: Outcome, *, commit: str, load: str) -> list[str]:
    """Replace the measured tables of docs/benchmarks.md, and return their names. *commit* and *load* are those from
    before the run."""
    peers = {name: outcome.facts[name] for name in _PEERS if name in outcome.facts}
    text = PAGE.read_text(encoding="utf-8")
    written, new = update(text, outcome, stamp=_stamp(commit, load), versions=versions(peers))
    PAGE.write_text(new, encoding="utf-8")
    return written


def _stamp(commit: str, load: str) -> str:
    """When, at which commit and on what the figures were measured."""
    busy = ""
    if float(load) > (os.cpu_count() or 1) / 2:
        busy = " The machine was busy with other work when the run began; *lowest* says more than *median*."
    return (
        f"Measured {datetime.now(UTC).date().isoformat()} at commit {commit}, on {describe_machine()}; "
        f"load {load} before, {describe_load()} after.{busy}"
    )


def update(text: str, outcome: Outcome, *, stamp: str, versions: dict[str, str]) -> tuple[list[str], str]:
    """Return the tables that were measured completely, and the page with these in place of the older ones."""
    page = read_page(text, ALL_GROUPS)
    written = [group for group in ALL_GROUPS if _is_complete(group, page, outcome)]
    for group in written:
        page.tables[group] = marked(group, "\n".join(_table(group, outcome, stamp)))
        page.missed[group] = list(_shortfall(group, outcome))
    if written:
        page.versions |= versions
    for name, line in MEANINGS.items():
        if said := line(outcome.figures):
            page.meanings[name] = f"- {said} <!-- meaning: {name} -->"
    rounds = str(max(program.rounds for program in PROGRAMS))
    return written, page.render(TEMPLATE.read_text(encoding="utf-8"), ALL_GROUPS, MEANINGS, rounds=rounds)


def _is_complete(group: str, page: Page, outcome: Outcome) -> bool:
    """Return whether a table was measured with all that it shows on the page; a new one, with any row of its own."""
    rows, known = ALL_GROUPS[group], page.tables.get(group, "")
    whats = {row.key: row.what for row in rows}
    shown = [key for key in keys_of(group) if whats.get(key, ALL_NAMES.get(key, key)) in known]
    return any(row.key in outcome.figures for row in rows) and all(key in outcome.figures for key in shown)


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
    unit, times = row.unit if row.unit in ("bytes", "count") else "time", other / value
    ways = [f"{name} {text}" for way, name in _SHORT.items() if (text := _shown(f"{key}@{way}", outcome))]
    more = f"; {', '.join(ways)}" if ways else ""
    return f"{ALL_NAMES[key]} {show(other, unit)} ({times:.{0 if times >= 10 else 2}f}{TIMES}{more})"


def _table(group: str, outcome: Outcome, stamp: str) -> Iterator[str]:
    measured = [row for row in ALL_GROUPS[group] if row.key in outcome.figures]
    ways = _ways(measured, outcome)
    headings = _headings(ways)
    yield f"### {group}\n"
    yield f"{stamp}\n"
    if line := seen(group, outcome):
        yield f"*{line}*\n"
    yield f"| {' | '.join(headings)} |"
    yield f"|{' --- |' * len(headings)}"
    for row in measured:
        yield f"| {' | '.join(_cells(row, outcome, ways))} |"


def _shortfall(group: str, outcome: Outcome) -> Iterator[str]:
    for row in ALL_GROUPS[group]:
        figure = outcome.figures.get(row.key)
        if figure is None or row.met(figure) is not False:
            continue
        mark = row.bar if row.limit is None else row.limit
        assert mark is not None
        yield (
            f"- {group}: **{row.what}** is at {show(row.value(figure), row.unit)}, "
            f"{'under' if row.unit == 'share' else 'over'} its bar of {show(mark, row.unit)}. {row.note}".rstrip()
        )
