"""Chains that an `Exec` proposes: which calls lead to a tool, and which arguments travel between them."""

from __future__ import annotations

import copy
import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolexec.discovery.index import get_tool
from toolexec.discovery.links.plan import literal, plan_chain, set_argument
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.exec.chain import Step
from toolexec.model.json_value import JSONDict, JSONObject

if TYPE_CHECKING:
    from toolexec.discovery.links.plan import MissingArgument
    from toolexec.exec.links import KeptLinks
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSuggestion:
    """A chain that ends in the tool `goal`; once nothing is `missing`, `run_chain(suggestion.steps)` runs it.

    Arguments are references to earlier steps, constants (defaults, the only possible value), or what was given. Where
    a result is a list, its first item is taken. `missing` are the arguments that the caller must give, see `with_args`.
    `confidence` is between 0 and 1: the product of the scores of the links that are used, 1 when there are none;
    `reasons` say what they are. `needs_confirmation` lists the tools before the goal that are not known to be
    read-only (they are there only because nothing else gives what is needed), and the goal if it is not read-only and
    works on what was only the first of several.
    """

    goal: str
    steps: tuple[Step, ...]
    missing: tuple[MissingArgument, ...] = ()
    confidence: float = 1.0
    reasons: tuple[str, ...] = ()
    needs_confirmation: tuple[str, ...] = ()

    def with_args(self, values: JSONObject | None = None, /, **named: Any) -> ChainSuggestion:
        """Return the suggestion with values for missing arguments, by their names, in all the steps that need them.

        *values* is for names that are not Python names (`body.issue_id`). A value is data: something in it that looks
        like a reference is not treated as one. Raises ConfigurationError for a name that is not missing.
        """
        given = {**(values or {}), **named}
        missing = {each.name: each for each in self.missing}
        unknown = next((name for name in given if name not in missing), None)
        if unknown is not None:
            close = difflib.get_close_matches(str(unknown)[:100], missing, 1)
            hint = f"did you mean {close[0]}?" if close else f"missing are: {', '.join(missing) or 'none'}"
            raise ConfigurationError(f"no argument {str(unknown)[:100]!r} is missing; {hint}", tool_id=self.goal)
        args = [copy.deepcopy(dict(step.args or {})) for step in self.steps]
        for name, value in given.items():
            for number, names in missing[name].places:
                set_argument(args[number], names, literal(value))
        return replace(
            self,
            steps=tuple(replace(step, args=own) for step, own in zip(self.steps, args, strict=True)),
            missing=tuple(each for each in self.missing if each.name not in given),
        )

    def to_dict(self) -> JSONDict:
        """Return the suggestion as JSON-able data, without what is empty; its `steps` can be given to `run_chain`."""
        data: JSONDict = {
            "goal": self.goal,
            "steps": [{"tool": step.tool_id, "args": copy.deepcopy(dict(step.args or {}))} for step in self.steps],
            "confidence": round(self.confidence, 3),
        }
        rest: JSONDict = {
            "missing": [each.to_dict() for each in self.missing],
            "reasons": list(self.reasons),
            "needsConfirmation": list(self.needs_confirmation),
        }
        return data | {key: value for key, value in rest.items() if value}


class ChainPlanner:
    """Proposes chains of tools that are in a scope and can be called just now; starts the backends first."""

    def __init__(self, scope: Scope, sources: Sources, links: KeptLinks) -> None:
        self._scope = scope
        self._sources = sources
        self._links = links

    async def suggest(self, goal: str, args: JSONObject | None, *, depth: int) -> ChainSuggestion:
        """Return a chain whose last step is the tool *goal*; see `Exec.suggest_chain`."""
        if self._sources.pending:
            await self._sources.start()
        index, docs = self._scope.visible()
        found = get_tool(index, goal).tool

        def usable(tool_id: str) -> bool:
            hidden = index.find(tool_id) is None
            return not hidden and (tool_id == found.id or not self._sources.unavailable(tool_id))

        def example(tool_id: str) -> JSONObject:
            try:
                examples = docs.list_examples(tool_id, 1)
            except ToolExecError:
                return {}
            return examples[0].args if examples else {}

        plan = plan_chain(
            await self._links.ready(), index, found.id, args, depth=depth, visible=usable, examples=example
        )
        return ChainSuggestion(
            goal=found.id,
            steps=tuple(Step(call.tool_id, call.args) for call in plan.calls),
            missing=tuple(plan.missing),
            confidence=plan.confidence,
            reasons=tuple(plan.reasons),
            needs_confirmation=tuple(plan.needs_confirmation),
        )
