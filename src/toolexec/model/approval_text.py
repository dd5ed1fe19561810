"""Show what an approver is asked to approve: every argument, whole, with everything in it visible.

An approver who sees less than what is run approves something else. So nothing is cut here: what is too long for the
place where it is asked is refused, and the error says which argument that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolexec.errors import ApprovalRequiredError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
from toolexec.model.origin import ApprovalRequest, Caller
from toolexec.model.redaction import REDACTED
from toolexec.model.visible import visible_json

MAX_SHOWN: Final = 10_000
"""How many characters of arguments one question shows at most: more than that is not read."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_MAX_PATHS: Final = 20
_MAX_NAME: Final = 200


def argument_lines(request: ApprovalRequest, limit: int = MAX_SHOWN) -> list[str]:
    """Return a line for each argument of the call: `name (required, changed): value`. Those that have changed since the
    last approval come first, then the required ones. The value is JSON in which control and hidden characters are
    escaped; secrets are redacted, and it says so.

    Raises ApprovalRequiredError for arguments of more than *limit* characters in all.
    """
    args = request.args
    names = sorted(args, key=lambda name: (name not in request.changed, name not in request.required))
    lines = {name: _line(request, name, args[name]) for name in names}
    if sum(map(len, lines.values())) > limit:
        raise _too_long(request, lines, limit)
    return list(lines.values())


def approval_details(request: ApprovalRequest) -> JSONDict:
    """Return *request* as JSON, as a run that waits for the answer keeps it; `request_from` reads it."""
    return {
        "tool": request.tool_id,
        "args": to_json_lossy(request.args),
        "reason": request.reason,
        "description": request.description,
        "caller": request.caller.id,
        "path": request.path,
        "longest": request.longest,
        "required": list(request.required),
        "changed": list(request.changed),
        "backend": request.backend,
    }


def request_from(details: JSONObject) -> ApprovalRequest:
    """Return the request that such details are of."""
    return ApprovalRequest(
        tool_id=str(details.get("tool", "")),
        args=details.get("args") or {},
        reason=str(details.get("reason", "")),
        description=str(details.get("description", "")),
        caller=Caller(id=str(details.get("caller", ""))),
        path=details.get("path") or "direct",
        longest=details.get("longest") or "always",
        required=tuple(details.get("required") or ()),
        changed=tuple(details.get("changed") or ()),
        backend=str(details.get("backend", "")),
    )


def _line(request: ApprovalRequest, name: str, value: JSONValue) -> str:
    words = [word for word, names in (("required", request.required), ("changed", request.changed)) if name in names]
    redacted = list(_redacted(value, ""))[:_MAX_PATHS]
    if redacted:
        places = [visible_json(path) for path in redacted if path]
        words.append(f"redacted at {', '.join(places)}" if places else "redacted")
    marks = f" ({', '.join(words)})" if words else ""
    return f"{_name(name)}{marks}: {visible_json(value)}"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else visible_json(name)


def _redacted(value: JSONValue, path: str) -> Iterator[str]:
    """Yield where in *value* something was redacted, as JSON pointers."""
    if isinstance(value, str):
        if REDACTED in value:
            yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _redacted(item, f"{path}/{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _redacted(item, f"{path}/{number}")


def _too_long(request: ApprovalRequest, lines: dict[str, str], limit: int) -> ApprovalRequiredError:
    sizes = {name: len(line) for name, line in lines.items()}
    longest = max(sizes, key=lambda name: sizes[name])
    name = _name(longest) if len(longest) <= _MAX_NAME else "one with a very long name"
    return ApprovalRequiredError(
        f"{request.tool_id} needs an approval, and its arguments cannot be shown whole: {sum(sizes.values()):,} "
        f"characters, and a question shows at most {limit:,}. The longest is {name} with {sizes[longest]:,}: shorten "
        "it, or have the policy allow this call",
        tool_id=request.tool_id,
        op="approval",
        details={"argument": longest[:100], "characters": sum(sizes.values()), "limit": limit},
    )
