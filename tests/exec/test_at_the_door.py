"""What does not fit is refused where it comes in, by its name, and with nothing done."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import pytest

from toolexec import Exec, Step
from toolexec.errors import ToolExecError

METHODS = (
    "run_tool",
    "run_chain",
    "run_workflow",
    "execute_code",
    "stream_tool",
    "search_tools",
    "tool_facets",
    "get_tool_doc",
    "suggest_chain",
    "add",
    "add_skill",
    "add_config",
    "add_mcp",
    "add_http",
    "add_grpc",
    "refresh",
    "remove",
    "export_tools",
)
FITTING: Mapping[str, Any] = {
    "tool_id": "t:echo",
    "query": "echo",
    "goal": "t:echo",
    "steps": [Step("t:echo")],
    "code": "return 1",
    "source": "return 1",
    "name": "far",
    "path": "nowhere.json",
    "skill": "nowhere.md",
    "format": "openai",
}
"""Values for the parameters without a default."""
NUMBERS = ("3", [], {}, math.nan, -math.inf, -1)
WRONG: Mapping[str, tuple[object, ...]] = {
    "bool": ("no", 5, []),
    "int": (*NUMBERS, 1.5),
    "float": NUMBERS,
    "str": (5, [], {}, b"x"),
    "JSONObject": (5, "x", [1]),
    "Sequence": (5, {}),
    "Collection": (5,),
    "ProgressCallback": (5, "x"),
    "Callable": (5, [1]),
}
"""For the first name of each part of an annotation values of other kinds, and of no sense."""
NAMED = {"args": "args|arguments", "tool_id": "tool ID", "goal": "goal|tool ID", "durable": "durable|ID of a run"}
"""What errors call a parameter, where that is not its name alone."""
OTHER_NAMES = {"DetailLevel": "str", "OnError": "str", "VendorFormat": "str", "Path": "str", "Mapping": "JSONObject"}


def heads(annotation: str) -> list[str]:
    """The names of the kinds that an annotation admits, without what is in brackets."""
    flat, before = re.sub(r"\[[^\[\]]*\]", "", annotation), annotation
    while flat != before:
        flat, before = re.sub(r"\[[^\[\]]*\]", "", flat), flat
    names = [part.strip() for part in flat.split("|")]
    return [OTHER_NAMES.get(name, name) for name in names if name != "None"]


def cases() -> Iterator[Any]:
    """Each parameter of each method, with values that do not fit it."""
    for method in METHODS:
        for parameter in inspect.signature(getattr(Exec, method)).parameters.values():
            admitted = heads(str(parameter.annotation))
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or not {*admitted} <= {*WRONG}:
                continue
            wrong = [value for value in WRONG[admitted[0]] if not any(fits(value, name) for name in admitted[1:])]
            for value in wrong:
                yield pytest.param(method, parameter.name, value, id=f"{method}-{parameter.name}-{value!r}")


def fits(value: object, kind: str) -> bool:
    """Say whether a value is of a further kind that is admitted."""
    return not any(value is other or (type(value) is type(other) and value == other) for other in WRONG[kind])


def test_there_are_many() -> None:
    """The signatures are read at all."""
    assert len([*cases()]) > 100


@pytest.mark.parametrize(("method", "name", "value"), [*cases()])
async def test_what_does_not_fit_is_refused(method: str, name: str, value: object) -> None:
    """The error names the parameter, the tool was not called, and no tool was added."""
    called: list[object] = []

    def echo(value: object = 1) -> object:
        called.append(value)
        return value

    async with Exec() as ex:
        ex.add(echo, "t:echo")
        before = len(ex.index)
        needed = {
            each.name: FITTING.get(each.name, echo)
            for each in inspect.signature(getattr(Exec, method)).parameters.values()
            if each.default is each.empty and each.name != "self" and each.kind is each.POSITIONAL_OR_KEYWORD
        }
        with pytest.raises(ToolExecError) as caught:
            made: Any = getattr(ex, method)(**{**needed, name: value})
            if isinstance(made, AsyncGenerator):
                made = made.__anext__()
            if inspect.isawaitable(made):
                made = await made
            if getattr(made, "error", None) is not None:
                raise made.error
        assert len(ex.index) == before
    assert called == []
    said = caught.value.message
    assert re.search(rf"\b({NAMED.get(name, name)})\b", said), said
