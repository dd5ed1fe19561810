"""What a record says: who called what, on which path, and how it went."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2s
from typing import Any, Final, cast

from toolexec.discovery.index import Registered
from toolexec.errors import PolicyError, RateLimitedError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
from toolexec.model.origin import Origin
from toolexec.model.redaction import NAMING, REDACTED, Redactor
from toolexec.model.tree_size import has_many
from toolexec.run.large import is_small, sorted_in_pieces
from toolexec.run.types import Result

_MAX_TEXT: Final = 256
_MAX_ARGS: Final = 2048
_MAX_START: Final = 1024
_LONG_TEXT: Final = 1 << 16
_SLICE: Final = 1000


def _refuse(value: object) -> None:
    raise TypeError(f"{type(value).__name__} is not JSON")


_strict: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
# The encoder itself: `json.dumps` makes a new one for each call, which takes as long as the encoding.
_encoder: Final = cast("Any", json.encoder)
_pieces: Final = _encoder.c_make_encoder(None, _refuse, _encoder.encode_basestring, None, ":", ",", True, False, False)


def inside(facts: JSONObject) -> str:
    """Facts as the inside of a JSON object, without those that are empty; long strings are cut."""
    kept = {key: _cut(value) for key, value in facts.items() if value not in ("", None, (), [])}
    return _encode(kept)[1:-1]


def _encode(value: Any) -> str:
    """Strict JSON; what has no JSON form is put down as text."""
    try:
        return _strict.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _strict.encode(to_json_lossy(value))


def _cut(value: Any) -> Any:
    return f"{value[: _MAX_TEXT - 1]}…" if isinstance(value, str) and len(value) > _MAX_TEXT else value


def canonical(value: Any) -> bytes:
    """Return a JSON value as bytes that are the same however its objects are ordered; what is not JSON counts as it
    would be written.
    """
    try:
        return canonical_text(value).encode(errors="surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return "".join(_pieces(to_json_lossy(value), 0)).encode()


def canonical_text(value: Any) -> str:
    """Return the text of a JSON value, which is the same however its objects are ordered. Raises TypeError, ValueError
    and RecursionError for what is not JSON."""
    return "".join(_slices(value))


def _slices(value: Any) -> Iterator[str]:
    """Yield the same text as `_pieces` gives, with many values in slices: no other thread runs during one."""
    if not has_many(value):
        yield "".join(_pieces(value, 0))
    elif type(value) is dict:
        before = "{"
        for name in sorted_in_pieces(value):
            yield before + "".join(_pieces({name: None}, 0))[1:-5]
            yield from _slices(value[name])
            before = ","
        yield "}"
    else:
        before = "["
        for at in range(0, len(value), _SLICE):
            batch = value[at : at + _SLICE]
            if has_many(batch):
                for item in batch:
                    yield before
                    yield from _slices(item)
                    before = ","
            else:
                yield before + "".join(_pieces(batch, 0))[1:-1]
                before = ","
        yield "]"


def args_digest(args: JSONObject | None, key: bytes) -> str:
    """Return the digest of a call's arguments: the same for the same arguments, and only in one log."""
    return blake2s(canonical(args or {}), key=key).hexdigest()


def redacted_args(args: JSONObject | None, redact: Redactor, schema: JSONObject | None) -> str:
    """Return the arguments without secrets as JSON; of more than 2 KiB the size and the first 1 KiB, so that a record
    fits a page. Of large arguments only the beginning is looked at, as the event loop waits for it.
    """
    if is_small(args or {}):
        text = _encode(redact.value(to_json_lossy(args or {}), schema))
        if len(text) <= _MAX_ARGS:
            return text
        return _encode({"left_out": f"{len(text)} bytes", "start": text[:_MAX_START]})
    text = _encode(redact.value(to_json_lossy(beginning(args or {}, redact)), schema))
    return _encode({"left_out": "more than 64 KiB of text, or 2,000 values", "start": text[:_MAX_START]})


