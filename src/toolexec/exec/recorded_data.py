"""What is written down of a recorded run: its program, its calls and its result, without secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from toolexec.cassette.secrets import SessionRedactor
from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.replay import args_digest
from toolexec.durable.runner import definition_of
from toolexec.errors import ToolExecError
from toolexec.exec.run_data import SESSION, run_digest
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.redaction import Redactor, has_secret_marks
from toolexec.model.schema import Schema

if TYPE_CHECKING:
    from toolexec.durable.recorder import RecordedCall
    from toolexec.run.resolve import Find


_WRITTEN: Final = ("value", "reply", "error", "raised", "warnings")
_SCALARS: Final = frozenset({bool, type(None)})


class NotTextError(ValueError):
    """A file has bytes that cannot be looked through for secrets."""


class _Tool:
    """A tool that was called: what distinguishes its version, and the schemas that mark anything as secret."""

    __slots__ = ("args", "definition", "value")

    def __init__(self, tool_id: str, find: Find) -> None:
        self.definition = ""
        self.args: JSONObject | None = None
        self.value: JSONObject | None = None
        try:
            tool = find(tool_id).tool
        except ToolExecError:
            return
        self.definition = definition_of(tool)
        self.args = _marked(tool.input_schema)
        self.value = _marked(tool.output_schema) if tool.output_schema is not None else None


class _Call:
    """A call of a tool."""

    __slots__ = ("_args", "_call", "_parts", "_tool")

    def __init__(self, call: RecordedCall, tool: _Tool, session: SessionRedactor) -> None:
        """Have the secrets known that the schemas and names show."""
        self._call = call
        self._tool = tool
        self._args = session.learn(call.args, tool.args)
        self._parts = self._hidden(session.learn)

    def _hidden(self, hide: Callable[[JSONValue, JSONObject | None], JSONValue]) -> JSONDict:
        """Return what the call came to, without secrets: what the host itself has written has none."""
        outcome: JSONDict = {**(self._call.outcome or {})}
        for name in _WRITTEN:
            if name in outcome and type(outcome[name]) not in _SCALARS:
                outcome[name] = hide(outcome[name], self._tool.value if name == "value" else None)
        if "reply" in outcome and outcome["value"] != (self._call.outcome or {})["value"]:
            del outcome["reply"]  # it has the same, and no schema that says what of it is secret
        return outcome

    def record(self, number: int, session: SessionRedactor) -> CallRecord:
        """Return the call as a journal keeps it, once all secrets are known."""
        call = self._call
        if session.has_learned:
            self._args, self._parts = session.value(call.args), self._hidden(session.value)
        return CallRecord(
            step=call.step,
            tool=call.tool,
            definition=self._tool.definition,
            args=args_digest(self._args),
            number=number,
            state=call.state,
            at=call.at,
            began=call.began,
            ended=call.ended,
            outcome=self._parts if call.outcome is not None else None,
        )


def without_secrets(
    run: RunRecord, calls: Sequence[RecordedCall], find: Find, general: Redactor
) -> tuple[RunRecord, list[CallRecord]]:
    """Return a recorded run and its calls as a journal keeps them.

    Secrets are what *general* knows, and what a schema or a name shows to be one, wherever the run repeats it; a
    SessionRedactor learns those for the next run. Raises NotTextError for files that are not text.

    Not for the event loop where the run is long.
    """
    session = general if isinstance(general, SessionRedactor) else SessionRedactor(general)
    given: JSONDict = run.settings.get("given") or {}
    session.learn({name: part for name, part in given.items() if name not in ("files", "stdin")})
    result: JSONDict = dict(run.result or {})
    if run.kind != "chain":  # whose values are those of its calls
        session.learn({name: part for name, part in result.items() if name != "files"})
    tools = {name: _Tool(name, find) for name in {call.tool for call in calls}}
    read = [_Call(call, tools[call.tool], session) for call in calls]
    source = _program(run, session)
    settings = {
        **run.settings,
        "given": _given(given, session),
        "origin": session.value(run.settings.get("origin") or {}),
    }
    if (place := run.settings.get(SESSION)) is not None:
        opened = {**place["opened"], "given": _given(place["opened"]["given"], session)}
        settings[SESSION] = {**place, "opened": opened}
    kept = replace(
        run,
        source=source,
        settings=settings,
        digest=run_digest(run.kind, source, settings["given"]),
        result=_result(result, session),
    )
    return kept, [each.record(number, session) for number, each in enumerate(read, 1)]


def _program(run: RunRecord, redact: Redactor) -> str:
    if run.kind != "chain":
        return redact.text(run.source)
    steps = json.loads(run.source)
    kept = redact.value(steps)
    return run.source if kept == steps else json.dumps(kept)


def _given(given: JSONObject, redact: Redactor) -> JSONDict:
    kept: Any = redact.value({name: part for name, part in given.items() if name not in ("files", "stdin")})
    if "files" in given:
        kept["files"] = {path: _text(content, redact) for path, content in given["files"].items()}
    if "stdin" in given:
        kept["stdin"] = _text(given["stdin"], redact)
    return kept


def _result(result: JSONDict, redact: Redactor) -> JSONDict:
    kept: Any = redact.value({name: part for name, part in result.items() if name != "files"})
    files: JSONDict = {}
    for path, content in (result.get("files") or {}).items():
        try:
            files[path] = _text(content, redact)
        except NotTextError:
            continue  # what a program has made it makes again
    return kept | ({"files": files} if "files" in result else {})


def _text(content: str, redact: Redactor) -> str:
    """Return a file, in Base64, without secrets."""
    try:
        text = base64.b64decode(content).decode()
    except UnicodeDecodeError as error:
        raise NotTextError from error
    return base64.b64encode(redact.text(text).encode()).decode()


def _marked(schema: Schema) -> JSONObject | None:
    """Return a schema that marks anything as secret."""
    data = schema.to_json()
    return data if isinstance(data, Mapping) and has_secret_marks(data) else None
