"""What of all its tools an `Exec` can see at all."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from toolexec.discovery.view import DocsView
from toolexec.model.call import ToolCall
from toolexec.model.origin import current_origin
from toolexec.run.resolve import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolexec.backend.registry import BackendRegistry
    from toolexec.discovery.docs import DocStore
    from toolexec.discovery.facade import Discovery
    from toolexec.discovery.index import Index, Registered
    from toolexec.discovery.learned import LearnedOutputs
    from toolexec.exec.options import Options
    from toolexec.model.json_value import JSONObject


class Scope:
    """The index, the documentation and the resolver for all that is asked and run: of the options' toolset, if there is
    one, else of all tools.

    Search, descriptions, calls, chains, streams, code and servers all start from these, so that a tool outside of the
    toolset is on no way to any of them.
    """

    index: Index
    resolver: Resolver

    def __init__(self, options: Options, discovery: Discovery, backends: BackendRegistry) -> None:
        self._gate = options.own_gate
        self._discovery = discovery
        self._members: Callable[[Registered], bool] | None = None
        toolset, everything = options.toolset, discovery.index
        if toolset is None:
            self.index = everything
            self.resolver = Resolver(
                everything,
                backends,
                tool_resolver=options.tool_resolver,
                bindings_resolver=options.bindings_resolver,
            )
            return
        members, view = toolset.on(everything), toolset.view(everything)
        self._members = members

        def shows(entry: Registered) -> bool:
            # A tool of the index is what it is there, whatever a resolver says of it.
            return everything.find(entry.tool.id) is None and members(entry)

        self.index = view
        self.resolver = Resolver(
            view,
            backends,
            tool_resolver=options.tool_resolver,
            bindings_resolver=options.bindings_resolver,
            shows=shows,
        )

    @cached_property
    def docs(self) -> DocStore:
        """The documentation of the tools in `index`."""
        docs = self._discovery.docs
        return docs if self._members is None else DocsView(docs, self.index)

    @property
    def learned(self) -> LearnedOutputs | None:
        """What tools without an output schema were seen to answer; see `Exec.learned`."""
        part = self._gate.learning if self._gate is not None else None
        if part is None:
            return None
        from toolexec.run.layers.learning import Learning

        return part.outputs if isinstance(part, Learning) else None

    def shows(self, entry: Registered) -> bool:
        """Return whether what a backend offers beside tools may be known of just now: it is in the toolset, and the
        gate does not hide it from the `current_origin`."""
        if self._members is not None and not self._members(entry):
            return False
        return self._gate is None or self._gate.shows(entry, current_origin())

    def check_denied(self, entry: Registered, args: JSONObject) -> None:
        """Raise PolicyError where a rule forbids the `current_origin` this call of what a backend offers, or a pin
        holds that."""
        if self._gate is not None:
            from toolexec.run.admission import check_denied

            check_denied(self._gate, entry, ToolCall(entry.tool.id, args, origin=current_origin()))

    def visible(self) -> tuple[Index, DocStore]:
        """Return the tools that may be known of just now, and their documentation: all, unless a gate hides some from
        the `current_origin`."""
        gate = self._gate
        return gate.view(self.index, self.docs, current_origin()) if gate is not None else (self.index, self.docs)

    def visible_index(self) -> Index:
        """Return those tools alone: what searches has no use for the documentation, which is not loaded then."""
        return self.visible()[0] if self._gate is not None else self.index
