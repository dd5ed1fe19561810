"""The contents of a cassette: tools as they were seen, and calls with what they came to."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final

import toolexec.errors as errors
from toolexec.cassette.secrets import SessionRedactor
from toolexec.durable.outcomes import error_from_json, error_to_json
from toolexec.errors import CassetteError, Outcome, OutputValidationError, ToolExecError
from toolexec.model.binding import Binding, MCPBinding, ProviderBinding, binding_from_dict
from toolexec.model.content import ToolReply
from toolexec.model.ids import ToolID
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, shorten
from toolexec.model.redaction import Redactor
from toolexec.model.tool import Tool
from toolexec.run.audit.record import canonical
from toolexec.run.types import Result

_CALL_KEYS: Final = frozenset({"tool", "args", "chunks", "value", "reply", "error", "seconds"})
_TOOL_KEYS: Final = frozenset({"id", "digest", "binding", "destination", "definition"})


def schema_digest(tool: Tool) -> str:
    """Return the digest of a tool's schemas: the same as long as it takes and gives the same."""
    output = tool.output_schema.to_json() if tool.output_schema is not None else None
    return f"sha256:{sha256(canonical([tool.input_schema.to_json(), output])).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CassetteTool:
    """A tool as it was seen: its definition, where it lived, and the `digest` of its schemas."""

    tool: Tool
    binding: Binding
    digest: str

    @classmethod
    def of(cls, tool: Tool, binding: Binding) -> CassetteTool:
        """Return what is kept of a tool."""
        return cls(tool=tool, binding=binding, digest=schema_digest(tool))

    def to_json(self) -> JSONDict:
        """Return it as the file has it; `read` reads it back."""
        definition = self.tool.to_dict()
        for part in ("name", "namespace", "version"):
            definition.pop(part, None)
        data: JSONDict = {"id": self.tool.id, "digest": self.digest, "binding": self.binding.to_dict()}
        if self.binding.destination:
            data["destination"] = self.binding.destination
        return data | {"definition": definition}

    @classmethod
    def read(cls, data: JSONValue, place: str) -> CassetteTool:
        """Read what `to_json` wrote; raises CassetteError, with *place* in it, for what it cannot have written."""
        found = _mapping(data, place, _TOOL_KEYS)
        tool_id, definition = _string(found.get("id"), f"{place}.id"), found.get("definition")
        try:
            parsed = ToolID.parse(tool_id)
            parts = {"name": parsed.name, "namespace": parsed.namespace, "version": parsed.version}
            tool = Tool.from_dict({**_mapping(definition, f"{place}.definition"), **parts}).check_schemas()
            binding = binding_from_dict(_mapping(found.get("binding"), f"{place}.binding"))
        except CassetteError:
            raise
        except ToolExecError as error:
            raise CassetteError(f"{place}: {error.message}", tool_id=tool_id) from error
        if tool.id != tool_id:
            raise CassetteError(f"{place}.id: {shorten(tool_id)} is not how the ID of a tool is written")
        digest = schema_digest(tool)
        if found.get("digest") != digest:
            raise CassetteError(
                f"{place}: the schemas of {tool_id} are not those that were recorded: their digest is {digest}; take "
                "the change back, or record the session again",
                tool_id=tool_id,
            )
        return cls(tool=tool, binding=_at(binding, found.get("destination")), digest=digest)


