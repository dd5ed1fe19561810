"""Exchange how tools are shown, and tools that are composed of others, while calls are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolexec.discovery.index import bulk
from toolexec.errors import BackendNotFoundError, ConfigurationError, ToolNotFoundError
from toolexec.exec.adding import AddedTool
from toolexec.model.binding import LocalBinding
from toolexec.model.tool import Tool
from toolexec.model.transform import ToolTransform, Transforms

if TYPE_CHECKING:
    from toolexec.exec.parts import Parts
    from toolexec.workflow.skill import Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A tool that was added, as it is to be shown, and the ID by which it is shown until then; None and "" for not at
    all."""

    added: AddedTool
    shown: Tool | None
    before: str = ""
    skill: Skill | None = None
    stays: bool = True


def prepare_tools(
    parts: Parts,
    transforms: Mapping[str, ToolTransform | Mapping[str, Any]],
    remove_skills: Collection[str],
    add_skills: Sequence[Skill],
) -> Callable[[], None]:
    """Make and check what is to be exchanged, and return what does it; see `Exec.prepare_tools`."""
    live = parts.transforms
    if live is None:
        raise ConfigurationError("how tools are shown can be exchanged only where the gate is a LiveGate")
    drafts = Transforms(transforms)
    changed, steps = live.differences(drafts), list[_Step]()
    skills = {skill.id: skill for skill in parts.skills.known.values()} if parts.has_skills else {}
    gone = {*remove_skills} & skills.keys()
    for added in list(parts.adding.added.values()):
        own = added.tool.id
        if own in gone:
            steps.append(_Step(added=added, shown=None, before=added.shown, stays=False))
        elif own in changed:
            steps.append(_step(drafts, added, skills.get(own)))
    for skill in add_skills:
        tool = parts.skills.checked(skill)
        made = AddedTool(tool=tool, binding=LocalBinding(tool.id), doc=None, shown="")
        if made.key in parts.adding.added and tool.id not in gone:
            raise ConfigurationError(f"there is a tool {tool.id} already; choose another name")
        steps.append(_step(drafts, made, skill))
    _check_ids(parts, steps)
    return partial(_exchange, parts, live, drafts, steps, has_other_forms=bool(changed))


def _step(drafts: Transforms, added: AddedTool, skill: Skill | None) -> _Step:
    shown = None if drafts.hides(added.tool) else drafts.apply(added.tool.check_schemas())
    after = replace(added, shown=shown.id if shown is not None else "")
    return _Step(added=after, shown=shown, before=added.shown, skill=skill)


def _check_ids(parts: Parts, steps: Sequence[_Step]) -> None:
    """Raise ConfigurationError for an ID that another tool has, or that two are to have."""
    free = {step.before for step in steps}
    wanted: set[str] = set()
    for step in steps:
        if step.shown is None:
            continue
        tool_id = step.shown.id
        found = parts.discovery.index.find(tool_id) if tool_id not in free else None
        if tool_id in wanted or (found is not None and found.tool.id == tool_id):
            raise ConfigurationError(f"there is a tool {tool_id} already; choose another name")
        wanted.add(tool_id)


def _exchange(
    parts: Parts, live: Transforms, drafts: Transforms, steps: Sequence[_Step], *, has_other_forms: bool
) -> None:
    was_used = live.is_used
    live.exchange(drafts)
    if live.is_used and not was_used:
        parts.calls.transform()
    index, added = parts.discovery.index, parts.adding.added
    after = {step.shown.id for step in steps if step.shown is not None}
    for step in steps:
        if step.before and step.before not in after:
            with suppress(ToolNotFoundError, BackendNotFoundError):
                index.unregister(step.before, step.added.binding)
        if step.before and parts.has_skills:
            parts.skills.known.pop(step.before, None)
        if not step.stays:
            added.pop(step.added.key, None)  # its handler stays, for calls that are on their way to it
    for step in steps:
        if not step.stays:
            continue
        added[step.added.key] = step.added
        if step.skill is not None:
            parts.local.register(step.added.tool.id, parts.skills.handler(step.skill))
            parts.skills.know(step.added.shown or step.added.tool.id, step.skill)
        if step.shown is not None:
            bulk(index).replace(step.shown, step.added.binding)
            if step.added.doc is not None:
                parts.discovery.register_doc(step.shown.id, parts.adding.doc_of(step.shown, step.added.doc))
    if has_other_forms:
        parts.sources.republish()
    if parts.has_skills:
        parts.skills.refresh()
