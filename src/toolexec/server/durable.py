"""Calls of clients that are durable runs: what such a run waits for is asked of the client, by way of its task."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from toolexec.code.types import CodeResult, EventCallback
from toolexec.durable.journal import CallRecord, Wait
from toolexec.durable.waits import RUN_TOOLS
from toolexec.errors import (
    InputValidationError,
    Outcome,
    RunBusyError,
    RunError,
    RunWaitingError,
    ToolExecError,
    Violation,
)
from toolexec.exec.chain import ChainResult
from toolexec.exec.facade import Exec
from toolexec.exec.run_results import RunResult
from toolexec.exec.skills import durable_skill, skill_failure
from toolexec.model.approval_text import request_from
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import current_origin
from toolexec.model.redaction import redactor
from toolexec.model.visible import visible, visible_json, visible_line
from toolexec.run.types import Result
from toolexec.server.elicitation import answer_in, question

R = TypeVar("R", ChainResult, CodeResult)

NO_ANSWER: Final = object()
"""Stands for a reply that leaves its question open."""

_QUESTION: Final = 4000
_NAME: Final = 200
_FORGETTING: Final = 20
_FIELDS: Final = frozenset({"string", "number", "integer", "boolean"})
_KEPT: Final = frozenset(
    {"type", "title", "description", "enum", "default", "format", "minLength", "maxLength", "minimum", "maximum"}
)


class DurableCall:
    """One call that is the durable run *run_id* of *ex*; a *resumed* one was begun by another process.

    `waits` is what the run waits for just now, `has_looked` that this is known, `changed` is called when it changes.
    `cancelled` says that the run was cancelled, `lost` that there is none. *kept* is what the reply is made with.
    `answered` has the keys of questions whose answers were sent and not taken yet, `closed` those of which they were
    taken.
    """

    def __init__(self, ex: Exec, run_id: str, *, resumed: bool = False, kept: JSONObject | None = None) -> None:
        self._ex = ex
        self.run_id = run_id
        self.resumed = resumed
        self.kept: JSONObject = kept or {}
        self.waits: tuple[Wait, ...] = ()
        self.has_looked: bool = not resumed
        self.answered: set[str] = set()
        self.closed: set[str] = set()
        self.cancelled: bool = False
        self.lost: bool = False
        self.changed: Callable[[], None] = _nothing

    async def result(
        self,
        begin: Callable[[], Awaitable[R]],
        *,
        on_progress: ProgressCallback | None = None,
        on_event: EventCallback | None = None,
    ) -> R:
        """Return the result of the run once it has ended, however long it waits: of what *begin* begins, or of what was
        begun before. Raises as `Runs.follow` and *begin* do."""
        result = None if self.resumed else await begin()
        if result is None or isinstance(result.error, RunWaitingError):
            return cast("R", await self._follow(on_progress=on_progress, on_event=on_event))
        self._look_at(result.error)
        return result

    async def result_of_skill(self, tool_id: str, begin: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of the call of a skill, whose workflow is the run. Raises as `result` does."""
        if not self.resumed:
            with durable_skill(self.run_id):
                result = await begin()
            if result.error is None or not isinstance(result.error.__cause__, RunWaitingError):
                self._look_at(result.error.__cause__ if result.error is not None else None)
                return result
        found = cast("CodeResult", await self._follow())
        return Result(tool_id, found.value, skill_failure(tool_id, found), found.duration)

    async def _follow(self, **hooks: Any) -> RunResult:
        try:
            result = await self._ex.runs.follow(self.run_id, on_waits=self._note, **hooks)
        except RunError as error:
            self.lost = error.code == "run_not_found"
            raise
        self._look_at(result.error)
        if (used := current_origin().used_tools) is not None:  # calls of other processes, and of before, among them
            calls = await self._ex.runs.calls(self.run_id)
            used.update(call.tool for call in calls if call.tool not in RUN_TOOLS and _was_made(call))
        return result

    def _look_at(self, error: BaseException | None) -> None:
        self.cancelled = isinstance(error, RunError) and error.code == "run_cancelled"

    def _note(self, waits: tuple[Wait, ...]) -> None:
        self.waits = waits
        self.has_looked = True
        taken = self.answered - {_key(wait) for wait in waits}
        self.answered -= taken
        self.closed |= taken
        self.changed()

    @property
    def open_waits(self) -> tuple[Wait, ...]:
        """What the run waits for that was not answered."""
        return tuple(wait for wait in self.waits if _key(wait) not in self.answered)

    @property
    def sent(self) -> frozenset[str]:
        """The keys of questions that were answered here: the same answer again is none."""
        return frozenset(self.answered | self.closed)

    async def cancel(self) -> None:
        """Cancel the run, if it has not ended."""
        with suppress(ToolExecError):
            await self._ex.runs.cancel(self.run_id)

    async def forget(self) -> None:
        """Cancel the run, which no client knows of, and take it out of the journal."""
        await self.cancel()
        with suppress(ToolExecError):
            for _ in range(_FORGETTING):
                with suppress(RunBusyError):
                    await self._ex.runs.delete(self.run_id)
                    return
                await asyncio.sleep(0.05)


def _was_made(call: CallRecord) -> bool:
    """Return whether it is the call of a tool, and not a question, and something can have come of it."""
    ended = call.outcome or {}
    error = ended.get("raised") or ended.get("error") or {}
    return bool(call.definition) and Outcome.read(error.get("outcome")) is not Outcome.NOT_SENT


def _nothing() -> None:
    """Do nothing."""