@dataclass(slots=True, kw_only=True)
class CassetteCall:
    """One call: the tool's ID, its arguments without secrets, and what it came to: `value`, or `reply` for a tool that
    answers in parts, after the `chunks` of a stream; or the `error`, as JSON. `seconds` is how long it took."""

    tool: str
    args: JSONDict
    value: JSONValue = None
    reply: JSONDict | None = None
    error: JSONDict | None = None
    chunks: list[JSONValue] | None = None
    seconds: float = 0.0
    ended: bool = field(default=True, compare=False)

    def to_json(self) -> JSONDict:
        """Return it as the file has it; `read` reads it back."""
        data: JSONDict = {"tool": self.tool, "args": self.args}
        if self.chunks is not None:
            data["chunks"] = self.chunks
        if self.reply is not None:
            data["reply"] = self.reply
        elif self.error is None or self.value is not None:
            data["value"] = self.value
        if self.error is not None:
            data["error"] = self.error
        return data | {"seconds": self.seconds}

    def end(
        self, result: Result, chunks: list[JSONValue] | None, redact: SessionRedactor, output: JSONObject | None
    ) -> None:
        """Keep what the call came to, without secrets; *output* is the schema of its value, if it has one."""
        broken = result.error.value if isinstance(result.error, OutputValidationError) else None
        value = redact.learn(broken if result.value is None else result.value, output)  # a stream has it there only
        if result.reply is not None:
            self.reply = result.reply.to_mcp()
            if result.reply.structured is not None:
                self.reply["structuredContent"] = redact.learn(result.reply.structured, output)
            self.reply = _without_secrets(self.reply, redact)
        else:
            self.value = value
        self.keep(chunks, redact, output)
        self.seconds = round(result.duration, 3)
        if result.error is not None:
            self.fail(result.error, redact)
        self.ended = True

    def keep(self, chunks: list[JSONValue] | None, redact: SessionRedactor, output: JSONObject | None) -> None:
        """Keep the pieces that it was answered in, None for a call in one piece; *output* is as for `end`."""
        found = redact.learn(chunks, output)
        self.chunks = found if found is None or isinstance(found, list) else [found for _ in chunks or ()]

    def hide(self, redact: Redactor) -> None:
        """Take out of what it came to the secrets that are known only now."""
        self.value, self.chunks = redact.value(self.value), _list_without_secrets(self.chunks, redact)
        self.reply = self.reply and _without_secrets(self.reply, redact)
        self.error = self.error and _without_secrets(self.error, redact)

    def fail(self, error: ToolExecError, redact: Redactor, seconds: float | None = None) -> None:
        """Keep that the call raised *error*, without secrets."""
        data = error_to_json(error)
        if data.get("tool_id") == self.tool:
            del data["tool_id"]
        self.error = _without_secrets(data, redact)
        self.seconds = self.seconds if seconds is None else round(seconds, 3)
        self.ended = True

    def answer(self) -> Any:
        """Return what the backend answered, of its own; raises the error that it answered with.

        A value that broke its tool's output schema is given as it was: it does so again.
        """
        if self.error is not None and not self._broke_schema:
            raise error_from_json({"tool_id": self.tool, **self.error})
        return ToolReply.from_mcp(copy.deepcopy(self.reply)) if self.reply is not None else copy.deepcopy(self.value)

    @property
    def _broke_schema(self) -> bool:
        """Whether there is an answer, which breaks the output schema of this tool; it may be null."""
        if self.error is None or self.error.get("class") != OutputValidationError.__name__:
            return False
        more = self.error.get("more")
        return self.reply is not None or self.value is not None or (isinstance(more, Mapping) and "value" in more)

    @classmethod
    def read(cls, data: JSONValue, place: str) -> CassetteCall:
        """Read what `to_json` wrote; raises CassetteError, with *place* in it, for what it cannot have written."""
        found = _mapping(data, place, _CALL_KEYS)
        if "value" not in found and "reply" not in found and "error" not in found:
            raise CassetteError(f"{place} has none of value, reply and error: say what the call came to")
        seconds, chunks, reply = found.get("seconds", 0), found.get("chunks"), found.get("reply")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
            raise CassetteError(f"{place}.seconds must be a number of seconds, not {shorten(repr(seconds))}")
        if chunks is not None and not isinstance(chunks, list):
            raise CassetteError(f"{place}.chunks must be a list, not {shorten(repr(chunks))}")
        error = found.get("error")
        return cls(
            tool=_string(found.get("tool"), f"{place}.tool"),
            args=dict(_mapping(found.get("args", {}), f"{place}.args")),
            value=found.get("value"),
            reply=None if reply is None else dict(_mapping(reply, f"{place}.reply")),
            error=None if error is None else _checked_error(error, f"{place}.error"),
            chunks=chunks,
            seconds=float(seconds),
        )


def _checked_error(data: JSONValue, place: str) -> JSONDict:
    """Return an error that can be raised again; raises CassetteError for any other."""
    error = dict(_mapping(data, place))
    name = _string(error.get("class"), f"{place}.class")
    kind = getattr(errors, name, None)
    if not isinstance(kind, type) or not issubclass(kind, ToolExecError):
        raise CassetteError(f"{place}.class: {shorten(name)} is not an error of toolexec")
    _string(error.get("code"), f"{place}.code")
    _string(error.get("message", ""), f"{place}.message")
    if Outcome.read(error.get("outcome")) is None:
        raise CassetteError(f"{place}.outcome must be one of {', '.join(Outcome)}")
    for part in ("details", "more"):
        more = _mapping(error.get(part, {}), f"{place}.{part}")
        if part == "more" and any(map(partial(_is_taken, kind), more)):
            raise CassetteError(f"{place}.more has a name that a {name} needs for itself")
    if error.get("cause") is not None:
        cause = _mapping(error["cause"], f"{place}.cause")
        error["cause"] = _checked_error(cause, f"{place}.cause") if "code" in cause else dict(cause)
    return error


def _is_taken(kind: type[ToolExecError], name: str) -> bool:
    """Return whether an attribute of this name would replace a method or a property of the error."""
    own = getattr(kind, name, None)
    return name.startswith("_") or callable(own) or isinstance(own, property)


def _at(binding: Binding, destination: JSONValue) -> Binding:
    """Return the binding with its destination, which pins depend on."""
    if not isinstance(destination, str) or not destination:
        return binding
    if isinstance(binding, ProviderBinding):
        return ProviderBinding(binding.provider, binding.tool, destination)
    return MCPBinding(binding.server, binding.tool, destination) if isinstance(binding, MCPBinding) else binding


def _without_secrets(data: JSONDict, redact: Redactor) -> JSONDict:
    found = redact.value(data)
    return found if isinstance(found, dict) else {}


def _list_without_secrets(data: list[JSONValue] | None, redact: Redactor) -> list[JSONValue] | None:
    found = redact.value(data)
    return found if isinstance(found, list) else None


def _mapping(value: JSONValue, place: str, known: frozenset[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CassetteError(f"{place} must be a mapping, not {shorten(repr(value))}")
    unknown = sorted(value.keys() - known) if known is not None else ()
    if unknown:
        there_are = ", ".join(sorted(known or ()))
        raise CassetteError(f"{place} has the unknown key {shorten(unknown[0])}; there are {there_are}")
    return value


def _string(value: JSONValue, place: str) -> str:
    if not isinstance(value, str):
        raise CassetteError(f"{place} must be a string, not {shorten(repr(value))}")
    return value
