"""What every integration offers of an `Exec`, before it takes the form of a framework's tools."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, cast

from toolexec.code.types import CodeResult
from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.index import Registered
from toolexec.discovery.summary import Filters, Summary
from toolexec.errors import ConfigurationError, InputValidationError, ToolExecError, ToolNotFoundError
from toolexec.exec.approvals import approves, may_ask
from toolexec.exec.facade import Exec
from toolexec.integrations.wording import CODE, CODE_IN_JAVASCRIPT, DESCRIBE, READ, RUN, SEARCH, Wording
from toolexec.model.arguments import without_nulls
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.languages import base_language
from toolexec.model.origin import Origin, acting, current_origin
from toolexec.model.schema import Schema
from toolexec.model.settings import checked
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.model.visible import visible, visible_json
from toolexec.model.visible_schema import visible_schema
from toolexec.run.context import Cause
from toolexec.run.framing import framed_value
from toolexec.run.layers.budget import kept_results
from toolexec.run.results import ResultStore
from toolexec.run.types import Result

__all__ = ["Answer", "Face", "Mode", "Toolset", "Work", "failed_answer"]

Mode: TypeAlias = Literal["direct", "search", "code"]
"""`direct`: the tools themselves. `search`: three tools that find, describe and run them. `code`: as `search`, but the
model writes code that calls them."""

_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME: Final = 64
_HASH: Final = 8
_MAX_DESCRIPTION: Final = 1000
_MAX_DETAILS: Final = 2000
_RESERVED: Final = frozenset({"read_result"})
_CAUSES: Final[Mapping[str, Cause]] = {SEARCH.name: "search", DESCRIBE.name: "describe", CODE.name: "code"}


class Work(Protocol):
    """What does the work: an `Exec`, or its blocking twin in its place."""

    async def search_tools(self, query: str, limit: int = 10, *, filters: Filters | None = None) -> list[Summary]:
        """Implement `Exec.search_tools`."""
        ...

    async def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Implement `Exec.get_tool_doc`."""
        ...

    async def run_tool(self, tool_id: str, args: JSONObject | None = None) -> Result:
        """Implement `Exec.run_tool`."""
        ...

    async def execute_code(self, code: str, *, allowed_tools: Collection[str] | None = None) -> CodeResult:
        """Implement `Exec.execute_code`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model gets to read: `value` is JSON, `text` is the same as text. For a failure both say what it was, and
    `error` is set. `images` are pairs of media type and base64 data. `result` is there when a tool was run."""

    value: JSONValue
    text: str
    error: ToolExecError | None = None
    images: tuple[tuple[str, str], ...] = ()
    result: Result | None = None


