"""`toolexec bench`: what the catalogue costs a model, all at once or behind a server, and how quick finding is."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from toolexec.cli.exit_codes import OK
from toolexec.cli.finding import connect, mention, unavailable, unavailable_data
from toolexec.cli.session import Session
from toolexec.cli.tables import duration_text, plain_table
from toolexec.model.json_value import JSONDict
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from rich.table import Table

    from toolexec.exec import Exec
    from toolexec.model import Tool

_BYTES_OF_TOKEN: Final = 4
_SAMPLES: Final = 50
_QUERY_WORDS: Final = 4
_COMMANDS: Final = {"meta": "toolexec serve --expose meta", "code": "toolexec serve --expose code"}


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a model reads at the start: so many definitions of so many bytes."""

    tools: int
    bytes: int

    @property
    def tokens(self) -> int:
        """About how many tokens that is."""
        return round(self.bytes / _BYTES_OF_TOKEN)

    def saved(self, all_tools: _Cost) -> float | None:
        """Return how much smaller this is than *all_tools*, in percent; None where there are no tools."""
        return 100 * (1 - self.bytes / all_tools.bytes) if all_tools.bytes else None

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {"tools": self.tools, "bytes": self.bytes, "tokens": self.tokens}


async def bench(session: Session) -> int:
    """Show how many bytes (and about how many tokens) of definitions a model reads at the start: with all tools listed
    directly, by namespace, and with what `toolexec serve` shows in their place; and the median time of a search and of
    a description."""
    await connect(session)
    ex, screen = session.ex, session.screen
    tools = [entry.tool for entry in ex.visible()[0].tools()]
    namespaces: dict[str, list[Tool]] = {}
    for tool in tools:
        namespaces.setdefault(tool.namespace, []).append(tool)
    by_namespace = {name: _direct(found) for name, found in sorted(namespaces.items())}
    alone = _direct(tools)
    exposed = {"direct": _with_beside(alone, ex), **_served(ex, len(tools), list(by_namespace), session.list_all)}
    times = await _times(ex, tools)
    down = unavailable(session)
    advice = _advice(exposed, alone, ex.options.enable_code_execution)
    if screen.as_json:
        screen.document(_data(exposed, by_namespace, times) | {"advice": advice} | unavailable_data(down))
        return OK
    if len(by_namespace) > 1:
        screen.show(_namespace_table(by_namespace), Text())
    screen.show(_exposed_table(exposed), Text())
    screen.show(Text(advice))
    screen.show(Text(f"tokens are bytes / {_BYTES_OF_TOKEN}", style="dim"))
    if times:
        words = ", ".join(f"{name} {duration_text(taken)}" for name, taken in times.items())
        screen.show(Text(f"median time: {words}", style="dim"))
    mention(session, down)
    return OK


def _direct(tools: Sequence[Tool]) -> _Cost:
    """Return the definitions as `tools/list` has them."""
    return _Cost(len(tools), sum(_size(_definition(tool)) for tool in tools))


def _definition(tool: Tool) -> JSONDict:
    data: JSONDict = {"name": tool.id.replace(":", "__"), "inputSchema": tool.input_schema.to_json()}
    if tool.title:
        data["title"] = tool.title
    if tool.description:
        data["description"] = tool.description
    if tool.output_schema is not None:
        data["outputSchema"] = tool.output_schema.to_json()
    if annotations := tool.annotations.to_mcp():
        data["annotations"] = annotations
    return data


def _with_beside(alone: _Cost, ex: Exec) -> _Cost:
    """Return the cost of a list of the tools themselves: with what the server lists beside them, if there are any."""
    from toolexec.server.tools.catalogue import beside, meta_tools

    if not alone.tools:
        return alone
    language = ex.options.default_language
    own = beside(meta_tools("meta", code_enabled=ex.options.enable_code_execution, language=language))
    return _Cost(alone.tools + len(own), alone.bytes + sum(_size(tool.to_mcp()) for tool in own))


