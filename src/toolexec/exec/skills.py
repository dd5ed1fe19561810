"""Skills as tools of an `Exec`: workflows that run under their own limits, within those of their caller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from toolexec.code.limits import Limits
from toolexec.code.tools import ACTIVE
from toolexec.code.types import SKILL, CodeEvent, CodeResult
from toolexec.discovery.index import bulk
from toolexec.errors import ConfigurationError, ExecutionError, Outcome
from toolexec.model.binding import LocalBinding
from toolexec.model.bound import Bound
from toolexec.model.handler import Handler, ToolContext
from toolexec.model.ids import without_version
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import CURRENT
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.run.repeating import outcome_of
from toolexec.workflow.checker import check
from toolexec.workflow.findings import check_error
from toolexec.workflow.skill import Skill

if TYPE_CHECKING:
    from collections.abc import Generator

    from toolexec.discovery.index import ChangeEvent, Index
    from toolexec.exec.adding import Adding
    from toolexec.exec.code import CodeRuns, CodeSettings
    from toolexec.exec.durable import DurableRuns

MAX_CALLS: Final = 64
"""How many tool calls a run of a skill makes at most where its front matter does not say."""

_RUNNING: ContextVar[tuple[str, ...]] = ContextVar("toolexec_skills", default=())
"""The IDs of the skills that the current work is a part of, the outermost first."""
_DURABLE: ContextVar[str] = ContextVar("toolexec_durable_skill", default="")
"""The ID of the durable run that the next skill is to be."""


@contextmanager
def durable_skill(run_id: str) -> Generator[None, None, None]:
    """Have a skill that is called in the block be a durable run: where that waits, a RunWaitingError is the cause of
    its failure."""
    with Bound(_DURABLE, run_id):
        yield


def read_skill(given: Skill | str | Path) -> Skill:
    """Return the skill in a file, or in a string that begins with its front matter.

    Raises ConfigurationError for a file that cannot be read, and as `Skill.parse` does.
    """
    if isinstance(given, Skill):
        return given
    if isinstance(given, str) and given.lstrip().startswith("+++"):
        return Skill.parse(given)
    try:
        return Skill.parse(Path(given).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the skill {given} cannot be read: {error}") from error


class Skills:
    """Adds skills as tools, and runs them."""

    def __init__(
        self, index: Index, adding: Adding, code: Callable[[], CodeRuns], durable: Callable[[], DurableRuns]
    ) -> None:
        self._index = index
        self._adding = adding
        self._code = code
        self._durable = durable
        self.known: dict[str, Skill] = {}
        """The skills that were added, by the IDs of their tools."""
        self._called: set[str] = set()  # the tools that they name, without versions
        self._refreshing = Lock()
        self._is_stale = False
        self._unwatch: Callable[[], None] | None = None

    def add(self, given: Skill | str | Path) -> Tool:
        """Add a skill and return its tool; see `Exec.add_skill`."""
        skill = read_skill(given)
        tool = self._adding.add(self.checked(skill), None, self.handler(skill), None, None)
        self.know(tool.id, skill)
        return tool

    def checked(self, skill: Skill) -> Tool:
        """Return the tool of a skill, by itself; raises WorkflowCheckError for mistakes that no tool is needed to
        see."""
        mistakes = [finding for finding in check(skill.workflow) if finding.severity == "error"]
        if mistakes:
            raise check_error(mistakes)
        return skill.tool(self._hints(skill))

    def handler(self, skill: Skill) -> Handler:
        """Return what runs a skill as a tool."""
        return Handler(call=partial(self._run, skill), kind="async", wants_context=True)

    def know(self, tool_id: str, skill: Skill) -> None:
        """Keep a skill that is in the index under this ID, and its hints up to date."""
        self.known[tool_id] = skill
        self._called |= set(map(without_version, skill.tools()))
        if self._unwatch is None:
            self._unwatch = self._index.on_change(self._changed)

    def refresh(self) -> None:
        """Bring the hints of all skills up to date."""
        for tool_id, skill in list(self.known.items()):
            self._refresh(tool_id, skill)

    def close(self) -> None:
        """Watch the tools no more."""
        if self._unwatch is not None:
            self._unwatch()

    def _hints(self, skill: Skill, within: tuple[str, ...] = ()) -> ToolAnnotations:
        """Return what follows from the tools that a skill names; nothing where one of them is not known yet.

        *within* are the skills that it is a part of: nothing follows from one that would call itself.
        """
        found = [self._hints_of(tool_id, (*within, skill.id)) for tool_id in skill.tools()]
        if skill.calls_others or None in found:
            return ToolAnnotations()
        hints = [set(each.on()) for each in found if each is not None]
        return ToolAnnotations(
            read_only=all("read_only" in each for each in hints),
            idempotent=all(each & {"read_only", "idempotent"} for each in hints),
            destructive=any("destructive" in each for each in hints),
            open_world=any("open_world" in each for each in hints),
        )

    def _hints_of(self, tool_id: str, within: tuple[str, ...]) -> ToolAnnotations | None:
        entry = self._index.find(tool_id)
        if entry is None or entry.tool.id in within:
            return None
        skill = self.known.get(entry.tool.id)
        return entry.tool.annotations if skill is None else self._shown(skill, within).annotations

    def _shown(self, skill: Skill, within: tuple[str, ...] = ()) -> Tool:
        return self._adding.shown(skill.tool(self._hints(skill, within)))

    def _changed(self, event: ChangeEvent) -> None:
        """Bring the hints of all skills up to date after a change of a tool that one of them calls."""
        if without_version(event.tool_id) not in self._called:
            return
        self._is_stale = True
        while self._is_stale and self._refreshing.acquire(
            blocking=False
        ):  # else another thread does so, and looks again
            try:
                self._is_stale = False
                for tool_id, skill in list(self.known.items()):
                    self._refresh(tool_id, skill)
            finally:
                self._refreshing.release()

    def _refresh(self, tool_id: str, skill: Skill) -> None:
        entry = self._index.find(tool_id)
        shown = self._shown(skill)
        if entry is not None and entry.tool.id == tool_id and entry.tool.annotations != shown.annotations:
            bulk(self._index).replace(shown, LocalBinding(skill.id))

    async def _run(self, skill: Skill, args: JSONObject, context: ToolContext) -> Any:
        """Run a skill; raises ExecutionError, whose cause is what went wrong in it."""
        around = _RUNNING.get()
        if skill.id in around:
            path = " calls ".join([*around[around.index(skill.id) :], skill.id])
            raise ExecutionError(f"a skill must not call itself: {path}", tool_id=skill.id, op="execute")
        caller = ACTIVE.get()
        if caller is not None and caller.is_closed():  # a task that outlived the run which it was begun in
            caller = None
        with Bound(_RUNNING, (*around, skill.id)), Bound(CURRENT, context.inner):
            if (run_id := _DURABLE.get()) and not around and caller is None:
                settings: CodeSettings = {**skill_settings(skill, args), "on_event": _Reports(context)}
                result = await self._durable().execute_code(run_id, skill.source, settings)
            else:
                code = self._code()
                request = code.request(skill.source, skill_settings(skill, args))
                result = await code.run_request(replace(request, gateway=caller, on_event=_Reports(context)))
        if result.stdout:
            context.log("info", result.stdout.rstrip("\n"))
        if (failure := skill_failure(skill.id, result)) is not None:
            raise failure from failure.__cause__
        return result.value


def skill_failure(skill_id: str, result: CodeResult) -> ExecutionError | None:
    """Return the failure of a skill, whose cause is that of its run; None for a run that has not failed."""
    if result.error is None:
        return None
    details = {**result.error.details, "code": result.error.code}
    if result.undone:
        details["undone"] = [each.to_dict() for each in result.undone]
    outcome = _outcome_of(result)
    failure = ExecutionError(f"{skill_id} failed: {result.error}", tool_id=skill_id, details=details, outcome=outcome)
    failure.__cause__ = result.error
    return failure


def _outcome_of(result: CodeResult) -> Outcome:
    """Return what became of a skill that failed: whether certainly none of its calls has done anything that lasts."""
    is_undone = bool(result.undone) and all(each.ok for each in result.undone)
    if is_undone or all(outcome_of(call.error).is_undone for call in result.tool_calls):
        return Outcome.REFUSED
    return Outcome.UNKNOWN


class _Reports:
    """Reports the tool calls of a run as the progress of its tool."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._done = 0

    def __call__(self, event: CodeEvent) -> None:
        if event.kind == "call_end" and event.call is not None:
            self._done += 1
            self._context.report(self._done, None, event.call.tool_id)


def skill_settings(skill: Skill, args: JSONObject) -> CodeSettings:
    """Return how the code of a skill runs: in its own limits, with these inputs."""
    header = skill.header
    settings: CodeSettings = {
        "language": "workflow",
        "metadata": {"inputs": args, "max_steps": header.max_steps, SKILL: skill.id},
        "allowed_tools": skill.allowed_tools,
        "limits": Limits(max_tool_calls=header.max_tool_calls or MAX_CALLS),
        "on_error": header.on_error,
    }
    if header.timeout:
        settings["timeout"] = header.timeout
    return settings