_Do: TypeAlias = Callable[[Work, JSONObject], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """A tool as a model sees it. `tool_id` is empty for those that find and run other tools; `returns` is the schema of
    the value, None where the tool has none. `cause` is what the tokens of its answers count for.
    """

    name: str
    description: str
    schema: JSONDict
    do: _Do
    tool_id: str = ""
    annotations: ToolAnnotations
    returns: JSONDict | None = None
    cause: Cause = "results"


@checked("Toolset")
class Toolset:
    """The tools of *ex* in one of the modes, for a vendor's agent loop.

    *filters* choose which tools count, on every way to them. All is done for *origin* (None: for the caller at that
    moment). Raises ConfigurationError for an unknown mode, and for `code` where code is switched off.
    """

    def __init__(
        self, ex: Exec, mode: Mode = "direct", filters: Filters | None = None, origin: Origin | None = None
    ) -> None:
        if mode == "code" and not ex.options.enable_code_execution:
            raise ConfigurationError("mode code needs code execution, which is switched off for this Exec")
        self.ex = ex
        self.mode: Mode = mode
        self._filters = filters
        self._origin = origin

    def __deepcopy__(self, memo: object) -> Self:
        """Return the toolset itself, as frameworks copy their tools, and there is one Exec behind all copies."""
        return self

    @property
    def _results(self) -> ResultStore | None:
        return kept_results(self.ex.options.own_gate)  # of the gate as it is now: `Exec.reconfigure` may change it

    def faces(self) -> list[Face]:
        """Return the tools that there are just now, those of *ex* by ID; of backends that have not started there are
        none.

        A gate with a `Budget` adds `read_result`, which reads what the budget has cut.
        """
        if self.mode == "direct":
            with self._acting():
                found = self._direct()
        else:
            is_javascript = base_language(self.ex.options.default_language) == "javascript"
            code = CODE_IN_JAVASCRIPT if is_javascript else CODE
            last = (RUN, self._run) if self.mode == "search" else (code, self._execute)
            found = [_own(SEARCH, self._search), _own(DESCRIBE, self._describe), _own(*last, read_only=False)]
        found = [*found, _own(READ, self._read)] if self._results is not None else found
        self._count_list(found)
        return found

    def _count_list(self, faces: list[Face]) -> None:
        meter = self.ex.meter
        if meter.counts:
            shown = [{"name": face.name, "description": face.description, "parameters": face.schema} for face in faces]
            with self._acting():
                meter.count(current_origin(), "tools", visible_json(shown), again=True)

    @property
    def approves(self) -> bool:
        """Whether the gate may ask for an approval at all."""
        return approves(self.ex)

    def may_ask(self, face: Face) -> bool:
        """Return whether the gate, as it is now, may ask about a call of *face*, whatever its arguments are."""
        return may_ask(self.ex, face.tool_id) if face.tool_id else self.approves

    def needs_approval(self, face: Face, args: JSONValue) -> bool:
        """Return whether the gate would ask an approver before this call of a model."""
        call = _meant(face, args)
        with self._acting():
            return call is not None and self.ex.needs_approval(*call)

    async def call(self, face: Face, args: JSONValue, work: Work | None = None, *, approved: bool = False) -> Answer:
        """Have one of the tools do its work with the arguments of a model. Every failure is in the answer. With
        *approved* the framework's user has approved exactly this call.
        """
        call = _meant(face, args) if approved else None
        with self._acting(), self.ex.approved(*call) if call is not None else nullcontext():
            answer = await self._answer(face, args, work)
            cause = "errors" if answer.error is not None else face.cause
            self.ex.meter.count(current_origin(), cause, answer.text, args)
            return answer

    async def _answer(self, face: Face, args: JSONValue, work: Work | None) -> Answer:
        try:
            self.ex.meter.check(current_origin())
            if not face.tool_id:
                schema = Schema.of(face.schema)
                if not schema.accepts(args):
                    if isinstance(args, Mapping):
                        args = without_nulls(args, schema, schema.violations(args))
                    if violations := schema.violations(args):
                        raise InputValidationError(violations, tool_id=face.name, op="validate_input")
            return await face.do(self.ex if work is None else work, args)
        except ToolExecError as error:
            return failed_answer(error)

    # -- the tools themselves -----------------------------------------------------------------------------------

    def _direct(self) -> list[Face]:
        names: dict[str, list[Tool]] = {}
        for entry in self.ex.visible()[0].tools():
            if self._counts(entry):
                tool = entry.tool
                name = _NOT_ALLOWED.sub("_", "__".join(part for part in tool.id.split(":") if part))
                names.setdefault(name, []).append(tool)
        faces: list[Face] = []
        for name, tools in names.items():
            plain = len(tools) == 1 and len(name) <= _MAX_NAME and name not in _RESERVED
            faces += [_direct_face(name if plain else _hashed(name, tool.id), tool) for tool in tools]
        return faces

    def _counts(self, entry: Registered) -> bool:
        return self._filters is None or self._filters.accept(entry.tool, entry.bindings)

    # -- finding and running ------------------------------------------------------------------------------------

    async def _search(self, work: Work, args: JSONObject) -> Answer:
        found = await work.search_tools(args["query"], args.get("limit", 10), filters=self._filters)
        return self._within({"tools": [summary.public().to_dict() for summary in found]})

    async def _describe(self, work: Work, args: JSONObject) -> Answer:
        self._check(args["tool_id"])
        doc = (await work.get_tool_doc(args["tool_id"])).public()
        data = doc.to_dict()
        if self.mode == "code" and doc.tool is not None:
            from toolexec.code.names import ToolNames
            from toolexec.code.stubs import stub_of

            language = self.ex.options.default_language
            data["stub"] = stub_of(doc.tool, names=ToolNames(self.ex.index), language=language)
        return self._within(data)

    async def _run(self, work: Work, args: JSONObject) -> Answer:
        self._check(args["tool_id"])
        return await _run_tool(work, args["tool_id"], args.get("args", {}))

    async def _execute(self, work: Work, args: JSONObject) -> Answer:
        allowed = None
        if self._filters is not None:
            allowed = [entry.tool.id for entry in self.ex.visible()[0].tools() if self._counts(entry)]
        result = await work.execute_code(args["code"], allowed_tools=allowed)
        data: JSONDict = {"value": result.value}
        data |= {name: text for name, text in (("stdout", result.stdout), ("stderr", result.stderr)) if text}
        if result.error is not None:
            data["error"] = _error_data(result.error)
        return self._within(data, result.error)

    async def _read(self, work: Work, args: JSONObject) -> Answer:
        results = self._results
        assert results is not None
        page = results.read(origin=current_origin(), **args)
        return Answer(value=page.to_dict(), text=_text(page.to_dict()))

    def _check(self, tool_id: str) -> None:
        """Raise ToolNotFoundError for a tool that does not count."""
        entry = self.ex.visible()[0].find(tool_id)
        if self._filters is not None and (entry is None or not self._counts(entry)):
            raise ToolNotFoundError(tool_id)

    def _within(self, data: JSONDict, error: ToolExecError | None = None) -> Answer:
        """Return the answer, within the budget if there is one."""
        results = self._results
        value = results.show(data, current_origin()).value if results is not None else data
        return Answer(value=value, text=_text(value), error=error)

    def _acting(self) -> AbstractContextManager[object]:
        return acting(self._origin) if self._origin is not None else nullcontext()


def _meant(face: Face, args: JSONValue) -> tuple[str, JSONObject] | None:
    """Return the tool that a call of *face* runs, and its arguments; for code `execute_code`, and the code. None where
    it runs nothing."""
    if not isinstance(args, Mapping):
        return None
    if face.tool_id:
        return face.tool_id, args
    if face.name == CODE.name:
        return face.name, {"code": args.get("code")}
    tool_id: Any = args.get("tool_id")
    inner: Any = args.get("args", {})
    meant = face.name == RUN.name and isinstance(tool_id, str) and isinstance(inner, Mapping)
    return (tool_id, cast("JSONObject", inner)) if meant else None


def _own(wording: Wording, do: _Do, *, read_only: bool = True) -> Face:
    hints = ToolAnnotations(read_only=read_only)
    return Face(
        name=wording.name,
        description=wording.text,
        schema=wording.schema,
        do=do,
        annotations=hints,
        cause=_CAUSES.get(wording.name, "results"),
    )


def _direct_face(name: str, tool: Tool) -> Face:
    schema = visible_schema(tool.input_schema.to_json())
    returns = visible_schema(tool.output_schema.to_json()) if tool.output_schema is not None else None

    async def do(work: Work, args: JSONObject) -> Answer:
        return await _run_tool(work, tool.id, args)

    return Face(
        name=name,
        description=visible(tool.description or tool.title or tool.id, _MAX_DESCRIPTION),
        schema={"properties": {}, **(schema if isinstance(schema, dict) else {}), "type": "object"},
        do=do,
        tool_id=tool.id,
        annotations=tool.annotations,
        returns=returns if isinstance(returns, dict) else None,
    )


def _hashed(name: str, tool_id: str) -> str:
    digest = hashlib.sha256(tool_id.encode()).hexdigest()[:_HASH]
    return f"{name[: _MAX_NAME - _HASH - 1]}_{digest}"


async def _run_tool(work: Work, tool_id: str, args: JSONObject) -> Answer:
    result = await work.run_tool(tool_id, args)
    if result.error is not None:
        return failed_answer(result.error, result)
    images = tuple(
        (str(part.get("mimeType", "image/png")), part["data"])
        for part in result.content
        if part.get("type") == "image" and isinstance(part.get("data"), str)
    )
    return Answer(value=result.value, text=framed_value(result.value), images=images, result=result)


def failed_answer(error: ToolExecError, result: Result | None = None) -> Answer:
    """Return the answer that reports *error*."""
    data: JSONDict = {"error": _error_data(error)}
    if result is not None and result.value is not None:  # it ran, and broke its output schema
        data["value"] = result.value
    return Answer(value=data, text=_text(data), error=error, result=result)


def _error_data(error: ToolExecError) -> JSONDict:
    error = error.public()
    data: JSONDict = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details and len(_text(error.details)) <= _MAX_DETAILS:
        data["details"] = error.details
    return data


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else visible_json(value)
