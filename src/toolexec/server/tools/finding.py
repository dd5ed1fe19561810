"""The tools that find: search_tools, list_tools, list_namespaces."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Final

from toolexec.code.compact import call_line
from toolexec.discovery.index import CountsNamespaces, Index, Registered
from toolexec.discovery.pages import CursorSeal, Page
from toolexec.discovery.preparing import off_loop_if_long, off_loop_if_many
from toolexec.discovery.ranking.expansion import MAX_QUERY
from toolexec.discovery.summary import MAX_SHORT_DESCRIPTION, Filters, Summary, summarize
from toolexec.discovery.view import browsable
from toolexec.errors import ConfigurationError, InputValidationError, Violation
from toolexec.model.binding import Binding
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.visible import visible_line
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.schemas import FLAG, LIMIT, OBJECT, TEXT, TEXTS, TOOLS, closed, count, text, unlisted
from toolexec.server.tools.starting import settle, still_starting
from toolexec.server.tools.wording import public_reason

_MAX_SIGNATURE: Final = 100
_MAX_NAMED: Final = 8
_MAX_CHOICES: Final = 4
_MAX_WORD: Final = 40
_MAX_TAGS: Final = 8
_MAX_MISSED: Final = 10
_MAX_MISSED_WORDS: Final = 60
_MAX_NOTE: Final = 200
_MAX_REMEMBERED: Final = 16_000
_NAMES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
_FOR_EACH: Final = 5
"""How many tools a search finds for each query. A task's text and what its steps are about are such queries: with three
for each of several a task among 1,160 tools took a turn more at the median, and 200 tokens less."""
_MANY: Final = 6
_FOR_MANY: Final = 3
"""How many it finds for each of more than `_MANY`."""
MAX_QUERIES: Final = 30
_seal = CursorSeal()


async def _search(call: MetaCall) -> MetaReply:
    args = call.args
    filters = Filters(
        namespace=args.get("namespace"),
        tags=tuple(args.get("tags", ())),
        backend=args.get("backend"),
        read_only=args.get("read_only"),
        destructive=args.get("destructive"),
    )
    await settle(call.ex)
    index, _ = call.ex.visible()
    queries = _queries(args)
    limit = _wanted(call, queries)
    if produces := args.get("produces"):
        return await _producing(call, index, " ".join(queries), filters, produces, limit)
    blocking = getattr(index, "search_blocks", False)
    if len(queries) > 1:
        several = (index, queries, limit, filters)
        found, notes = await asyncio.to_thread(best_of, *several) if blocking else best_of(*several)
        value: JSONDict = {"tools": await _hits(call, index, found)}
        return await _searched(call, index, value, filtered=filters != Filters(), notes=notes)
    wanted = (index, queries[0], limit, args.get("cursor") or None, filters)
    page = await asyncio.to_thread(_page, *wanted) if blocking else _page(*wanted)
    value = {"tools": await _hits(call, index, page.items)}
    if page.next_cursor is not None:
        value["nextCursor"] = page.next_cursor
    if page.did_you_mean is not None:
        value["didYouMean"] = visible_line(page.did_you_mean, MAX_SHORT_DESCRIPTION)
    return await _searched(call, index, value, filtered=filters != Filters(), why=page.note)


def _queries(args: JSONObject) -> list[str]:
    """Return what is searched for, each once; raises InputValidationError where that is nothing."""
    queries = [*([args["query"]] if "query" in args else ()), *args.get("queries", ())]
    if not queries:
        missing = Violation(path="", keyword="required", message="query is required, or queries")
        raise InputValidationError([missing], tool_id="search_tools", op="validate_input")
    asked = list(dict.fromkeys(query.strip() for query in queries))
    asked = [query for query in asked if query] or asked[:1]  # an empty one beside others is what was left out
    if len(asked) > 1 and args.get("cursor"):
        one = Violation(path="/cursor", keyword="maxItems", message="a cursor goes on with one query, not with several")
        raise InputValidationError([one], tool_id="search_tools", op="validate_input")
    return asked


def _wanted(call: MetaCall, queries: Sequence[str]) -> int:
    """Return how many tools to find, for each of several queries: a page for programs and where all are listed."""
    if "limit" in call.args or call.args.get("as_json") or queries == [""]:
        return _limit(call)
    return for_each(queries)


def for_each(queries: Sequence[str]) -> int:
    """Return how many tools to find for each of these queries, unless the call says how many."""
    return _FOR_EACH if len(queries) <= _MANY else _FOR_MANY


def best_of(
    index: Index, queries: Sequence[str], limit: int, filters: Filters | None = None
) -> tuple[list[Summary], list[str]]:
    """Return the best tools for each query, each once (those of all queries that are best, then the second ones, and so
    on), and what there is to note."""
    found = [index.search(query, limit, filters=filters) for query in queries]
    missed = [query for query, hits in zip(queries, found, strict=True) if not hits]
    meant = dict.fromkeys(hits.did_you_mean for hits in found if hits.did_you_mean is not None)
    notes = [f"did you mean {visible_line(words, MAX_SHORT_DESCRIPTION)}?" for words in islice(meant, _MAX_MISSED)]
    if missed and len(missed) < len(found):
        more = f" and {len(missed) - _MAX_MISSED} more" if len(missed) > _MAX_MISSED else ""
        named = "; ".join(visible_line(query, _MAX_MISSED_WORDS) for query in missed[:_MAX_MISSED])
        notes.insert(0, f"nothing found for {named}{more}")
    best: dict[str, Summary] = {}
    for place in range(limit):
        for hits in found:
            if place < len(hits):
                best.setdefault(hits[place].id, hits[place])
    return list(best.values()), notes


async def _producing(
    call: MetaCall, index: Index, query: str, filters: Filters, produces: str, limit: int
) -> MetaReply:
    """Return the tools whose results give a value for an argument, each with where in its result that is."""
    found = await call.ex.search_tools(query, limit, filters=filters, produces=produces)
    places = {summary.id: visible_line(summary.produces or "", MAX_SHORT_DESCRIPTION) for summary in found}
    hits = [hit | {"produces": places[hit["id"]]} for hit in await _hits(call, index, found)]
    return await _searched(call, index, {"tools": hits}, filtered=filters != Filters(), why=found.note)


async def _searched(
    call: MetaCall, index: Index, value: JSONDict, *, filtered: bool, why: str = "", notes: Sequence[str] = ()
) -> MetaReply:
    """Return the reply of a search: a line for each tool and the notes as text, or JSON where that was asked for."""
    note = _noted(call, index, value, filtered=filtered, why=why).value.get("note")
    notes = [*notes, *([note] if note else ())]
    if notes:
        value["note"] = "; ".join(notes)
    if call.args.get("as_json"):
        return MetaReply(value=value, structured=True)
    if "didYouMean" in value:
        notes.append(f"did you mean {value['didYouMean']}?")
    if "nextCursor" in value and ("cursor" in call.args or call.args.get("query") == ""):
        notes.append(f"more: cursor {value['nextCursor']}")
    hits: list[JSONDict] = value["tools"]
    entries = [index.find(hit["id"]) for hit in hits]
    tools = [entry.tool for entry in entries if entry is not None]
    lines = await off_loop_if_long(tools, lambda: [*map(_line, hits, entries)])
    return MetaReply(value=value, text="\n".join([*lines, *(f"# {one}" for one in notes)]), once=True)


def _line(hit: JSONObject, entry: Registered | None) -> str:
    """Return one line on a tool: how it is called, what it does, and what else there is to know now."""
    line = call_line(entry.tool) if entry is not None else f"{hit['id']}: {hit.get('shortDescription', '')}"
    line += f"  # gives it at {hit['produces']}" if hit.get("produces") else ""
    return line + (f"  # unavailable: {hit['unavailable']}" if hit.get("unavailable") else "")


async def _list(call: MetaCall) -> MetaReply:
    args, limit = call.args, _limit(call)
    await settle(call.ex)
    index, _ = call.ex.visible()
    version = index.version  # read before the tools are: a change in between makes the cursor invalid, not wrong
    caller = call.origin.caller
    asked = [args.get(key) for key in ("namespace", "backend_kind", "backend_name")]
    question = ["list_tools", id(call.ex.index), caller.realm, caller.id, *asked]
    cursor = args.get("cursor")
    start = _seal.read(cursor, version, question) if cursor else 0
    found = await off_loop_if_many(index, partial(_asked, index, *asked))
    page = found[start : start + limit]
    value: JSONDict = {"tools": await _hits(call, index, [summarize(entry.tool, entry.bindings) for entry in page])}
    if len(found) > start + limit:
        value["nextCursor"] = _seal.make(start + limit, version, question)
    return _noted(call, index, value, filtered=asked != [None, None, None])


async def _namespaces(call: MetaCall) -> MetaReply:
    await settle(call.ex)
    index, _ = call.ex.visible()
    page = browsable(index).namespaces_page(_limit(call), cursor=call.args.get("cursor") or None)
    counts = _counts(index)
    value: JSONDict = {
        "namespaces": list(page.items),
        "toolCounts": {name: counts[name] for name in page.items},
    }
    if page.next_cursor is not None:
        value["nextCursor"] = page.next_cursor
    return MetaReply(value=value)


def _counts(index: Index) -> Mapping[str, int]:
    """Return how many tools each namespace has."""
    if isinstance(index, CountsNamespaces):
        return index.namespace_counts()
    return Counter(entry.tool.namespace for entry in index.tools())


def _page(index: Index, query: str, limit: int, cursor: str | None, filters: Filters) -> Page[Summary]:
    try:
        return browsable(index).search_page(query, limit, cursor=cursor, filters=filters)
    except ConfigurationError:
        if cursor is not None:
            raise
        # A searcher that ranks differently each time has no pages, but it has a best answer.
        found = index.search(query, limit, filters=filters)
        return Page(tuple(found), None, found.did_you_mean, found.note)


def _limit(call: MetaCall) -> int:
    return int(call.args.get("limit", LIMIT["default"]))  # JSON Schema takes 20.0 for an integer too


def _asked(index: Index, *asked: str | None) -> Sequence[Registered]:
    every = index.tools()
    return [entry for entry in every if _belongs(entry, *asked)] if any(asked) else every


def _belongs(entry: Registered, namespace: str | None, kind: str | None, name: str | None) -> bool:
    if namespace is not None and entry.tool.namespace != namespace:
        return False
    if kind is None and name is None:
        return True
    return any(kind in (None, binding.kind) and _called(binding, name) for binding in entry.bindings)


def _called(binding: Binding, name: str | None) -> bool:
    """Return whether *name* is that of the backend, or of a local tool's handler."""
    return name is None or name == binding.backend or (binding.kind == "local" and name == binding.tool)


