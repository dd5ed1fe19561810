"""What of all its tools an `Exec` can see at all."""

from __future__ import annotations

from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.docs import DocStore
from toolexec.discovery.facade import Discovery
from toolexec.discovery.index import Index, Registered
from toolexec.discovery.view import DocsView
from toolexec.exec.options import Options
from toolexec.run.resolve import Resolver

__all__ = ["seen_by"]


def seen_by(options: Options, discovery: Discovery, backends: BackendRegistry) -> tuple[Index, DocStore, Resolver]:
    """The index, the documentation and the resolver for all that is asked and run: of the options' toolset, if there is
    one, else of all tools. Search, descriptions, calls, chains, streams, code and servers all start from these, so that
    a tool outside of the toolset is on no way to any of them."""
    toolset, everything = options.toolset, discovery.index
    if toolset is None:
        resolver = Resolver(
            everything,
            backends,
            tool_resolver=options.tool_resolver,
            bindings_resolver=options.bindings_resolver,
        )
        return everything, discovery.docs, resolver
    members, view = toolset.on(everything), toolset.view(everything)

    def shows(entry: Registered) -> bool:
        # A tool of the index is what it is there, whatever a resolver says of it.
        return everything.find(entry.tool.id) is None and members(entry)

    resolver = Resolver(
        view,
        backends,
        tool_resolver=options.tool_resolver,
        bindings_resolver=options.bindings_resolver,
        shows=shows,
    )
    return view, DocsView(discovery.docs, view), resolver
