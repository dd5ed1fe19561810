"""Find the recorded call that a call is: the same tool and the same arguments; and which one it nearly was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolexec.cassette.records import CassetteCall
from toolexec.cassette.secrets import SessionRedactor
from toolexec.errors import CassetteMissError
from toolexec.model.arguments import without_nulls
from toolexec.model.ids import without_version
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, own_args, shorten
from toolexec.model.tool import Tool
from toolexec.run.audit.record import canonical

_MOST: Final = 3
_MOST_DIFFERENCES: Final = 5
_ABSENT: Final = object()


def kept_args(tool: Tool, args: JSONObject | None, redact: SessionRedactor) -> JSONDict:
    """Return the arguments of a call as a cassette keeps them: plain JSON, as the tool gets them, without secrets.

    Raises NotJSONError for what is not JSON, and InvalidSchemaError for a schema that cannot be used.
    """
    plain = own_args({} if args is None else args)
    schema = tool.input_schema
    if not schema.conforms(plain):
        plain = without_nulls(plain, schema, schema.violations(plain))
    kept = redact.learn(plain, schema.to_json() if isinstance(schema.to_json(), Mapping) else None)
    return kept if isinstance(kept, dict) else {}


def call_key(tool_id: str, args: JSONObject) -> bytes:
    """Return the same for calls of one tool with the same arguments, however their objects are ordered."""
    return tool_id.encode() + b"\0" + canonical(args)


def miss(tool_id: str, args: JSONDict, recorded: Sequence[CassetteCall], path: str) -> CassetteMissError:
    """Return the error for a call that no recorded one is left for: with the nearest of its tool, and what differs."""
    same_tool = [(number, call) for number, call in enumerate(recorded, 1) if call.tool == tool_id]
    equal = [number for number, call in same_tool if call_key(tool_id, call.args) == call_key(tool_id, args)]
    advice = "record it with cassette_mode='auto', or all of them again with 'refresh'"
    if equal:
        times = "once" if len(equal) == 1 else f"{len(equal)} times"
        message = f"this call of {tool_id} is recorded {times} in {path}, and was made more often; {advice}"
        return CassetteMissError(message, tool_id=tool_id, details={"args": args, "recorded": equal})
    compared = [(number, differences(call.args, args)) for number, call in same_tool]
    compared.sort(key=lambda each: (len(each[1]), each[0]))
    nearest: list[JSONDict] = [
        {"number": number, "differs": found[:_MOST_DIFFERENCES]} for number, found in compared[:_MOST]
    ]
    lines = [f"  call {each['number']}: {'; '.join(each['differs'])}" for each in nearest]
    if lines:
        near = "; the nearest recorded calls:\n" + "\n".join(lines) + f"\n{advice}"
    else:
        near = f"; {_of_others(tool_id, recorded)}; {advice}"
    return CassetteMissError(
        f"no call of {tool_id} with the arguments {shorten(str(args))} is recorded in {path}{near}",
        tool_id=tool_id,
        details={"args": args, "nearest": nearest},
    )


def differences(recorded: JSONObject, asked: JSONObject) -> list[str]:
    """Return what differs between two sets of arguments, one line for each value."""
    return [*_compared(recorded, asked, "")]


def _of_others(tool_id: str, recorded: Sequence[CassetteCall]) -> str:
    """Return what to say of a tool without any recorded call: perhaps another version of it has some."""
    bare = without_version(tool_id)
    versions = sorted({call.tool for call in recorded if without_version(call.tool) == bare})
    return f"there are calls of {', '.join(versions)}" if versions else "the tool has no recorded call"


def _compared(recorded: JSONValue, asked: JSONValue, path: str) -> Iterator[str]:
    if isinstance(recorded, Mapping) and isinstance(asked, Mapping):
        for key in [*recorded, *(key for key in asked if key not in recorded)]:
            yield from _compared(
                recorded.get(key, _ABSENT), asked.get(key, _ABSENT), f"{path}.{key}" if path else str(key)
            )
    elif isinstance(recorded, list) and isinstance(asked, list) and len(recorded) == len(asked):
        for place, (first, second) in enumerate(zip(recorded, asked, strict=True)):
            yield from _compared(first, second, f"{path}[{place}]")
    elif recorded is _ABSENT:
        yield f"{path} is {_shown(asked)}, and was not given"
    elif asked is _ABSENT:
        yield f"{path} is not given, and was {_shown(recorded)}"
    elif canonical(recorded) != canonical(asked):
        yield f"{path} is {_shown(asked)}, and was {_shown(recorded)}"


def _shown(value: Any) -> str:
    return shorten(repr(value))