async def _hits(call: MetaCall, index: Index, summaries: Sequence[Summary]) -> list[JSONDict]:
    down = {status.name: public_reason(status.reason) for status in call.ex.backend_statuses() if not status.available}
    entries = [index.find(summary.id) for summary in summaries]
    tools = (entry.tool for entry in entries if entry is not None)
    return await off_loop_if_long(tools, lambda: [_hit(*each, down) for each in zip(summaries, entries, strict=True)])


def _hit(summary: Summary, entry: Registered | None, down: Mapping[str, str]) -> JSONDict:
    hit: JSONDict = {"id": summary.id, "name": summary.name}
    parts: JSONDict = {
        "namespace": summary.namespace,
        "shortDescription": visible_line(summary.short_description, MAX_SHORT_DESCRIPTION),
        "signature": signature(entry.tool.input_schema.text) if entry is not None else "",
        "tags": list(summary.tags[:_MAX_TAGS]),
        "unavailable": down.get(entry.binding.backend) if entry is not None else None,
    }
    return hit | {key: part for key, part in parts.items() if part}


def _noted(call: MetaCall, index: Index, value: JSONDict, *, filtered: bool, why: str = "") -> MetaReply:
    """Return the reply, with a note where tools may be missing that a reader would expect."""
    if not value["tools"]:
        value["note"] = nothing_found(call, index, filtered=filtered, why=why)
    elif why:
        value["note"] = visible_line(why, _MAX_NOTE)
    elif still_starting(call.ex):
        value["note"] = "some backends are still starting; ask again in a moment for their tools"
    return MetaReply(value=value)


