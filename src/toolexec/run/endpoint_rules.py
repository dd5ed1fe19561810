"""The rules of a server with several endpoints: at each of them its own policy, and its own part of all tools."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolexec.discovery.index import Index, Registered, get_tool
from toolexec.errors import ToolNotFoundError
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin
from toolexec.run.layer import Layer
from toolexec.run.policy import Authorize, Policy
from toolexec.run.policy_rules import Verdict
from toolexec.run.resolve import Find, resolved
from toolexec.run.run_request import RunRequest
from toolexec.run.runner import Runner

if TYPE_CHECKING:
    from toolexec.discovery.toolset import Toolset

_CLOSED: Final = "there is no such endpoint"
_ELSEWHERE: Final = "the tool is not in the toolsets of this endpoint"
_NOTHING: Final = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesAt:
    """What holds at one endpoint: its *policy*, and the tools that there are (None: all)."""

    policy: Policy
    toolset: Toolset | None = None


class EndpointRules:
    """A part of a gate, in the place of its policy: a caller is judged by the rules of the endpoint that it came to.

    A tool outside of the toolset of an endpoint is not there, for its callers: it is not found, by no ID, not even as a
    suggestion. *rules* has what holds at each endpoint by its name; "" is the main one, and what the program does for
    itself. Callers of an endpoint that has none, as of one that was closed, may do nothing. No caller has
    any tools before `on` has said which index they are in.
    """

    def __init__(self, rules: Mapping[str, RulesAt]) -> None:
        self.rules: Mapping[str, RulesAt] = dict(rules)
        self._members: dict[str, Callable[[Registered], bool] | None] = {}
        self._views: dict[str, Index] = {}

    def on(self, index: Index) -> None:
        """Have the toolsets choose from *index*, where all tools are."""
        for name, rules in self.rules.items():
            toolset = rules.toolset
            self._members[name] = None if toolset is None else toolset.on(index)
            self._views[name] = index if toolset is None else toolset.view(index)

    def index(self, endpoint: str) -> Index | None:
        """Return the tools that there are at *endpoint*, whatever its callers may do with them; None for one without
        rules."""
        return self._views.get(endpoint)

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that refuses what there is not at the endpoint of a call, and what its policy denies."""
        return _Present(Authorize(inner, find, self.decide, self.shows), find, self)

    def decide(self, entry: Registered, call: ToolCall) -> Verdict:
        """Return what becomes of *call*; see `Policy.decide`."""
        rules = self.rules.get(call.origin.caller.endpoint)
        if rules is None or not self.has(entry, call.origin):
            return Verdict(effect=_NOTHING, rule="endpoint", reason=_CLOSED if rules is None else _ELSEWHERE)
        return rules.policy.decide(entry, call)

    def decide_run(self, run: RunRequest) -> Verdict:
        """Return whether the run may begin; see `Policy.decide_run`."""
        rules = self.rules.get(run.origin.caller.endpoint)
        if rules is None:
            return Verdict(effect=_NOTHING, rule="endpoint", reason=_CLOSED)
        return rules.policy.decide_run(run)

    def has(self, entry: Registered, origin: Origin) -> bool:
        """Return whether there is the tool at the endpoint of *origin*."""
        endpoint = origin.caller.endpoint
        if endpoint not in self._members:
            return False
        members = self._members[endpoint]
        return members is None or members(entry)

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether *origin* may know of the tool."""
        rules = self.rules.get(origin.caller.endpoint)
        return rules is not None and self.has(entry, origin) and rules.policy.shows(entry, origin)


class _Lasting(EndpointRules):
    """Rules that always say the same of the same tool: no toolset goes by a search."""

    def view_key(self, origin: Origin) -> Hashable:
        """Return the same for all callers that the rules show the same tools to; see `HidesTheSame`."""
        endpoint = origin.caller.endpoint
        rules = self.rules.get(endpoint)
        return (endpoint, rules.policy.view_key(origin) if rules is not None else None)


def endpoint_rules(rules: Mapping[str, RulesAt]) -> EndpointRules:
    """Return the part of a gate for endpoints with these *rules*, by name."""
    searches = any(each.toolset is not None and each.toolset.is_ranked for each in rules.values())
    return EndpointRules(rules) if searches else _Lasting(rules)


class _Present(Layer):
    """Raises ToolNotFoundError for what there is not at the endpoint of a call, as for what there is nowhere."""

    def __init__(self, inner: Runner, find: Find, rules: EndpointRules) -> None:
        super().__init__(inner)
        self._find = find
        self._rules = rules

    def before(self, call: ToolCall) -> None:
        """Refuse a call; see `Layer.before`."""
        try:
            entry = resolved(call, self._find)
        except ToolNotFoundError:
            entry = None
        if entry is not None and self._rules.has(entry, call.origin):
            return
        index = self._rules.index(call.origin.caller.endpoint)
        if index is not None:
            get_tool(index, call.tool_id)  # raises, with suggestions of this endpoint
        raise ToolNotFoundError(call.tool_id)
