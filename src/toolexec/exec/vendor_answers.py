"""The calls of one message, answered: each of them, at the same time, whatever is wrong with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from toolexec.adapter.names import NameMap
from toolexec.adapter.strict import without_nulls
from toolexec.errors import ConfigurationError, ExecutionError, InputValidationError, ToolExecError, Violation
from toolexec.exec.vendor_messages import VendorCall
from toolexec.exec.vendor_replies import Answer, answer_of, failed, reply
from toolexec.exec.vendor_tools import READ_TOOL, SEARCH_ARGUMENTS, SEARCH_TOOL, VendorTools, name_map
from toolexec.model.origin import current_origin
from toolexec.model.schema import Schema
from toolexec.run.excerpt import encode
from toolexec.run.layers.budget import Budget
from toolexec.run.outline import MIN_BYTES
from toolexec.run.reading import READ_ARGUMENTS
from toolexec.run.results import ResultStore

if TYPE_CHECKING:
    from toolexec.exec.vendor_calls import Unknown, VendorCalls

__all__ = ["answers", "kept_results"]

logger = logging.getLogger(__name__)

_MAX_CALLS: Final = 256
_DEFAULT_FOUND: Final = 5
_LOOKED_AT: Final = 200


async def answers(
    ex: VendorCalls,
    calls: Sequence[VendorCall],
    tools: VendorTools | NameMap | None,
    *,
    unknown: Unknown,
    max_bytes: int,
    max_media_bytes: int,
) -> list[dict[str, Any]]:
    """The answers in the order of the calls, each in the form that fits it; with *unknown* `skip`, none for calls of
    tools that are not here. Raises ConfigurationError for a budget below 1000 bytes."""
    if max_bytes < MIN_BYTES:
        raise ConfigurationError(f"the byte budget of an answer must be at least {MIN_BYTES}, not {max_bytes}")
    if not calls:
        return []
    work = _Answering(ex, tools, calls[0].kind)
    if unknown == "skip":
        calls = [call for call in calls if work.knows(call)]
    found = await asyncio.gather(
        *(work.answer(call, number, max_bytes, max_media_bytes) for number, call in enumerate(calls))
    )
    return [reply(call, answer) for call, answer in zip(calls, found, strict=True)]


def kept_results(ex: VendorCalls) -> ResultStore | None:
    """Where results are kept that a gate's budget has cut, if there is one."""
    budget = ex.options.gate.budget if ex.options.gate is not None else None
    return budget.store if isinstance(budget, Budget) else None


class _Answering:
    """Answers the calls of one message."""

    def __init__(self, ex: VendorCalls, tools: VendorTools | NameMap | None, kind: str) -> None:
        self._ex = ex
        self._tools = tools if isinstance(tools, VendorTools) else None
        self._store = kept_results(ex)
        if tools is None:
            self._names = name_map((entry.tool.id for entry in ex.visible()[0].tools()), kind)
        else:
            self._names = tools.names if isinstance(tools, VendorTools) else tools

    def knows(self, call: VendorCall) -> bool:
        """Whether the call is one for a tool that is here."""
        try:
            return call.kind == "responses-search" or self._own(call.name) or bool(self._names.to_id(call.name))
        except ToolExecError:
            return False

    def _own(self, name: str) -> bool:
        return self._searches(name) or (name == READ_TOOL and self._store is not None)

    def _searches(self, name: str) -> bool:
        return (
            name == SEARCH_TOOL and name not in self._names and (self._tools is None or self._tools.search == "client")
        )

    async def answer(self, call: VendorCall, number: int, max_bytes: int, max_media_bytes: int) -> Answer:
        """The answer to one call; never raises but when it is cancelled."""
        try:
            if number >= _MAX_CALLS:
                raise ConfigurationError(f"a message may have {_MAX_CALLS} calls at most; make this one again later")
            if call.problem:
                raise _not_valid(call.problem, call.name)
            if call.kind == "responses-search" or self._searches(call.name):
                return await self._search(call)
            if self._own(call.name):
                return self._read(call)
            tool_id = self._names.to_id(call.name)
            return answer_of(
                await self._ex.run_tool(tool_id, self._prepared(tool_id, call.args)), max_bytes, max_media_bytes
            )
        except ToolExecError as error:
            return failed(error, max_bytes)
        except Exception as error:
            logger.exception("answering a call of %s failed", call.name[:200])
            return failed(ExecutionError(f"the call could not be made: {type(error).__name__}"), max_bytes)

    def _prepared(self, tool_id: str, args: dict[str, Any]) -> dict[str, Any]:
        """The arguments by the tool's own names, and without nulls that only say "not given"."""
        done = self._tools.converted.get(tool_id) if self._tools is not None else None
        if done is not None and done.renamed:
            args = {done.renamed.get(name, name): value for name, value in args.items()}
        entry = self._ex.visible()[0].find(tool_id)
        return without_nulls(entry.tool.input_schema, args) if entry is not None else args

    async def _search(self, call: VendorCall) -> Answer:
        _check(SEARCH_ARGUMENTS, call)
        limit = call.args.get("limit", _DEFAULT_FOUND)
        filters = self._tools.filters if self._tools is not None else None
        found = await self._ex.search_tools(call.args["query"], _LOOKED_AT, filters=filters)
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


def _check(schema: Mapping[str, Any], call: VendorCall) -> None:
    """Raise InputValidationError for arguments that do not fit."""
    expected = Schema.of(schema)
    if not expected.accepts(call.args):
        raise InputValidationError(
            expected.violations(call.args), tool_id=call.name or SEARCH_TOOL, op="validate_input"
        )


def _not_valid(problem: str, name: str) -> InputValidationError:
    violation = Violation(path="", keyword="json", message=problem[:500], expected="one JSON object")
    return InputValidationError([violation], tool_id=name, op="validate_input")
