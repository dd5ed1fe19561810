"""The calls of one message, answered: each of them, at the same time, whatever is wrong with it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolexec.adapter.export import READ_TOOL, SEARCH_ARGUMENTS, SEARCH_TOOL, VendorTools, name_map
from toolexec.adapter.messages import Answer, Media, VendorCall, media_of, notes_of, reply
from toolexec.adapter.names import NameMap
from toolexec.adapter.strict import without_nulls
from toolexec.discovery.summary import Filters
from toolexec.errors import ConfigurationError, ExecutionError, InputValidationError, ToolExecError, Violation
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.origin import current_origin
from toolexec.model.schema import Schema
from toolexec.model.tool import Tool
from toolexec.run.excerpt import encode, excerpt, size
from toolexec.run.reading import READ_ARGUMENTS
from toolexec.run.results import ResultStore
from toolexec.run.settings import MIN_BYTES
from toolexec.run.types import Result

if TYPE_CHECKING:
    from toolexec.exec.calls import Calls
    from toolexec.exec.finding import Finder
    from toolexec.exec.scope import Scope
    from toolexec.run.context import Cause, ContextMeter

logger: logging.Logger = logging.getLogger(__name__)

_MAX_CALLS: Final = 256
_DEFAULT_FOUND: Final = 5
_LOOKED_AT: Final = 200
_MAX_DETAILS: Final = 2000
_NOTE: Final = 200

RESULT_READER: Final = Tool(
    name=READ_TOOL,
    description="Reads a result that was too large to be shown, by its handle: page by page, a part, or by a search.",
    input_schema=dict(READ_ARGUMENTS),
)
"""The tool that a model has beside the others where results are kept."""


@dataclass(frozen=True, slots=True)
class Host:
    """What makes the calls, finds the tools, and counts what models read of both."""

    scope: Scope
    finder: Finder
    calls: Calls
    meter: ContextMeter


async def answers(
    host: Host,
    store: ResultStore | None,
    calls: Sequence[VendorCall],
    tools: VendorTools | NameMap | None,
    *,
    skip_unknown: bool,
    max_bytes: int,
    max_media_bytes: int,
) -> list[JSONDict]:
    """Return the answers in the order of the calls, each in the form that fits it.

    *store* has the results that were too large to be shown. With *skip_unknown*, calls of tools that are not here have
    no answer. Raises ConfigurationError for a budget below 1000 bytes, or below 0 for media.
    """
    if max_bytes < MIN_BYTES:
        raise ConfigurationError(
            f"max_bytes, the byte budget of an answer, must be at least {MIN_BYTES}, not {max_bytes}"
        )
    if max_media_bytes < 0:
        raise ConfigurationError(f"max_media_bytes must be 0 or more, not {max_media_bytes}")
    if not calls:
        return []
    work = _Answering(host, store, tools, calls[0].kind)
    if skip_unknown:
        calls = [call for call in calls if work.knows(call)]
    found = await asyncio.gather(
        *(work.answer(call, number, max_bytes, max_media_bytes) for number, call in enumerate(calls))
    )
    meter, origin = host.meter, current_origin()
    for call, answer in zip(calls, found, strict=True):
        meter.count(origin, work.cause(call, answer), answer.text or encode(answer.found), call.args)
    return [reply(call, answer) for call, answer in zip(calls, found, strict=True)]


class _Answering:
    """Answers the calls of one message."""

    def __init__(self, host: Host, store: ResultStore | None, tools: VendorTools | NameMap | None, kind: str) -> None:
        self._host = host
        self._tools = tools if isinstance(tools, VendorTools) else None
        self._store = store
        if tools is None:
            self._names = name_map((entry.tool.id for entry in host.scope.visible()[0].tools()), kind)
        else:
            self._names = tools.names if isinstance(tools, VendorTools) else tools

    def knows(self, call: VendorCall) -> bool:
        """Return whether the call is one for a tool that is here."""
        try:
            return call.kind == "responses-search" or self._own(call.name) or bool(self._names.to_id(call.name))
        except ToolExecError:
            return False

    def cause(self, call: VendorCall, answer: Answer) -> Cause:
        """Return what the tokens of an answer went into."""
        if answer.is_error:
            return "errors"
        return "search" if call.kind == "responses-search" or self._searches(call.name) else "results"

    def _own(self, name: str) -> bool:
        return self._searches(name) or (name == READ_TOOL and self._store is not None)

    def _searches(self, name: str) -> bool:
        return (
            name == SEARCH_TOOL and name not in self._names and (self._tools is None or self._tools.search == "client")
        )

    async def answer(self, call: VendorCall, number: int, max_bytes: int, max_media_bytes: int) -> Answer:
        """Return the answer to one call; never raises but when it is cancelled."""
        try:
            self._host.meter.check(current_origin())
            if number >= _MAX_CALLS:
                raise ConfigurationError(f"a message may have {_MAX_CALLS} calls at most; make this one again later")
            if call.problem:
                raise _not_valid(call.problem, call.name)
            if call.kind == "responses-search" or self._searches(call.name):
                return await self._search(call)
            if self._own(call.name):
                return self._read(call)
            tool_id = self._names.to_id(call.name)
            return _answer_of(
                await self._host.calls.run(tool_id, self._prepared(tool_id, call.args)), max_bytes, max_media_bytes
            )
        except ToolExecError as error:
            return _failed(error, max_bytes)
        except Exception as error:
            logger.exception("answering a call of %s failed", call.name[:200])
            return _failed(ExecutionError(f"the call could not be made: {type(error).__name__}"), max_bytes)

    def _prepared(self, tool_id: str, args: JSONDict) -> JSONDict:
        """Return the arguments by the tool's own names, and without nulls that only say "not given"."""
        done = self._tools.converted.get(tool_id) if self._tools is not None else None
        if done is not None and done.renamed:
            args = {done.renamed.get(name, name): value for name, value in args.items()}
        entry = self._host.scope.visible()[0].find(tool_id)
        return without_nulls(entry.tool.input_schema, args) if entry is not None else args

    async def _search(self, call: VendorCall) -> Answer:
        _check(SEARCH_ARGUMENTS, call)
        limit = call.args.get("limit", _DEFAULT_FOUND)
        filters = self._tools.filters if self._tools is not None else None
        filters = filters if isinstance(filters, Filters) else None
        found = await self._host.finder.search(call.args["query"], _LOOKED_AT, filters=filters)
        ids = [summary.id for summary in found if summary.id in self._names][:limit]
        forms = self._tools.converted if self._tools is not None else {}
        pairs = tuple(
            (self._names.to_vendor(tool_id), forms[tool_id].form if tool_id in forms else {}) for tool_id in ids
        )
        text = "" if pairs else "no tools fit these words; try others"
        return Answer(value=text, text=text, found=pairs)

    def _read(self, call: VendorCall) -> Answer:
        assert self._store is not None
        _check(READ_ARGUMENTS, call)
        page = self._store.read(origin=current_origin(), **call.args).to_dict()
        return Answer(value=page, text=encode(page))


