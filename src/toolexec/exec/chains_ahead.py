"""The part of an `Exec` that proposes chains: which calls lead to a tool, and which arguments travel between them."""

from __future__ import annotations

import asyncio
import copy
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from toolexec.discovery.docs import DocStore
from toolexec.discovery.index import Index, get_tool
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.exec.chain import Step
from toolexec.exec.options import Options
from toolexec.exec.sources import Sources

if TYPE_CHECKING:
    from toolexec.discovery.links.links import Links
    from toolexec.discovery.links.plan import MissingArgument
from toolexec.model.settings import checked

__all__ = ["ChainSuggestion", "ChainsAhead"]

_MANY_TOOLS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSuggestion:
    """A chain that ends in the tool `goal`; once nothing is `missing`, `run_chain(suggestion.steps)` runs it.

    Arguments are references to earlier steps, constants (defaults, the only possible value), or what was given. Where
    a result is a list, its first item is taken. `missing` are the arguments that somebody must give, see `with_args`.
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

    def with_args(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> ChainSuggestion:
        """The suggestion with values for missing arguments, by their names, in all the steps that need them.

        *values* is for names that are no Python names (`body.issue_id`). A value is data: something in it that looks
        like a reference is none. Raises ConfigurationError for a name that is not missing.
        """
        from toolexec.discovery.links.plan import literal, set_argument

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

    def to_dict(self) -> dict[str, Any]:
        """The suggestion as JSON-able data, without what is empty; its `steps` can be given to `run_chain`."""
        data: dict[str, Any] = {
            "goal": self.goal,
            "steps": [{"tool": step.tool_id, "args": copy.deepcopy(dict(step.args or {}))} for step in self.steps],
            "confidence": round(self.confidence, 3),
        }
        rest: dict[str, Any] = {
            "missing": [each.to_dict() for each in self.missing],
            "reasons": list(self.reasons),
            "needsConfirmation": list(self.needs_confirmation),
        }
        return data | {key: value for key, value in rest.items() if value}


class ChainsAhead:
    """What an `Exec` can say about calls that were not made yet."""

    options: Options
    index: Index
    _sources: Sources
    _links: Links | None = None

    if TYPE_CHECKING:

        def visible(self) -> tuple[Index, DocStore]:
            """See `Finding.visible`."""
            ...

    @property
    def links(self) -> Links:
        """Which tools make the arguments that others need; kept from the first time that somebody asks. What a
        `LinkWatch` among the layers has seen counts, too."""
        if self._links is None:
            from toolexec.discovery.links.links import Links
            from toolexec.run.layers.link_watch import LinkWatch

            watch = next((layer for layer in self.options.layers if isinstance(layer, LinkWatch)), None)
            if watch is not None and watch.find is None:
                watch.find = self.index.find
            self._links = Links(self.index, observations=watch.observations if watch is not None else None)
        return self._links

    async def links_ready(self) -> Links:
        """The `links` once all tools were looked at; where there are many, the event loop goes on meanwhile."""
        links = self.links
        if links.pending > _MANY_TOOLS:
            await asyncio.to_thread(links.build)
        return links

    @checked("suggest_chain")
    async def suggest_chain(
        self, goal: str, args: Mapping[str, Any] | None = None, *, depth: int = 3
    ) -> ChainSuggestion:
        """A chain whose last step is the tool *goal*, for `run_chain`.

        *args* are arguments of the goal that are known already. There are at most *depth* producers in a row (0 to 6)
        and 8 steps in all. Read-only tools are preferred, others flagged; tools that cannot be called just now, and
        those that the `current_origin` may not know of, are not used. Nothing is run.

        Raises ToolNotFoundError and InvalidToolIDError for the goal, ConfigurationError for the depth.
        """
        from toolexec.discovery.links.plan import plan_chain

        if self._sources.pending:
            await self._sources.start()
        index, docs = self.visible()
        found = get_tool(index, goal).tool

        def usable(tool_id: str) -> bool:
            hidden = index.find(tool_id) is None
            return not hidden and (tool_id == found.id or not self._sources.unavailable(tool_id))

        def example(tool_id: str) -> Mapping[str, Any]:
            try:
                examples = docs.list_examples(tool_id, 1)
            except ToolExecError:
                return {}
            return examples[0].args if examples else {}

        plan = plan_chain(
            await self.links_ready(), index, found.id, args, depth=depth, visible=usable, examples=example
        )
        return ChainSuggestion(
            goal=found.id,
            steps=tuple(Step(call.tool_id, call.args) for call in plan.calls),
            missing=tuple(plan.missing),
            confidence=plan.confidence,
            reasons=tuple(plan.reasons),
            needs_confirmation=tuple(plan.needs_confirmation),
        )