def words_of(waits: tuple[Wait, ...]) -> str:
    """Return in words what a run waits for."""
    names = ", ".join(visible_line(wait.name or wait.kind, _NAME) for wait in waits)
    return f"it waits for {names}" if names else ""


def questions_of(waits: tuple[Wait, ...]) -> dict[str, tuple[Wait, ElicitRequest]]:
    """Return the questions that are open, by key: a key never stands for another question."""
    asked = {_key(wait): (wait, _question(wait)) for wait in waits}
    return {key: (wait, request) for key, (wait, request) in asked.items() if request is not None}


async def send_answer(ex: Exec, run_id: str, wait: Wait, reply: object) -> bool:
    """Send a run what a client has replied; return whether it was an answer.

    Raises InputValidationError for an answer that does not fit, and as `Runs.signal` does.
    """
    payload = answer_to(wait, reply)
    if payload is NO_ANSWER:
        return False
    # The same question answered twice is answered once: that for an approval is the same as long as its call waits.
    again = [] if wait.kind == "approval" else [wait.step, wait.since]
    facts = json.dumps([run_id, wait.kind, wait.name, *again])
    signal_id = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
    await ex.runs.signal(run_id, wait.name, payload, id=signal_id)
    return True


def answer_to(wait: Wait, reply: object) -> Any:
    """Return what a client's reply means to a run that waits; NO_ANSWER for a form that was declined or closed.

    What is to be approved is not approved then; any other question stays open. Raises InputValidationError for a form
    that was sent without what it asks for.
    """
    if wait.kind == "approval":
        return answer_in(reply)
    if not isinstance(reply, ElicitResult) or reply.action != "accept":
        return NO_ANSWER
    content = reply.content or {}
    if wait.kind == "settle":
        done = content.get("done")
        if not isinstance(done, bool):
            raise _unfilled("done", "must be true or false")
        return {"done": done, "value": _read(content.get("value"))}
    schema = (wait.details or {}).get("schema") if wait.kind == "input" else None
    if _is_form(schema):
        return dict(content)
    if "answer" not in content:
        raise _unfilled("answer", "is missing")
    answer = content["answer"]
    if _is_field(schema) or (wait.kind == "input" and not schema):
        return answer
    return _read(answer)


def _unfilled(field: str, what: str) -> InputValidationError:
    violation = Violation(path="", keyword="required", message=f"{field!r} of the form {what}")
    return InputValidationError([violation], op="validate_input")


def _read(text: object) -> Any:
    """Return the JSON in a text, else the text."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _key(wait: Wait) -> str:
    """Return the key of a question. A call asks for its approval under one, however often its run is made again."""
    step = wait.name.partition(":")[2] if wait.kind == "approval" else wait.step
    return f"{wait.kind}-{step}"


def _question(wait: Wait) -> ElicitRequest | None:
    details = dict(wait.details or {})
    match wait.kind:
        case "approval":
            return question(request_from(details))
        case "input":
            return _form(str(details.get("question", "")), _schema(details.get("schema")))
        case "signal":
            answer: JSONDict = {"type": "string", "title": "What to send", "description": "JSON, or else text"}
            return _form(f"The run waits for the signal {visible_line(wait.name, _NAME)}.", _answer(answer))
        case "settle" if wait.step:
            tool, args = visible_line(str(details.get("tool", "")), _NAME), visible_json(details.get("args"))
            properties: JSONDict = {
                "done": {"type": "boolean", "title": "Did this call do its work?"},
                "value": {"type": "string", "title": "What it gave", "description": "JSON, or else text"},
            }
            unknown = f"It is not known whether the call of {tool} was done, as its process ended or was lost."
            message = f"{unknown} It may still be at work.\nArguments: {args}"
            return _form(message, {"type": "object", "properties": properties, "required": ["done"]})
        case _:
            return None


def _form(message: str, schema: JSONDict) -> ElicitRequest:
    shown = visible(redactor.text(message), _QUESTION)
    return ElicitRequest(params=ElicitRequestFormParams(message=shown, requested_schema=schema))


def _schema(schema: object) -> JSONDict:
    """Return the form for an answer: its fields where it is an object of plain ones, else one field for all of it."""
    if _is_form(schema):
        given = cast("Mapping[str, Any]", schema)
        properties = {name: _field(part) for name, part in given["properties"].items()}
        required = [name for name in given.get("required") or () if name in properties]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}
    if not schema:
        return _answer({"type": "string", "title": "Answer"})
    if _is_field(schema):
        return _answer({"title": "Answer", **_field(cast("Mapping[str, Any]", schema))})
    text = visible(json.dumps(schema, ensure_ascii=False, default=str), _QUESTION)
    return _answer({"type": "string", "title": "Answer", "description": f"JSON that fits the schema {text}"})


def _answer(field: JSONDict) -> JSONDict:
    return {"type": "object", "properties": {"answer": field}, "required": ["answer"]}


def _field(schema: Mapping[str, Any]) -> JSONDict:
    """Return a field as clients know them; what they do not know of the schema is checked with the answer."""
    kept: JSONDict = {key: part for key, part in schema.items() if key in _KEPT}
    for name in ("title", "description"):
        if name in kept:
            kept[name] = visible_line(str(kept[name]), _NAME)
    if "enum" in kept:
        kept["type"] = "string"
    return kept


def _is_field(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    choices: Any = schema.get("enum")
    if choices is not None:
        return isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    return schema.get("type") in _FIELDS


def _is_form(schema: object) -> bool:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return False
    properties: Any = schema.get("properties")
    return isinstance(properties, Mapping) and bool(properties) and all(map(_is_field, properties.values()))