def _check(schema: JSONObject, call: VendorCall) -> None:
    """Raise InputValidationError for arguments that do not fit."""
    expected = Schema.of(schema)
    if not expected.accepts(call.args):
        raise InputValidationError(
            expected.violations(call.args), tool_id=call.name or SEARCH_TOOL, op="validate_input"
        )


def _not_valid(problem: str, name: str) -> InputValidationError:
    violation = Violation(path="", keyword="json", message=problem[:500], expected="one JSON object")
    return InputValidationError([violation], tool_id=name, op="validate_input")


# -- one answer -----------------------------------------------------------------------------------------------------


def _answer_of(result: Result, max_bytes: int, max_media_bytes: int) -> Answer:
    """Return the answer for a result: its value, and those of its media parts that fit."""
    if result.error is not None:
        return _failed(result.error, max_bytes, result.value)
    notes: list[str] = []
    media: list[Media] = []
    left = max_media_bytes
    for part in result.content:
        found = media_of(part)
        if found is None:
            notes += notes_of(part)
        elif len(found.data) > left:
            notes.append(f"[{found.mime_type} of {len(found.data):,} bytes in base64: too large to be shown]")
        else:
            left -= len(found.data)
            media.append(found)
    return _cut(Answer(value=result.value, text=_json(result.value), media=tuple(media)), notes, max_bytes)


def _failed(error: ToolExecError, max_bytes: int, ran: Any = None) -> Answer:
    """Return the answer that an error is: what went wrong, whether trying again makes sense, and what there is of a
    value."""
    error = error.public()
    data: JSONDict = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details and len(_json(error.details)) <= _MAX_DETAILS:
        data["details"] = error.details
    value: JSONDict = {"error": data}
    if ran is not None:
        value["value"] = ran
    return _cut(Answer(value=value, text=_json(value), is_error=True), [], max_bytes)


def _cut(answer: Answer, notes: Sequence[str], max_bytes: int) -> Answer:
    """Return the answer within so many bytes of JSON; where something is missing, it says so."""
    text = "\n".join([answer.text, *notes])
    value = answer.value if not notes else {"value": answer.value, "notes": list(notes)}
    if size(value) <= max_bytes and size(text) <= max_bytes:
        return Answer(value=value, text=text, is_error=answer.is_error, media=answer.media)
    pieces = excerpt(text, max_bytes - _NOTE)
    cut = pieces["cut"]["characters"]
    text = f"{pieces['head']}\n[{cut:,} of {len(text):,} characters are cut here; ask for less]\n{pieces['tail']}"
    return Answer(value=text, text=text, is_error=answer.is_error, media=answer.media)


def _json(value: JSONValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