def beginning(value: JSONValue, redact: Redactor, most: int = _MAX_START) -> JSONValue:
    """Return the first values of a large one, as many as *most* characters have; a dict keeps what names its value,
    which may be secret."""
    left = most

    def copy(part: JSONValue) -> JSONValue:
        nonlocal left
        if type(part) is dict:
            whole = cast("JSONDict", part)
            kept: JSONDict = {}
            for name, item in whole.items():
                if left <= 0:
                    break
                left -= 1
                kept[name] = copy(item)
            for name in NAMING:
                if name in whole and name not in kept:
                    kept[name] = copy(whole[name])
            return kept
        if type(part) is list or type(part) is tuple:
            items: list[JSONValue] = []
            for item in cast("list[JSONValue]", part):
                if left <= 0:
                    break
                left -= 1
                items.append(copy(item))
            return items
        if type(part) is not str:
            return part
        left -= len(part)
        return _start_of(part, redact) if len(part) > _LONG_TEXT else part

    return copy(value)


def _start_of(text: str, redact: Redactor) -> str:
    """Return the start of a long text, without secrets; all of it is one where that leaves so little that a secret at
    the cut, which is not known by its first half, could be seen."""
    start = redact.text(text[:_LONG_TEXT])
    return start[:_MAX_ARGS] if len(start) >= _MAX_ARGS else REDACTED


def tool_part(entry: Registered) -> str:
    """Return which tool it is, and where it runs."""
    tool, binding = entry.tool, entry.binding
    return inside({"tool": tool.id, "version": tool.version, "backend": binding.backend, "binding": binding.kind})


def origin_part(origin: Origin, key: bytes) -> str:
    """Return who calls, on which path; the session only as a digest."""
    caller = origin.caller
    who = {"id": caller.id, "roles": list(caller.roles), "tenant": caller.tenant, "method": caller.method}
    who["endpoint"] = caller.endpoint
    session = blake2s(origin.session.encode(errors="replace"), key=key).hexdigest()[:16]
    return inside(
        {
            "parent": origin.parent,
            "path": origin.path,
            "session": session if origin.session else "",
            "caller": {name: _cut(value) for name, value in who.items() if value} or None,
            "client": origin.client,
        }
    )


def outcome_of(error: BaseException | None) -> str:
    """`ok`, the error's code, or `cancelled`."""
    if error is None:
        return "ok"
    if isinstance(error, ToolExecError):
        return error.code
    return "internal" if isinstance(error, Exception) else "cancelled"


def answer_part(result: Result | None, entry: Registered | None, attempts: int, login: str = "") -> str:
    """Return what is unusual about how the call of *entry*, with so many *attempts*, was answered, with a comma before
    it; empty as a rule. *login* says whose login it was made with, where each caller has one."""
    facts: JSONDict = {}
    if attempts > 1:
        facts["attempts"] = attempts
    if login:
        facts["login"] = login
    if result is not None:
        if result.cached:
            facts["cached"] = result.cached
        if entry is not None:
            binding = result.binding or entry.binding
            if result.tool_id != entry.tool.id:
                facts["answered_by"] = result.tool_id
            if binding.backend != entry.binding.backend:
                facts["answered_backend"] = binding.backend
    return f",{inside(facts)}" if facts else ""


def outcome_part(error: BaseException | None, seconds: float, redact: Redactor) -> str:
    """Return how it ended and how long it took; of a refusal also by which rule and why."""
    if error is None:
        return f'"outcome":"ok","duration_ms":{seconds * 1000:.3f}'
    facts: JSONDict = {"outcome": outcome_of(error)}
    if isinstance(error, PolicyError | RateLimitedError):
        rule = error.details.get("rule")
        facts["rule"] = redact.text(rule) if isinstance(rule, str) else None
        facts["reason"] = redact.text(error.message)
    return f'{inside(facts)},"duration_ms":{seconds * 1000:.3f}'
