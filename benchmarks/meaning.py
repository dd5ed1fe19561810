"""The page's first lines: the figures that answer what people ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from benchmarks.harness import Figure
from benchmarks.rows import show

Figures: TypeAlias = Mapping[str, Figure]


def _took(figures: Figures, key: str) -> str:
    return show(figures[key].median, "time")


def _calls(figures: Figures) -> str:
    rate = round(1 / figures["calls.facade_echo"].median, -4)
    return (
        f"A call of an async function costs {_took(figures, 'calls.facade_echo')}, with arguments and result checked: "
        f"some {rate:,.0f} calls a second on one core. A step of a chain costs {_took(figures, 'calls.chain_step')}."
    )


def _threads(figures: Figures) -> str:
    return (
        "A sync function runs in a thread: "
        f"{_took(figures, 'calls.facade_thread')}. If it never waits, declare it `inline`: "
        f"{_took(figures, 'calls.facade_inline')}. A killable one, in a process, takes {_took(figures, 'worker.call')}."
    )


def _mcp(figures: Figures) -> str:
    return (
        f"A tool of an MCP server costs {show(figures['mcp.time_ratio'].median, 'ratio')} what it costs with the "
        "bare SDK."
    )


def _search(figures: Figures) -> str:
    right = figures["ranking.toolexec.test.all.recall5"].median
    return (
        f"A search among 10,000 tools takes {_took(figures, 'search.10000.index.mean')}, right after one was added "
        f"{_took(figures, 'search.10000.add.median')}. For {right:.0%} of the held-out queries, a right tool is "
        "among the first five of a thousand."
    )


def _containers(figures: Figures) -> str:
    return (
        f"Code with a tool call takes {_took(figures, 'sandbox.bubblewrap.cold')} in a new container of bubblewrap, "
        f"and {_took(figures, 'sandbox.bubblewrap.warm')} in one that is kept ready; one more call of a tool adds "
        f"{_took(figures, 'sandbox.bubblewrap.call')}. Docker, containerd and gVisor have tables below."
    )


def _import(figures: Figures) -> str:
    return (
        f"`from toolexec import Exec` takes {_took(figures, 'imports.toolexec:Exec')} and loads nothing for MCP or "
        "HTTP; the `mcp` SDK is imported when the first server is added."
    )


def _where_measured(line: Callable[[Figures], str]) -> Callable[[Figures], str]:
    """Return the line, or "" where a figure of it was not measured."""

    def written(figures: Figures) -> str:
        try:
            return line(figures)
        except KeyError:
            return ""

    return written


MEANINGS: dict[str, Callable[[Figures], str]] = {
    name: _where_measured(line)
    for name, line in {
        "calls": _calls,
        "threads": _threads,
        "mcp": _mcp,
        "search": _search,
        "containers": _containers,
        "import": _import,
    }.items()
}
"""By name: what to say of the figures."""
