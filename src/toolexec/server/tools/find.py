"""The tool that finds for code: find, which gives stubs that are ready to call."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from toolexec.code.compact import compact_stub
from toolexec.code.names import ToolNames, names_of
from toolexec.code.stub_dialects import is_javascript
from toolexec.discovery.index import CountsNamespaces, Index, Registered
from toolexec.discovery.preparing import off_loop_if_long, off_loop_if_many
from toolexec.discovery.ranking.expansion import MAX_QUERY
from toolexec.discovery.view import browsable
from toolexec.errors import ToolNotFoundError
from toolexec.model.tool import Tool
from toolexec.model.visible import visible_line
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.finding import MAX_QUERIES, best_of, for_each, nothing_found
from toolexec.server.tools.schemas import ANY, TEXT, TEXTS, closed, count, text, unlisted
from toolexec.server.tools.starting import settle, still_starting
from toolexec.server.tools.wording import public_reason

if TYPE_CHECKING:
    from toolexec.discovery.learned import LearnedOutputs

_MAX_ASKED: Final = MAX_QUERIES
_MAX_LIMIT: Final = 50
_MAX_LISTED: Final = 100
_MAX_NAME: Final = 200
_MAX_CHARS: Final = 24_000
_MAX_CLOSE: Final = 3
_SPLIT: Final = re.compile(r"[.:]")


@dataclass(slots=True)
class _Answer:
    """The tools that were found, each once, and what else there is to say."""

    tools: dict[str, Registered] = field(default_factory=dict[str, Registered])
    notes: list[str] = field(default_factory=list[str])

    def add(self, entries: Iterable[Registered | None]) -> None:
        """Take in tools, unless they are there already."""
        for entry in entries:
            if entry is not None:
                self.tools.setdefault(entry.tool.id, entry)


async def _find(call: MetaCall) -> MetaReply:
    args = call.args
    await settle(call.ex)
    index, _ = call.ex.visible()
    names = names_of(index)
    answer = _Answer()
    for name in args.get("names", ()):
        _named(index, names, name, answer)
    for namespace in args.get("namespaces", ()):
        answer.add(await off_loop_if_many(index, lambda space=namespace: _of_namespace(index, space)))
    queries = list(dict.fromkeys(query.strip() for query in args.get("queries", ())))
    others = args.get("names") or args.get("namespaces") or len(queries) > 1
    queries = [query for query in queries if query] if others else queries
    if queries:
        blocking = getattr(index, "search_blocks", False)
        limit = int(args.get("limit", for_each(queries)))
        work = (index, queries, limit, answer)
        await asyncio.to_thread(_searched, *work) if blocking else _searched(*work)
    if not any(args.get(key) for key in ("queries", "names", "namespaces")):
        answer.notes.append(_overview(index))
    elif not answer.tools:
        answer.notes.append(nothing_found(call, index, filtered=False))
    elif still_starting(call.ex):
        answer.notes.append("some backends are still starting; ask again in a moment for their tools")
    down = {status.name: public_reason(status.reason) for status in call.ex.backend_statuses() if not status.available}
    language = str(args.get("language") or call.ex.options.default_language)
    write = partial(_text, call.ex.learned, names, answer, down, full=args.get("detail") == "full", language=language)
    shown = await off_loop_if_long((entry.tool for entry in answer.tools.values()), write)
    return MetaReply(value={}, text=shown, once=True)


def _named(index: Index, names: ToolNames, name: str, answer: _Answer) -> None:
    """Take in the tool with an ID, or with a name as code writes it; one that is not there becomes a note."""
    entry = index.find(name)
    if entry is None:
        try:
            entry = index.find(names.at(_SPLIT.split(name.removeprefix("tools."))))
        except ToolNotFoundError as error:
            close = ", ".join(error.details.get("close", ())[:_MAX_CLOSE])
            hint = f"did you mean {close}?" if close else "search for it with queries"
            answer.notes.append(f"there is not a tool {visible_line(name, _MAX_NAME)}; {hint}")
    answer.add([entry])


def _of_namespace(index: Index, namespace: str) -> list[Registered]:
    return [entry for entry in index.tools() if entry.tool.namespace == namespace]


def _searched(index: Index, queries: Sequence[str], limit: int, answer: _Answer) -> None:
    """Take in the best tools for each query: those of all queries that are best, then the second ones, and so on."""
    found, notes = best_of(index, queries, limit)
    answer.notes += notes
    answer.add(index.find(summary.id) for summary in found)


def _overview(index: Index) -> str:
    """Return the namespaces with their numbers of tools."""
    counts: Mapping[str, int] = index.namespace_counts() if isinstance(index, CountsNamespaces) else {}
    page = browsable(index).namespaces_page(_MAX_LISTED)
    shown = [f"{visible_line(name, _MAX_NAME) or '(none)'} {counts.get(name, '')}".strip() for name in page.items]
    more = ", …" if page.next_cursor is not None else ""
    return f"namespaces: {', '.join(shown)}{more}; ask with queries, names or namespaces"


def _text(
    learned: LearnedOutputs | None,
    names: ToolNames,
    answer: _Answer,
    down: Mapping[str, str],
    *,
    full: bool,
    language: str,
) -> str:
    """Return a line for each tool, or with *full* all that is known of it, and the notes, as programs in *language*
    have them; *down* says why backends are unavailable, by name."""
    mark = "//" if is_javascript(language) else "#"
    parts: list[str] = []
    room = _MAX_CHARS
    entries = list(answer.tools.values())
    for number, entry in enumerate(entries):
        tool = learned.with_output(entry.tool) if learned is not None else entry.tool
        part = _part(tool, names, full=full, language=language)
        if entry.binding.backend in down:
            part += f"  {mark} unavailable: {down[entry.binding.backend]}"
        room -= len(part)
        if parts and (room < 0 or number == _MAX_LISTED):
            rest = [left.tool.id for left in entries[number : number + _MAX_CLOSE]]
            answer.notes.append(f"{len(entries) - number} more; ask for fewer, or by name: {', '.join(rest)}, …")
            break
        parts.append(part)
    return "\n".join([*parts, *(f"{mark} {one}" for one in answer.notes)])


def _part(tool: Tool, names: ToolNames, *, full: bool, language: str) -> str:
    if full:
        from toolexec.code.stubs import stub_of

        return stub_of(tool, names=names, language=language)
    path = names.path_of(tool)
    return compact_stub(tool, ("tools", *path) if path else None, language=language)


FIND: Final = MetaTool(
    name="find",
    description=(
        "Stubs of tools, ready to call in execute. One query for each thing to do, all in one call. names or "
        "namespaces: those tools. `?` may be left out; fields of results without a type are str. detail full: what "
        "arguments mean."
    ),
    input_schema=closed(
        {
            "queries": {"type": "array", "items": {**TEXT, "maxLength": MAX_QUERY}, "maxItems": _MAX_ASKED},
            "names": {**TEXTS, "maxItems": _MAX_LISTED},
            "namespaces": {**TEXTS, "maxItems": _MAX_ASKED},
            "detail": {"enum": ["stub", "full"]},
            "limit": count(1, _MAX_LIMIT),
            "language": unlisted(text("of the program, such as typescript")),
        }
    ),
    output_schema=closed(dict.fromkeys((), ANY)),
    handle=_find,
    cause="search",
)
