"""Runs a JavaScript program of the embedded sandbox once more, and has it report which of its reads found nothing.

The calls of tools are answered as they were, so nothing is done twice. QuickJS has no debugger, and a program cannot be
asked for its values when it has failed; so it is asked in a second run, which only a program that failed, or that has
nothing for a value, needs.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from toolexec.code.replaying import RecordedRunner
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest, Output
from toolexec.errors import CodeError, ToolExecError
from toolexec.model.json_value import JSONValue

_SECONDS: Final = 3.0
_CPU_MS: Final = 1000
"""What the second run may compute. It counts instructions: a machine that stands still takes no advice away."""
_MOST_CHARS: Final = 400_000
_MOST: Final = 100
MOST_LINES: Final = 20_000
"""How many lines a program may have to be watched: what watches it comes behind these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A read that found nothing: `op` says how it was made, `key` of what, `line` where, and from what: its `kind`, its
    `path` in the result of a tool, its `size` and `value` (in part), and the names that its kind has (`own`). `of` is
    the function that was given, as its text."""

    op: str
    key: str = ""
    line: int = 0
    kind: str = ""
    path: str = ""
    size: int | None = None
    value: JSONValue = None
    own: tuple[str, ...] = ()
    of: str = ""
    at: int = field(default=0)


class WatchedRequest(ExecuteRequest):
    """A program that is to report, in its output, which of its reads find nothing."""


async def watched(
    request: ExecuteRequest, tools: Tools, run: Callable[[ExecuteRequest], Awaitable[CodeResult]]
) -> tuple[list[Watched], CodeError | None]:
    """Return the reads of the program of *request* that find nothing, in their order, and how it ends, by another *run*
    of it. Nothing where it ends otherwise than a program does, or has too many lines.
    """
    if request.code.count("\n") >= MOST_LINES:
        return [], None
    output = Output(_MOST_CHARS)
    given = {each.name: getattr(request, each.name) for each in fields(request)}
    given |= {"gateway": tools.replayed(RecordedRunner(tools.tool_calls())), "output": output, "on_event": None}
    given |= {"timeout": min(request.timeout or _SECONDS, _SECONDS)}
    given |= {"limits": replace(request.limits, cpu_ms=min(request.limits.cpu_ms or _CPU_MS, _CPU_MS))}
    try:
        result = await run(WatchedRequest(**given))
    except ToolExecError:
        return [], None
    error = result.error
    if error is not None and not isinstance(error, CodeError):
        return [], None
    found = [_read(line, at) for at, line in enumerate(output.text("stdout").splitlines()[:_MOST])]
    return [each for each in found if each is not None], error


def _read(text: str, at: int) -> Watched | None:
    """Return what a line reports; None where the program itself has written it."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("op"), str):
        return None
    strings = {name: str(found.get(name) or "")[:300] for name in ("op", "key", "kind", "path", "of")}
    line, size, own = found.get("line"), found.get("size"), found.get("own")
    return Watched(
        **strings,
        line=line if isinstance(line, int) else 0,
        size=size if isinstance(size, int) else None,
        value=found.get("value"),
        own=tuple(str(each)[:50] for each in own[:100]) if isinstance(own, list) else (),
        at=at,
    )
