"""The commands that look: search, describe, list, backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.cli.exit_codes import NOT_RUN, OK
from toolexec.cli.progress import watch
from toolexec.cli.session import Session
from toolexec.cli.tables import backends_table, explained, facets_table, listing, search_table
from toolexec.discovery import Filters
from toolexec.discovery.view import browsable
from toolexec.model import ToolID
from toolexec.model.json_value import JSONDict
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.backend import BackendStatus
    from toolexec.discovery import DetailLevel, Summary

_MAX_NAMESPACES = 20
_MAX_QUERY = 100
"""Of what a search without results repeats, so that it stays a line or two."""


async def connect(session: Session) -> None:
    """Start all backends and wait for them, as long as the Exec's `start_timeout`."""
    from toolexec.cli.known_tools import remember_tools

    with watch(session.screen, "connecting"):
        await session.ex.start()
    if session.files:
        remember_tools(session)


async def connect_for(session: Session, tool_id: str) -> None:
    """Start what is needed for one tool: its own server if the ID names one, else all."""
    from toolexec.backend.base import LiveBackend

    ex = session.ex
    if ex.index.find(tool_id) is not None:
        return
    backend = ex.backends.get(ToolID.parse(tool_id).namespace)
    if isinstance(backend, LiveBackend):
        with watch(session.screen, f"connecting to {backend.name}"):
            await backend.start()
    if ex.index.find(tool_id) is None:
        await connect(session)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is searched for, and what is to be shown of it."""

    query: str
    limit: int
    filters: Filters
    explain: bool = False
    facets: bool = False
    produces: str | None = None


async def search(session: Session, asked: Asked) -> int:
    """`toolexec search`: the best tools for the words."""
    ex, screen = session.ex, session.screen
    with watch(screen, "connecting"):  # to those whose tools are not stored
        found = await ex.search_tools(
            asked.query, asked.limit, filters=asked.filters, explain=asked.explain, produces=asked.produces
        )
    counts = await ex.tool_facets(asked.query, filters=asked.filters) if asked.facets else None
    down = unavailable(session)
    if screen.as_json:
        more: JSONDict = {"didYouMean": found.did_you_mean, "note": found.note}
        more["facets"] = counts.to_dict() if counts is not None else None
        data = {"query": asked.query, "tools": [summary.to_dict() for summary in found]}
        screen.document(data | {key: value for key, value in more.items() if value} | unavailable_data(down))
        return OK
    if found:
        if found.did_you_mean:
            screen.note(f"did you mean: {visible_line(found.did_you_mean)}")
        screen.show(explained(found) if asked.explain else search_table(found))
        if counts is not None:
            screen.show(facets_table(counts))
    else:
        spaces = [name for name in browsable(ex.index).namespaces() if name]
        known = ", ".join(spaces[:_MAX_NAMESPACES]) or "none"
        others = f" and {len(spaces) - _MAX_NAMESPACES} more" if len(spaces) > _MAX_NAMESPACES else ""
        why = f" ({visible_line(found.note)})" if found.note else ""
        query = asked.query if len(asked.query) <= _MAX_QUERY else f"{asked.query[:_MAX_QUERY]}…"
        screen.note(f"nothing found for {query!r}{why}; namespaces: {known}{others}; toolexec list shows all tools")
    mention(session, down)
    return OK


async def describe(session: Session, tool_id: str, level: DetailLevel) -> int:
    """`toolexec describe`: what a tool takes, gives, and how to call it."""
    from toolexec.cli.manual import manual
    from toolexec.code.names import ToolNames
    from toolexec.code.stubs import stub_of

    await connect_for(session, tool_id)
    doc = await session.ex.get_tool_doc(tool_id, level)
    names, language = ToolNames(session.ex.index), session.ex.options.default_language
    stub = stub_of(doc.tool, names=names, language=language) if doc.tool is not None else ""
    if session.screen.as_json:
        session.screen.document(doc.to_dict() | ({"stub": stub} if stub else {}))
    else:
        session.screen.show(manual(doc, session.config, stub=stub))
    return OK


async def list_tools(session: Session, namespace: str | None, limit: int | None) -> int:
    """`toolexec list`: all tools by namespace, at most *limit* (None: all) of each."""
    await connect(session)
    ex, screen = session.ex, session.screen
    filters = Filters(namespace=namespace) if namespace is not None else None
    found = await ex.search_tools("", max(len(ex.index), 1), filters=filters)
    found.sort(key=lambda summary: (summary.namespace, summary.id))
    down = unavailable(session)
    if screen.as_json:
        data = {"count": len(found), "namespaces": _by_namespace(found)}
        screen.document(data | unavailable_data(down))
        return OK
    if found:
        screen.show(listing(found, limit))
    else:
        known = ", ".join(visible_line(name) for name in browsable(ex.index).namespaces() if name)
        screen.note(f"no tools{f' in {namespace}' if namespace else ''}; namespaces: {known or 'none'}")
    mention(session, down)
    return OK


async def backends(session: Session) -> int:
    """`toolexec backends`: how every place that hosts tools is."""
    await connect(session)
    return _show_statuses(session, session.ex.backend_statuses())


async def refresh(session: Session, name: str | None) -> int:
    """`toolexec backends refresh`: read the tools of one backend, or of all, again."""
    statuses = await session.ex.refresh(name)
    _show_statuses(session, statuses)
    return OK if all(each.available or not each.enabled for each in statuses) else NOT_RUN


def _show_statuses(session: Session, statuses: list[BackendStatus]) -> int:
    if session.screen.as_json:
        session.screen.document({"backends": [status.to_dict() for status in statuses]})
    else:
        session.screen.show(backends_table(statuses))
    return OK


def _by_namespace(found: list[Summary]) -> list[JSONDict]:
    groups: dict[str, list[JSONDict]] = {}
    for summary in found:
        groups.setdefault(summary.namespace, []).append(summary.to_dict())
    return [{"namespace": name, "count": len(tools), "tools": tools} for name, tools in groups.items()]


def unavailable(session: Session) -> list[BackendStatus]:
    """Return the backends whose tools may be missing from the answer."""
    return [status for status in session.ex.backend_statuses() if status.enabled and not status.available]


def unavailable_data(down: list[BackendStatus]) -> JSONDict:
    """Return the same for JSON: the key `unavailable`, or nothing when all are there."""
    return {"unavailable": [{"backend": s.name, "reason": s.reason} for s in down]} if down else {}


def mention(session: Session, down: list[BackendStatus]) -> None:
    """Print the same for people, on stderr."""
    for status in down:
        session.screen.note(f"unavailable: {status.name}: {visible_line(status.reason or '', 300)}", style="yellow")
    if down and session.screen.err.is_terminal:
        session.screen.err.print(Text("its tools may be missing above; toolexec backends says more", style="dim"))