def _served(ex: Exec, count: int, namespaces: list[str], list_all: bool) -> dict[str, _Cost]:
    """Return what the server shows in place of all tools, with its instructions, for each way to expose them; with
    *list_all* all of its own tools."""
    from toolexec.server.instructions import instructions
    from toolexec.server.tools.catalogue import meta_tools, unlisted_tools

    code_enabled = ex.options.enable_code_execution
    costs: dict[str, _Cost] = {}
    for expose in ("meta", "code") if code_enabled else ("meta",):
        language = ex.options.default_language
        listed = meta_tools(expose, code_enabled=code_enabled, list_all=list_all, language=language)
        shown = [tool.to_mcp(whole=list_all) for tool in listed]
        also = [] if list_all else [tool.name for tool in unlisted_tools(expose, code_enabled=code_enabled)]
        named = namespaces if expose == "code" else ()
        words = instructions(expose, tools=count, namespaces=named, code_enabled=code_enabled, also=also)
        costs[expose] = _Cost(len(shown), sum(map(_size, shown)) + len(words.encode()))
    return costs


async def _times(ex: Exec, tools: Sequence[Tool]) -> dict[str, float]:
    """Return the median seconds of a search and of a description, over tools from all of the catalogue."""
    if not tools:
        return {}
    chosen = tools[:: max(len(tools) // _SAMPLES, 1)][:_SAMPLES]
    queries = [" ".join(islice((tool.description or tool.name).split(), _QUERY_WORDS)) for tool in chosen]
    await ex.search_tools(queries[0])  # the first one builds the index
    return {
        "search": median([await _time(lambda query=query: ex.search_tools(query)) for query in queries]),
        "describe": median([await _time(lambda tool=tool: ex.get_tool_doc(tool.id)) for tool in chosen]),
    }


async def _time(work: Callable[[], Awaitable[Any]]) -> float:
    started = perf_counter()
    await work()
    return perf_counter() - started


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def _advice(exposed: dict[str, _Cost], alone: _Cost, code_enabled: bool) -> str:
    """Return how to serve these tools, which cost so much *alone*, and why."""
    from toolexec.server.tools.catalogue import room_for_tools

    direct, best = exposed["direct"], "code" if code_enabled else "meta"
    if not alone.tools:
        return "there are no tools yet, so there is nothing to save"
    if alone.bytes <= room_for_tools(code_enabled=code_enabled):
        why = "so few tools cost less in a task than finding them, so toolexec serve shows them as they are"
        return f"{why}; with --expose direct it shows nothing else"
    saved = direct.tokens - exposed[best].tokens
    return f"toolexec serve, as with --expose {best}, saves about {saved:,} tokens at the start of every conversation"


# -- showing --------------------------------------------------------------------------------------------------------


def _data(exposed: dict[str, _Cost], by_namespace: dict[str, _Cost], times: dict[str, float]) -> dict[str, Any]:
    everything = exposed["direct"]
    data: JSONDict = {"namespaces": [{"namespace": name} | cost.to_dict() for name, cost in by_namespace.items()]}
    data["expose"] = {name: cost.to_dict() for name, cost in exposed.items()}
    for name, cost in exposed.items():
        saved = cost.saved(everything)
        if name != "direct" and saved is not None:
            data["expose"][name]["savedPercent"] = round(saved, 2)
    data["medianMs"] = {name: round(taken * 1000, 4) for name, taken in times.items()}
    return data


def _namespace_table(by_namespace: dict[str, _Cost]) -> Table:
    table = _table("Namespace")
    for name, cost in by_namespace.items():
        table.add_row(Text(visible_line(name) or "(no namespace)", style="cyan"), *_cells(cost))
    return table


def _exposed_table(exposed: dict[str, _Cost]) -> Table:
    table = _table("At the start a model reads")
    table.add_column("Saved", justify="right", no_wrap=True)
    for name, cost in exposed.items():
        saved = cost.saved(exposed["direct"]) if name != "direct" else None
        table.add_row(_COMMANDS.get(name, "all tools"), *_cells(cost), _saved_text(saved))
    return table


def _saved_text(saved: float | None) -> str:
    return "" if saved is None else f"{saved:.1f} %" if saved > 0 else "nothing"


def _table(first: str) -> Table:
    right = {"justify": "right", "no_wrap": True}
    return plain_table((first, {"overflow": "fold"}), ("Tools", right), ("Bytes", right), ("Tokens", right))


def _cells(cost: _Cost) -> tuple[str, str, str]:
    return f"{cost.tools:,}", f"{cost.bytes:,}", f"{cost.tokens:,}"
