"""Find out whether a call of unknown outcome did its work, by the tool that knows."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from toolexec.discovery.index import Registered
from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.run.resolve import Find
from toolexec.run.types import Result

CHECK: Final = "toolexec/check"
"""The key of a tool's `meta` that names the tool which knows whether a call of it did its work."""

logger: logging.Logger = logging.getLogger(__name__)


class Checked(NamedTuple):
    """Whether a call did its work, and what it answered."""

    done: bool
    value: JSONValue = None


async def check_outcome(
    entry: Registered,
    args: JSONObject,
    sent: str,
    find: Find,
    make: Callable[[Registered, JSONDict], Awaitable[Result]],
) -> Checked | None:
    """Return what the tool says that *entry* names for that; None where it names none, or that does not know.

    The tool must be read-only. *make* calls it, with those of *args* that its schema has, and with the idempotency key
    *sent* of the call that is asked about.
    """
    name = entry.tool.meta.get(CHECK)
    if not isinstance(name, str):
        return None
    try:
        check = find(name)
        if not check.tool.annotations.read_only:
            logger.warning("%s cannot check %s: it is not marked read-only", name, entry.tool.id)
            return None
        result = await make(check, _args_for(check, args, sent))
    except ToolExecError as error:
        logger.warning("%s could not check %s: %s", name, entry.tool.id, error.code)
        return None
    return read_check(result.value) if result.error is None else None


def read_check(answer: JSONValue) -> Checked | None:
    """Return what an answer means that is true, false, or `{"done": ..., "value": ...}`; None for any other."""
    if isinstance(answer, bool):
        return Checked(answer)
    done = answer.get("done") if isinstance(answer, dict) else None
    return Checked(done, answer.get("value")) if isinstance(done, bool) else None


def _args_for(check: Registered, args: JSONObject, sent: str) -> JSONDict:
    """Return the arguments for a tool that checks: those that its schema has."""
    schema = check.tool.input_schema.to_json()
    names = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    given = {**args, "idempotency_key": sent}
    return {name: value for name, value in given.items() if name in names}