def nothing_found(call: MetaCall, index: Index, *, filtered: bool, why: str = "") -> str:
    """Return why a list may be empty, and what to try."""
    if not len(index):
        hint = "there are no tools"
    else:
        known = [name for name in browsable(index).namespaces() if name]
        more = ", …" if len(known) > _MAX_NAMED else ""
        reason = f" ({visible_line(why, _MAX_NOTE)})" if why else ""
        hint = f"nothing found{reason}; try other or fewer words, or an empty query for all tools"
        hint += "; leave out filters" if filtered else ""
        hint += f"; namespaces: {', '.join(known[:_MAX_NAMED])}{more}" if known else ""
    down = any(status.enabled and not status.available for status in call.ex.backend_statuses())
    return f"{hint}; some backends are unavailable, see list_backends" if down else hint


def signature(schema_text: str) -> str:
    """Return the arguments that a schema (as JSON text) names, in at most 100 characters: `(title: str, body?: str)`,
    the required ones first; empty when it names none and takes any.

    Those of long schemas are not remembered: a backend that changes its tools all the time would fill the memory.
    """
    return _remembered(schema_text) if len(schema_text) <= _MAX_REMEMBERED else _signature(schema_text)


def _signature(schema_text: str) -> str:
    schema = json.loads(schema_text)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    required = schema.get("required")
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    parts: list[str] = []
    room = _MAX_SIGNATURE - len("(…)")
    for name in sorted(properties, key=lambda name: name not in needed):
        part = f"{visible_line(name, _MAX_WORD)}{'' if name in needed else '?'}: {_type_word(properties[name])}"
        room -= len(part) + len(", ")
        if room < 0:
            parts.append("…")
            break
        parts.append(part)
    return f"({', '.join(parts)})"


