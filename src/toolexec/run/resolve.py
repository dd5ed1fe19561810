"""From a tool ID to the tool and the binding to use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from toolexec.backend.offering import KIND_MARKS, OffersMore
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index, Registered, get_tool
from toolexec.discovery.view import browsable
from toolexec.errors import (
    BackendUnavailableError,
    LoginRequiredError,
    NoBackendsError,
    ToolExecError,
    ToolNotFoundError,
)
from toolexec.model.arguments import are_same
from toolexec.model.binding import Binding, BindingSelector, prefer_local
from toolexec.model.call import CallNotes, ToolCall
from toolexec.model.ids import ToolID
from toolexec.model.json_value import JSONObject
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.run.layer import CallEnd
    from toolexec.run.policy_rules import Decide, Verdict

ToolResolver: TypeAlias = Callable[[str], Tool | None]
BindingsResolver: TypeAlias = Callable[[str], Sequence[Binding]]
Find: TypeAlias = Callable[[str], Registered]
"""Finds the tool that a call means; raises as `Resolver.resolve` does."""


class Resolution:
    """The tool that one call means, found by *find*, and the verdict on the call: each asked for once, by the first
    rule that needs it, and carried along in `ToolCall.resolution` for the others and for the runner.

    Once all rules have let the call pass, it is admitted: with this tool, this binding and these arguments. The
    resolutions of all attempts at one call share their `trail`.
    """

    __slots__ = ("_admitted", "_args", "_kept", "decide", "entry", "find", "trail", "verdict")

    def __init__(self, find: Find, entry: Registered | None = None, trail: Trail | None = None) -> None:
        self.find: Final = find
        self.entry: Registered | None = entry
        self.trail: Final = trail or Trail()
        self.decide: Decide | None = None
        self.verdict: Verdict | None = None
        self._admitted: Registered | None = None
        self._args: JSONObject | None = None
        self._kept: JSONObject | None = None

    def admit(self, call: ToolCall, entry: Registered, kept: JSONObject | None = None) -> None:
        """Record that all rules let *call* pass, by *entry*. *kept* is a copy of its arguments, where something may
        change them in place before the call is made."""
        self.entry = self._admitted = entry
        self._args = call.args
        self._kept = kept

    def admitted(self, call: ToolCall) -> Registered | None:
        """Return by what *call* may be made; None where no rule has decided on it, with these arguments."""
        if self._admitted is not self.entry or self._args is not call.args:
            return None
        return self._admitted if self._kept is None or are_same(self._kept, call.args) else None

    def again(self, call: ToolCall, copy: ToolCall, find: Find, entry: Registered) -> Resolution:
        """Return the resolution of a *copy* of *call* that is to be made with *entry*: admitted, if *call* was, for the
        same tool, binding and arguments. Whether these were changed in place is for the door to find."""
        made = Resolution(find, entry, self.trail)
        is_admitted = self._admitted is self.entry is entry and self._args is call.args
        if is_admitted and copy.tool_id == call.tool_id and copy.args is call.args:
            made.admit(copy, entry, self._kept)
        return made


class Trail(CallNotes):
    """What became of one call until now: how many attempts there were, and how the last one ended.

    `record` ends the record of the next attempt, where that has begun already: with the call itself, or with what takes
    its place. `noted` are the arguments of which a record is prepared, and what it says of them.
    """

    __slots__ = ("attempts", "last", "noted", "record")

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        self.last = ""
        self.record: CallEnd | None = None
        self.noted: tuple[JSONObject | None, str] | None = None


def resolved(call: ToolCall, find: Find) -> Registered:
    """Return the tool that the call means; raises as *find* does."""
    known = call.resolution
    if not isinstance(known, Resolution) or (known.find is not find and known.find != find):
        return find(call.tool_id)
    if known.entry is None:
        known.entry = find(call.tool_id)
    return known.entry


def copied(call: ToolCall, find: Find, entry: Registered, **changes: Any) -> ToolCall:
    """Return a copy of the call with *changes*, to be made with the tool *entry*, which is not looked up again.

    What the rules have admitted stays so for the same tool, binding and arguments.
    """
    copy = replace(call, waiting="", **changes)
    known = call.resolution
    if isinstance(known, Resolution):
        copy.resolution = known.again(call, copy, find, entry)
    else:
        copy.resolution = Resolution(find, entry)
    return copy


def child_of(call: ToolCall, find: Find, entry: Registered, args: JSONObject) -> ToolCall:
    """Return a call of the tool *entry* that is made because of *call*, which is its parent."""
    child = ToolCall(entry.tool.id, args, call.timeout, origin=replace(call.origin, parent=call.identify()))
    child.resolution = Resolution(find, entry)
    return child


def trail_of(call: ToolCall) -> Trail:
    """Return the trail of the call; one of its own where no gate has seen it."""
    known = call.resolution
    return known.trail if isinstance(known, Resolution) else Trail()


def still_bound(find: Find, entry: Registered) -> Registered:
    """Return the tool as it is now, by the binding of *entry* where that still exists; raises as *find* does."""
    now = find(entry.tool.id)
    if now.binding == entry.binding or entry.binding not in now.bindings:
        return now
    return entry if now.tool is entry.tool else Registered(now.tool, now.bindings, entry.binding)


def decided(call: ToolCall, entry: Registered, decide: Decide) -> Verdict:
    """Return the verdict of *decide* on the call of the tool *entry*."""
    known = call.resolution
    if not isinstance(known, Resolution) or known.entry is not entry:
        return decide(entry, call)
    if known.verdict is None or known.decide != decide:
        known.decide, known.verdict = decide, decide(entry, call)
    return known.verdict


class Resolver:
    """Asks the index first; what it does not know, *tool_resolver* and *bindings_resolver* may.

    With *shows*, what they know counts only where that says yes, and the index is a view that asks it, too: then the
    answer for a hidden tool is the one for a tool that there is not.
    """

    def __init__(
        self,
        index: Index | None,
        backends: BackendRegistry,
        *,
        tool_resolver: ToolResolver | None = None,
        bindings_resolver: BindingsResolver | None = None,
        selector: BindingSelector = prefer_local,
        shows: Callable[[Registered], bool] | None = None,
    ) -> None:
        self._shows = shows
        self._index = index
        self._backends = backends
        self._tool_resolver = tool_resolver
        self._bindings_resolver = bindings_resolver
        self._selector = selector

    def resolve(self, tool_id: str) -> Registered:
        """Return the tool and its binding.

        Raises InvalidToolIDError for a malformed ID, ToolNotFoundError when the tool is unknown (with a failed
        resolver as its cause), BackendUnavailableError when the ID's namespace is a backend that is not connected,
        NoBackendsError when the tool has no binding.
        """
        if isinstance(tool_id, str) and tool_id.endswith(KIND_MARKS):
            return self._offer(tool_id)
        found = self._index.find(tool_id) if self._index is not None else None
        if found is not None:
            return found
        parsed = ToolID.parse(tool_id)
        try:
            tool = self._tool_resolver(tool_id) if self._tool_resolver is not None else None
        except Exception as error:
            raise self._not_found(tool_id, parsed, f"the tool resolver failed: {error}") from error
        if tool is None:
            raise self._not_found(tool_id, parsed)
        if self._shows is None:
            return self._bound(tool_id, tool)
        try:
            found = self._bound(tool_id, tool)
        except NoBackendsError as error:  # which is more than may be said of a tool that may be hidden
            raise self._not_found(tool_id, parsed) from error
        if not self._shows(found):
            raise self._not_found(tool_id, parsed)
        return found

    def _offer(self, tool_id: str) -> Registered:
        """Return the resource or the prompt that a backend offers under this ID. One that two of them offer is refused:
        a rule about it would not say which."""
        offering = [backend for backend in self._backends.list() if isinstance(backend, OffersMore)]
        found = [offer.entry for backend in offering if (offer := backend.offered(tool_id)) is not None]
        if len(found) != 1 or (self._shows is not None and not self._shows(found[0])):
            raise ToolNotFoundError(tool_id)
        return found[0]

    def _bound(self, tool_id: str, tool: Tool) -> Registered:
        try:
            bindings = tuple(self._bindings_resolver(tool_id)) if self._bindings_resolver is not None else ()
        except Exception as error:
            raise _no_backends(tool_id, f"; the bindings resolver failed: {error}") from error
        if not bindings:
            raise _no_backends(tool_id, "; register it with a binding")
        try:
            chosen = self._selector(bindings)
        except Exception as error:
            raise _no_backends(tool_id, f"; the binding selector failed: {error}", "select_backend") from error
        if chosen not in bindings:
            raise _no_backends(tool_id, f"; the selector chose {chosen}, which is not offered", "select_backend")
        return Registered(tool, bindings, chosen)

    def _not_found(self, tool_id: str, parsed: ToolID, note: str = "") -> ToolExecError:
        backend = self._backends.get(parsed.namespace) if self._may_tell_of(parsed.namespace) else None
        status = backend.status() if backend is not None else None
        if status is not None and not status.available:
            message = f"{tool_id} cannot be looked up: backend {status.name} is unavailable: {status.reason}"
            if command := status.info.get("login_command"):
                details = {"command": command}
                return LoginRequiredError(message, tool_id=tool_id, backend=status.name, op="resolve", details=details)
            return BackendUnavailableError(message, tool_id=tool_id, backend=status.name, op="resolve")
        if self._index is not None and not note:
            try:
                get_tool(self._index, tool_id)
            except ToolNotFoundError as error:
                return error
        return ToolNotFoundError(tool_id, details={"note": note} if note else None)

    def _may_tell_of(self, namespace: str) -> bool:
        """Return whether the caller may know that there is a backend of this name."""
        if not namespace or self._shows is None or self._index is None:
            return bool(namespace)
        return namespace in browsable(self._index).namespaces()


def _no_backends(tool_id: str, note: str, op: str = "resolve") -> NoBackendsError:
    return NoBackendsError(f"no backend hosts {tool_id}{note}", tool_id=tool_id, op=op)