_remembered = lru_cache(maxsize=4096)(_signature)


def _type_word(schema: JSONValue, level: int = 0) -> str:
    if not isinstance(schema, dict):
        return "any"
    choices = schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= _MAX_CHOICES:
        return "|".join(visible_line(json.dumps(choice, ensure_ascii=False), _MAX_WORD) for choice in choices)
    kinds = schema.get("type")
    named = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind in _NAMES]
    if not named and level < 2:
        branches = schema.get("anyOf") or schema.get("oneOf")
        words = [_type_word(branch, level + 1) for branch in branches] if isinstance(branches, list) else []
        return "|".join(dict.fromkeys(words)) if 0 < len(words) <= _MAX_CHOICES and "any" not in words else "any"
    if named == ["array"] and level < 2:
        inner = _type_word(schema.get("items"), level + 1)
        return f"list[{inner}]" if inner != "any" else "list"
    return "|".join(_NAMES[kind] for kind in named) or "any"


_QUERY: Final = {**TEXT, "maxLength": MAX_QUERY}
_PAGE: Final = {"nextCursor": TEXT, "note": TEXT}
_PAGING: Final = {"limit": LIMIT, "cursor": TEXT}

SEARCH_TOOLS: Final = MetaTool(
    name="search_tools",
    description=(
        "Start here: find tools by words. queries: one for each thing to do, all in one call. "
        "A line each: id(arguments): what it does; ? may be left out."
    ),
    input_schema=closed(
        {
            "query": _QUERY,
            "queries": {"type": "array", "items": _QUERY, "minItems": 1, "maxItems": MAX_QUERIES},
            "limit": count(1, LIMIT["maximum"]),
            "namespace": TEXT,
            "cursor": unlisted(TEXT),
            "tags": unlisted(TEXTS),
            "backend": unlisted(text("kind or name")),
            "read_only": unlisted(FLAG),
            "destructive": unlisted(FLAG),
            "produces": unlisted(text("an argument it gives: issue_id")),
            "as_json": unlisted(FLAG),
        }
    ),
    output_schema=closed({"tools": TOOLS, **_PAGE, "didYouMean": TEXT}, ["tools"]),
    handle=_search,
    cause="search",
)

LIST_TOOLS: Final = MetaTool(
    name="list_tools",
    description="All tools, page by page.",
    input_schema=closed(
        {
            **_PAGING,
            "namespace": TEXT,
            "backend_kind": {"enum": ["local", "provider", "mcp"]},
            "backend_name": TEXT,
        }
    ),
    output_schema=closed({"tools": TOOLS, **_PAGE}, ["tools"]),
    handle=_list,
    cause="search",
)

LIST_NAMESPACES: Final = MetaTool(
    name="list_namespaces",
    description="Namespaces with tool counts.",
    input_schema=closed(_PAGING),
    output_schema=closed(
        {
            "namespaces": TEXTS,
            "toolCounts": {**OBJECT, "additionalProperties": {"type": "integer"}},
            "nextCursor": TEXT,
        },
        ["namespaces", "toolCounts"],
    ),
    handle=_namespaces,
    cause="search",
)
